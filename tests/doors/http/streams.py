"""A whole answer of a provider as the events by which the provider streams it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

PIECE: Final = 7
"""Characters of text or arguments in one event."""


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _event(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


def chat(answer: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[bytes]:
    """Chunks of a chat completion."""
    choice = answer["choices"][0]
    message = choice["message"]

    def chunk(delta: Any, finish: str | None = None) -> bytes:
        one = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event(
            {**{k: answer[k] for k in ("id", "created", "model")}, "object": "chat.completion.chunk", "choices": [one]}
        )

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "content"):
        for piece in _pieces(message.get(name) or ""):
            yield chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        yield chunk(
            {
                "tool_calls": [
                    {
                        "index": index,
                        "id": call["id"],
                        "type": "function",
                        "function": {"name": function["name"], "arguments": ""},
                    }
                ]
            }
        )
        for piece in _pieces(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event(
            {
                "id": answer["id"],
                "object": "chat.completion.chunk",
                "created": 0,
                "model": answer["model"],
                "choices": [],
                "usage": answer["usage"],
            }
        )
    yield b"data: [DONE]\n\n"


def messages(answer: Mapping[str, Any], _: Mapping[str, Any]) -> Iterator[bytes]:
    """Events of a message."""
    usage = {**answer["usage"], "output_tokens": 1}
    begun = {**answer, "content": [], "stop_reason": None, "usage": usage}
    yield _event({"type": "message_start", "message": begun}, "message_start")
    for index, block in enumerate(answer["content"]):
        empty, deltas = _BLOCKS.get(block["type"], _whole)(block)
        yield _event({"type": "content_block_start", "index": index, "content_block": empty}, "content_block_start")
        if not index:
            yield _event({"type": "ping"}, "ping")
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield _event({"type": "content_block_stop", "index": index}, "content_block_stop")
    stop = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    counted = {"output_tokens": answer["usage"]["output_tokens"]}
    yield _event({"type": "message_delta", "delta": stop, "usage": counted}, "message_delta")
    yield _event({"type": "message_stop"}, "message_stop")


def _whole(block: Any) -> tuple[Any, list[Any]]:
    return block, []


def _text(block: Any) -> tuple[Any, list[Any]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]


def _thinking(block: Any) -> tuple[Any, list[Any]]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
    signed = {"type": "signature_delta", "signature": block["signature"]}
    return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]


def _use(block: Any) -> tuple[Any, list[Any]]:
    text = json.dumps(block["input"]) if block["input"] else ""
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": each} for each in ["", *_pieces(text)]]


_BLOCKS: Final[Mapping[str, Callable[[Any], tuple[Any, list[Any]]]]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _use,
}


def responses(answer: Mapping[str, Any], _: Mapping[str, Any]) -> Iterator[bytes]:
    """Events of a response."""
    number = iter(range(100_000))

    def event(kind: str, **more: Any) -> bytes:
        return _event({"type": kind, "sequence_number": next(number), **more}, kind)

    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(answer["output"]):
        where = {"output_index": index, "item_id": item.get("id", "")}
        yield event("response.output_item.added", output_index=index, item=_empty(item))
        if item["type"] == "message":
            text = item["content"][0]["text"]
            part = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **where, content_index=0, part=part)
            for piece in _pieces(text):
                yield event("response.output_text.delta", **where, content_index=0, delta=piece, logprobs=[])
            yield event("response.output_text.done", **where, content_index=0, text=text, logprobs=[])
            yield event("response.content_part.done", **where, content_index=0, part={**part, "text": text})
        elif item["type"] == "function_call":
            for piece in _pieces(item["arguments"]):
                yield event("response.function_call_arguments.delta", **where, delta=piece)
            yield event(
                "response.function_call_arguments.done", **where, name=item["name"], arguments=item["arguments"]
            )
        elif item["type"] == "custom_tool_call":
            for piece in _pieces(item["input"]):
                yield event("response.custom_tool_call_input.delta", **where, delta=piece)
            yield event("response.custom_tool_call_input.done", **where, input=item["input"])
        elif item["type"] == "reasoning":
            for at, part in enumerate(item["summary"]):
                there = {**where, "summary_index": at}
                yield event("response.reasoning_summary_part.added", **there, part={**part, "text": ""})
                for piece in _pieces(part["text"]):
                    yield event("response.reasoning_summary_text.delta", **there, delta=piece)
                yield event("response.reasoning_summary_text.done", **there, text=part["text"])
                yield event("response.reasoning_summary_part.done", **there, part=part)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=answer)


_EMPTY: Final[Mapping[str, Mapping[str, Any]]] = {
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
    "custom_tool_call": {"input": "", "status": "in_progress"},
    "reasoning": {"summary": []},
}
"""What an item holds when it begins."""


def _empty(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, **_EMPTY.get(item["type"], {})}


EVENTS: Final[Mapping[str, Callable[[Any, Any], Iterator[bytes]]]] = {
    "chat/completions": chat,
    "messages": messages,
    "responses": responses,
}
