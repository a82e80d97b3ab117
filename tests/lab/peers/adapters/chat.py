"""From a run's format to OpenAI chat's, which every peer takes, and back.

The way back gives the very message that was sent wherever nothing of it was changed, so that a peer is charged for its
own changes only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

Message = dict[str, Any]
OPENAI = "openai_chat"


def to_chat(format: str, system: str | None, messages: Sequence[Message]) -> list[Message]:
    """Return a run in OpenAI chat's format."""
    if format == OPENAI:
        return list(messages)
    head: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    return head + [part for message in messages for part in _parts(message)]


class Back:
    """Writes OpenAI chat messages in the format that the run has."""

    def __init__(self, format: str, messages: Sequence[Message]) -> None:
        """Take the run, whose messages are given back as they are."""
        self._format = format
        self._sent = {} if format == OPENAI else {_spelling(message): message for message in messages}

    def messages(self, chat: Sequence[Message]) -> tuple[list[str], list[Message]]:
        """Return the system texts, and the messages. OpenAI chat has its system prompt among the messages."""
        if self._format == OPENAI:
            return [], list(chat)
        system = [str(message["content"]) for message in chat if message["role"] == "system"]
        made = _anthropic([message for message in chat if message["role"] != "system"])
        return system, [self._sent.get(_spelling(message), message) for message in made]


def _parts(message: Message) -> Iterator[Message]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "assistant":
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        calls = [
            {
                "id": block["id"],
                "type": "function",
                "function": {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)},
            }
            for block in blocks
            if block["type"] == "tool_use"
        ]
        yield {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})
        return
    for block in blocks:
        if block["type"] == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _text(block.get("content"))}
        else:
            yield {"role": "user", "content": _text([block])}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content or [])


def _anthropic(chat: Sequence[Message]) -> list[Message]:
    made: list[Message] = []
    for message in chat:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = list(_blocks(message))
        if role == "user" and made and made[-1]["role"] == "user":
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
    return made


def _blocks(message: Message) -> Iterator[Message]:
    if message["role"] == "tool":
        yield {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return
    if message.get("content"):
        yield {"type": "text", "text": message["content"]}
    for call in message.get("tool_calls") or []:
        function = call["function"]
        arguments = json.loads(function["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}


def _spelling(message: Message) -> str:
    return json.dumps(message, sort_keys=True)
