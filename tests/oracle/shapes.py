"""Reading a prompt of either format without trust: what is where, whatever its shape.

Real histories are malformed in places, so nothing here raises on a wrong type: what cannot be read is absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPENAI_CHAT = "openai_chat"
ANTHROPIC_MESSAGES = "anthropic_messages"
FORMATS = (OPENAI_CHAT, ANTHROPIC_MESSAGES)

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as written; `arguments` is a string in OpenAI chat and a JSON value in Anthropic messages."""

    call_id: str
    name: str
    arguments: object


def messages_of(body: object) -> list[Any]:
    """Return the message list of a request body, or of a bare message array."""
    if isinstance(body, Mapping):
        body = body.get("messages")
    return list(body) if isinstance(body, list) else []


def role_of(message: object) -> str:
    """Return the role, empty if there is none."""
    role = message.get("role") if isinstance(message, Mapping) else None
    return role if isinstance(role, str) else ""


def blocks_of(message: object) -> list[Any]:
    """Return the content blocks; a string content is no block."""
    content = message.get("content") if isinstance(message, Mapping) else None
    return content if isinstance(content, list) else []


def typed_blocks(message: object, kind: str) -> list[Mapping[str, Any]]:
    """Return the content blocks of one type."""
    return [block for block in blocks_of(message) if isinstance(block, Mapping) and block.get("type") == kind]


def calls_of(format: str, message: object) -> list[ToolCall]:
    """Return the tool calls that the client must answer."""
    if role_of(message) != "assistant" or not isinstance(message, Mapping):
        return []
    if format == ANTHROPIC_MESSAGES:
        return [
            ToolCall(_text(block.get("id")), _text(block.get("name")), block.get("input"))
            for block in typed_blocks(message, "tool_use")
        ]
    raw = message.get("tool_calls")
    calls = [call for call in raw if isinstance(call, Mapping)] if isinstance(raw, list) else []
    found = []
    for call in calls:
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        found.append(ToolCall(_text(call.get("id")), _text(function.get("name")), function.get("arguments")))
    return found


def results_of(format: str, message: object) -> list[str]:
    """Return the call ids that a message answers, in order."""
    if not isinstance(message, Mapping):
        return []
    if format == ANTHROPIC_MESSAGES:
        if role_of(message) != "user":
            return []
        return [_text(block.get("tool_use_id")) for block in typed_blocks(message, "tool_result")]
    return [_text(message.get("tool_call_id"))] if role_of(message) == "tool" else []


REASONING = ("reasoning_content", "reasoning")
"""Members of chat messages that hold what the model thought, as text."""


def item_bytes(format: str, message: object) -> list[bytes]:
    """Return what an original in this message may be, as the sidecar promises to give it back.

    A text is its UTF-8; an OpenAI argument string is its UTF-8; anything else is compared by `canonical` of its JSON.
    """
    found: list[bytes] = [canonical(message)]
    if not isinstance(message, Mapping):
        return found
    content = message.get("content")
    if isinstance(content, str):
        found.append(_utf8(content))
    for block in blocks_of(message):
        found.extend(_block_items(block))
    if format == OPENAI_CHAT:
        found.extend(_utf8(message[name]) for name in REASONING if isinstance(message.get(name), str))
        arguments = [call.arguments for call in calls_of(format, message)]
        found.extend(_utf8(value) if isinstance(value, str) else canonical(value) for value in arguments)
    return found


def _block_items(block: object) -> list[bytes]:
    if not isinstance(block, Mapping):
        return [canonical(block)]
    found = [canonical(block)]
    found.extend(_utf8(block[name]) for name in ("text", "thinking") if isinstance(block.get(name), str))
    if "input" in block:
        found.append(canonical(block["input"]))
    content = block.get("content")
    if isinstance(content, str):
        found.append(_utf8(content))
    elif isinstance(content, list):
        found.append(canonical(content))
        for inner in content:
            found.extend(_block_items(inner))
    return found


def canonical(value: object) -> bytes:
    """Return one spelling of a JSON value: keys sorted, numbers as JavaScript reads them (IEEE 754 doubles)."""
    return json.dumps(_as_doubles(value), sort_keys=True, separators=(",", ":")).encode()


def _as_doubles(value: object) -> object:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return float(value) + 0.0  # -0.0 and 0.0 are one number
    if isinstance(value, Mapping):
        return {key: _as_doubles(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_as_doubles(inner) for inner in value]
    return value


def texts_of(value: object) -> list[str]:
    """Return every string in a JSON value, in order, keys of objects not included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for inner in value.values() for text in texts_of(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in texts_of(inner)]
    return []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
