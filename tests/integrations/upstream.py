"""A provider on loopback that speaks three APIs, streams where it is asked to, and plays an agent's model.

The model calls the agent's tool so many times, then one of the sidecar's if it is offered one and a label shows an id,
then it answers. Every request is judged by the rules of `tests/conformance`, and one that is too long is
refused in the provider's words. What a framework makes of our trimmed prompts so meets what a provider accepts.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from tests.client.provider import MODEL, SHAPES, Says
from tests.conformance.table import CASES

STEPS: Final = 32
"""Calls of the agent's tool. Their results are twice what the window takes."""
WINDOW: Final = 6_000
"""Tokens, as the agents tell the sidecar."""
MOST_BYTES: Final = 50_000
"""Bytes of a request's messages: what the window holds of these results. The untrimmed history has 80,000."""
TOOL: Final = "read_log"
RECALL: Final = "recall_elided_content"
ANSWER: Final = "All builds were read."
_FORMATS: Final[Mapping[str, str]] = {
    "chat/completions": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic_messages",
}
_ID: Final = re.compile(r"id=([a-z0-9]{10})")


@dataclass(slots=True)
class Upstream:
    """See the file. A context manager."""

    steps: int = STEPS
    most_bytes: int = MOST_BYTES
    mixed: bool = False
    """Whether the turn that recalls calls the agent's tool too."""
    bodies: list[Any] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    """What the provider's rules forbid, of all requests."""
    refused: int = 0
    """Requests that were refused as too long."""
    asked: str = ""
    """The id that the model has recalled."""
    recalled: str = ""
    """What it got."""
    sent: list[bytes] = field(default_factory=list)
    """The bodies of its answers, as bytes."""
    _turn: int = 0
    _server: Any = None
    _thread: Any = None

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def begin(self) -> None:
        """Forget all requests, and begin the script again."""
        for kept in (self.bodies, self.headers, self.paths, self.defects, self.sent):
            kept.clear()
        self.refused, self.asked, self.recalled, self._turn = 0, "", "", 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path: str, body: Any) -> tuple[int, str, Iterator[bytes]]:
        """Judge a request and take the model's next turn: status, content type and the pieces of the body."""
        api = next(name for name in _FORMATS if path.split("?", maxsplit=1)[0].endswith(name))
        self.bodies.append(body)
        self.paths.append(path)
        self.defects += [f"request {len(self.bodies)}: {each}" for each in CASES[_FORMATS[api]].defects(body)]
        size = len(json.dumps(body.get("messages") or body.get("input"), ensure_ascii=False))
        if size > self.most_bytes:
            self.refused += 1
            text = f"This model's maximum context length is {WINDOW - 1_500} tokens. Your messages resulted in {size}."
            error = {"message": text, "type": "invalid_request_error", "code": "context_length_exceeded"}
            return 400, "application/json", iter([json.dumps({"type": "error", "error": error}).encode()])
        says = self._says(body)
        if body.get("stream"):
            usage = api != "chat/completions" or bool((body.get("stream_options") or {}).get("include_usage"))
            return 200, "text/event-stream; charset=utf-8", _STREAMS[api](says, len(self.bodies), usage)
        return 200, "application/json", iter([json.dumps(SHAPES[api](says, len(self.bodies))).encode()])

    def _says(self, body: Any) -> Says:
        self._turn += 1
        if self._turn <= self.steps:
            return Says(f"Build {self._turn} next.", [(f"call-{self._turn}", TOOL, {"number": self._turn})])
        text = json.dumps(body.get("messages") or body["input"])
        if self.asked:
            self.recalled = self.recalled or last_result(body)
            return Says(ANSWER)
        names = {each.get("name") or each["function"]["name"] for each in body.get("tools") or ()}
        shown = _ID.search(text)
        if RECALL not in names or shown is None:
            return Says(ANSWER)
        self.asked = shown[1]
        theirs = [("call-99", TOOL, {"number": 99})] if self.mixed else []
        return Says("", [("call-recall", RECALL, {"id": self.asked}), *theirs])


def last_result(body: Any) -> str:
    """The text of the last tool result in a body."""
    found = ""
    for message in body.get("messages") or body["input"]:
        content = message.get("content")
        if message.get("role") == "tool":
            found = _text(content)
        elif message.get("type") == "function_call_output":
            found = _text(message["output"])
        elif message.get("role") == "user" and isinstance(content, list):
            for block in content:
                if block.get("type") == "tool_result":
                    found = _text(block["content"])
    return found


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


def _event(data: Any, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _halves(text: str) -> Iterator[str]:
    yield text[: len(text) // 2]
    yield text[len(text) // 2 :]


def _chat(says: Says, number: int, usage: bool) -> Iterator[bytes]:
    head = {"id": f"chat-{number}", "object": "chat.completion.chunk", "created": 0, "model": MODEL}

    def chunk(delta: Any, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _event({**head, "choices": [choice]} | ({"usage": None} if usage else {}))

    yield chunk({"role": "assistant", "content": ""})
    for piece in _halves(says.text):
        yield chunk({"content": piece})
    for index, (call_id, name, arguments) in enumerate(says.calls):
        function = {"name": name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        for piece in _halves(json.dumps(arguments)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if says.calls else "stop")
    if usage:
        counted = SHAPES["chat/completions"](says, number)["usage"]
        yield _event({**head, "choices": [], "usage": counted})
    yield b"data: [DONE]\n\n"


def _responses(says: Says, number: int, _: bool) -> Iterator[bytes]:
    whole = SHAPES["responses"](says, number)
    count = iter(range(1_000))

    def event(kind: str, **data: Any) -> bytes:
        return _event({"type": kind, "sequence_number": next(count), **data}, kind)

    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index}
        if item["type"] == "message":
            yield event("response.output_item.added", item={**item, "content": [], "status": "in_progress"}, **place)
            at = {"item_id": item["id"], "content_index": 0, **place}
            part = item["content"][0]
            yield event("response.content_part.added", part={**part, "text": ""}, **at)
            for piece in _halves(part["text"]):
                yield event("response.output_text.delta", delta=piece, logprobs=[], **at)
            yield event("response.output_text.done", text=part["text"], logprobs=[], **at)
            yield event("response.content_part.done", part=part, **at)
        else:
            yield event("response.output_item.added", item={**item, "arguments": "", "status": "in_progress"}, **place)
            for piece in _halves(item["arguments"]):
                yield event("response.function_call_arguments.delta", delta=piece, item_id=item["id"], **place)
            yield event(
                "response.function_call_arguments.done",
                arguments=item["arguments"],
                name=item["name"],
                item_id=item["id"],
                **place,
            )
        yield event("response.output_item.done", item=item, **place)
    yield event("response.completed", response=whole)


def _messages(says: Says, number: int, _: bool) -> Iterator[bytes]:
    whole = SHAPES["messages"](says, number)

    def event(kind: str, **data: Any) -> bytes:
        return _event({"type": kind, **data}, kind)

    counted = {**whole["usage"], "output_tokens": 1}
    yield event("message_start", message={**whole, "content": [], "stop_reason": None, "usage": counted})
    yield event("ping")
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
            for piece in _halves(block["text"]):
                yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        else:
            yield event("content_block_start", index=index, content_block={**block, "input": {}})
            for piece in _halves(json.dumps(block["input"])):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ended, usage=whole["usage"])
    yield event("message_stop")


_STREAMS: Final[Mapping[str, Callable[[Says, int, bool], Iterator[bytes]]]] = {
    "chat/completions": _chat,
    "responses": _responses,
    "messages": _messages,
}


class _Server(ThreadingHTTPServer):
    """Writes nothing about clients that have gone."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let it be."""


class _Handler(BaseHTTPRequestHandler):
    """HTTP around `Upstream.answer`."""

    owner: Upstream
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer, in chunks."""
        self.owner.headers.append(dict(self.headers))
        status, kind, pieces = self.owner.answer(self.path, json.loads(self.rfile.read(self._length())))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        whole = b""
        for piece in pieces:
            whole += piece
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
        self.owner.sent.append(whole)  # before the end of the answer: who has read that may look
        self.wfile.write(b"0\r\n\r\n")

    def _length(self) -> int:
        return int(self.headers["Content-Length"])

    def log_message(self, *_: object) -> None:
        """Write no log."""
