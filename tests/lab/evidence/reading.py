"""The texts of a message, by who wrote them, in the four formats of the recorded runs.

Reasoning is left out: providers do not promise to show it to the model again, and much of it is encrypted. So are
system messages' texts wherever evidence is looked for: they are kept by every strategy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

ANTHROPIC, CHAT = "anthropic_messages", "openai_chat"
RESPONSES, GEMINI = "openai_responses", "gemini_contents"


class Kind(StrEnum):
    """Who wrote a text."""

    SYSTEM = "system"
    USER = "user"
    RESULT = "result"
    TEXT = "text"
    """The model, in words."""
    ARGUMENTS = "arguments"
    """The model, as a string leaf of a call's arguments."""


SOURCES = frozenset({Kind.USER, Kind.RESULT})
"""Kinds that the model did not write itself."""


class Text(NamedTuple):
    """One text of a message."""

    kind: Kind
    text: str


def texts_of(format: str, message: Any) -> list[Text]:
    """Return the texts of a decoded message; what cannot be read is absent."""
    return list(_READERS[format](message)) if isinstance(message, Mapping) else []


def leaves(value: object) -> Iterator[str]:
    """The strings of a JSON value, keys not included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text without the spaces around them, blank ones left out."""
    return (line for part in text.split("\n") if (line := part.strip()))


def _anthropic(message: Mapping[str, Any]) -> Iterator[Text]:
    role, content = message.get("role"), message.get("content")
    spoken = _spoken(role)
    if isinstance(content, str):
        yield Text(spoken, content)
        return
    for block in _mappings(content):
        kind = block.get("type")
        if kind == "text":
            yield from _several(spoken, [block.get("text")])
        elif kind == "tool_use":
            yield from _several(Kind.ARGUMENTS, leaves(block.get("input")))
        elif kind == "tool_result":
            yield from _several(Kind.RESULT, _content(block.get("content")))


def _chat(message: Mapping[str, Any]) -> Iterator[Text]:
    role = message.get("role")
    kind = Kind.RESULT if role in {"tool", "function"} else _spoken(role)
    yield from _several(kind, _content(message.get("content")))
    for call in _mappings(message.get("tool_calls")):
        function = call.get("function")
        yield from _arguments(function.get("arguments") if isinstance(function, Mapping) else None)


def _responses(item: Mapping[str, Any]) -> Iterator[Text]:
    kind = str(item.get("type") or "message")
    if kind == "message":
        yield from _several(_spoken(item.get("role")), _content(item.get("content")))
    elif kind == "function_call":
        yield from _arguments(item.get("arguments"))
    elif kind.endswith("_call"):
        yield from _several(Kind.ARGUMENTS, leaves(item.get("input")))
        yield from _several(Kind.ARGUMENTS, leaves(item.get("action")))
    elif kind.endswith("_output"):
        yield from _several(Kind.RESULT, _content(item.get("output")))


def _gemini(content: Mapping[str, Any]) -> Iterator[Text]:
    spoken = Kind.TEXT if content.get("role") == "model" else Kind.USER
    for part in _mappings(content.get("parts")):
        if not part.get("thought"):
            yield from _several(spoken, [part.get("text")])
        call = part.get("functionCall") or part.get("function_call") or {}
        yield from _several(Kind.ARGUMENTS, leaves(call.get("args")))
        response = part.get("functionResponse") or part.get("function_response") or {}
        yield from _several(Kind.RESULT, leaves(response.get("response")))


def _spoken(role: object) -> Kind:
    if role in {"system", "developer"}:
        return Kind.SYSTEM
    return Kind.TEXT if role in {"assistant", "model"} else Kind.USER


def _content(content: object) -> Iterator[Any]:
    if isinstance(content, str):
        yield content
    for block in _mappings(content):
        yield block.get("text")


def _arguments(raw: object) -> Iterator[Text]:
    value = raw
    if isinstance(raw, str):
        try:
            value = json.loads(raw)
        except ValueError:
            value = raw
    return _several(Kind.ARGUMENTS, leaves(value))


def _several(kind: Kind, texts: Iterable[Any]) -> Iterator[Text]:
    return (Text(kind, text) for text in texts if isinstance(text, str) and text)


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Text]]] = {
    ANTHROPIC: _anthropic,
    CHAT: _chat,
    RESPONSES: _responses,
    GEMINI: _gemini,
}
