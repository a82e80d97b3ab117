"""The AI SDK's UI messages, which chat applications store, converted to model messages.

A UI message is `{"id", "role", "parts"}`; a tool part has the type `tool-NAME` (or `dynamic-tool` with `toolName`), and
call and result in one. Steps of an answer are divided by `step-start`. Source: the AI SDK's reference of UIMessage and
convertToModelMessages, versions 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

_LOOKED_AT: Final = 8
_STEP: Final = "step-start"
_DONE: Final = {"output-available": "output", "output-error": "errorText"}

FORMAT: Final = "ai_sdk"
"""The format of the resulting model messages."""


def are(messages: Sequence[bytes]) -> bool:
    """Whether these are UI messages: parts with types, and no content."""
    shown = [_decoded(message) for message in islice(messages, _LOOKED_AT)]
    return bool(shown) and all(
        isinstance(parts := one.get("parts"), list)
        and "content" not in one
        and all(isinstance(part, dict) and "type" in part for part in parts)
        for one in shown
    )


def model_messages(messages: Sequence[bytes]) -> tuple[list[bytes], tuple[str, ...]]:
    """Return the model messages, and which of their parts the file lacks."""
    made = [msgspec.json.encode(one) for message in messages for one in _converted(_decoded(message))]
    return made, ("the system prompt and the tools' definitions, which UI messages do not have",)


def _converted(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    parts = [part for part in message.get("parts") or [] if isinstance(part, dict)]
    if message.get("role") != "assistant":
        yield {"role": message.get("role"), "content": list(_shown(parts)) or ""}
        return
    step: list[Mapping[str, Any]] = []
    for part in [*parts, {"type": _STEP}]:
        if part.get("type") != _STEP:
            step.append(part)
        elif step:
            yield from _step(step)
            step = []


def _step(parts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    calls = [(name, part) for part in parts if (name := _tool(part))]
    asked = [
        {"type": "tool-call", "toolCallId": part.get("toolCallId", ""), "toolName": name, "input": part.get("input")}
        for name, part in calls
    ]
    content = [*_shown(parts), *asked]
    if content:
        yield {"role": "assistant", "content": content}
    answered = [
        {"type": "tool-result", "toolCallId": part.get("toolCallId", ""), "toolName": name, "output": _output(part)}
        for name, part in calls
        if part.get("state") in _DONE
    ]
    if answered:
        yield {"role": "tool", "content": answered}


def _output(part: Mapping[str, Any]) -> dict[str, Any]:
    value = part.get(_DONE[part["state"]])
    failed = "error-" if part["state"] == "output-error" else ""
    return {"type": f"{failed}text" if isinstance(value, str) else f"{failed}json", "value": value}


def _shown(parts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for part in parts:
        if part.get("type") in {"text", "reasoning"}:
            yield {"type": part["type"], "text": part.get("text", "")}
        elif part.get("type") == "file":
            yield {"type": "file", "data": part.get("url", ""), "mediaType": part.get("mediaType", "")}


def _tool(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind == "dynamic-tool":
        return str(part.get("toolName") or "tool")
    return kind.removeprefix("tool-") if isinstance(kind, str) and kind.startswith("tool-") else ""


def _decoded(message: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
