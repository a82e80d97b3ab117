"""What Gemini accepts of a generateContent body, by its guides and by what its errors say.

Its rules: a turn that calls functions comes right after a user's turn or after function responses, and what follows it
answers each of its calls; a content has parts, a part has data; arguments and responses are objects; a function
response's media are of a few types. Contents of one role in a row are one turn. Source: the API reference of Content,
the guides on function calling and thought signatures, and the texts of 400s that issues quote.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.case import INVENTED, Case
from tests.conformance.gemini_contents_history import history

MEDIA_IN_RESPONSES = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
"""Types of media that a function response may hold; the guide on function calling, multimodal function responses."""

_MODES = frozenset({"MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"})
_ROLES = {None: "user", "user": "user", "function": "user", "tool": "user", "model": "model"}
_BESIDE_DATA = frozenset({"thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata"})


def defects(body: Mapping[str, Any]) -> list[str]:
    """Say what the provider would refuse; nothing of a body that it takes."""
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        return ["contents is no array of contents"]
    found = list(_around(body))
    for index, content in enumerate(contents):
        found += _content(content, f"contents[{index}]")
    return found or list(_turns(contents))


def member(value: Mapping[str, Any], camel: str) -> Any:
    """A member in either spelling; None if there is none."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)
    return value.get(snake) if value.get(camel) is None else value[camel]


def parts_of(content: Mapping[str, Any]) -> list[Any]:
    """The parts of a content, also where one stands in place of an array."""
    parts = content.get("parts")
    return parts if isinstance(parts, list) else [] if parts is None else [parts]


def _around(body: Mapping[str, Any]) -> Iterator[str]:
    system = member(body, "systemInstruction")
    if system is not None and not (isinstance(system, Mapping) and parts_of(system)):
        yield "systemInstruction has no parts"
    if system is not None and member(body, "cachedContent"):
        yield "systemInstruction beside cachedContent"
    yield from _calling(body)


def _calling(body: Mapping[str, Any]) -> Iterator[str]:
    """Functions that are allowed by name are declared, and the mode is one that takes them (FunctionCallingConfig)."""
    configuration = member(body, "toolConfig")
    calling = member(configuration, "functionCallingConfig") if isinstance(configuration, Mapping) else None
    if not isinstance(calling, Mapping):
        return
    allowed, mode = member(calling, "allowedFunctionNames") or [], str(calling.get("mode") or "AUTO").upper()
    if mode not in _MODES:
        yield f"{mode} is no mode of calling"
    if allowed and mode not in {"ANY", "VALIDATED"}:
        yield f"functions are allowed by name under {mode}"
    tools = [tool for tool in member(body, "tools") or [] if isinstance(tool, Mapping)]
    declared = {each.get("name") for tool in tools for each in member(tool, "functionDeclarations") or []}
    yield from (f"{name} is allowed and not declared" for name in allowed if name not in declared)


def _content(content: Any, where: str) -> list[str]:
    if not isinstance(content, Mapping):
        return [f"{where} is no object"]
    if content.get("role") not in _ROLES:
        return [f"{where}.role is none"]
    parts = parts_of(content)
    if not parts:
        return [f"{where}.parts is empty"]
    found: list[str] = []
    for index, part in enumerate(parts):
        found += _part(part, f"{where}.parts[{index}]")
    return found


def _part(part: Any, where: str) -> Iterator[str]:
    if not isinstance(part, Mapping):
        yield f"{where} is no object"
        return
    if not any(value is not None for name, value in part.items() if name not in _BESIDE_DATA):
        yield f"{where} has no data"
    text = part.get("text")
    if text is not None and not isinstance(text, str):
        yield f"{where}.text is no string"
    call, response = member(part, "functionCall"), member(part, "functionResponse")
    if call is not None and not (call.get("name") and isinstance(call.get("args", {}), Mapping)):
        yield f"{where}.functionCall has no name, or arguments that are no object"
    if response is not None:
        if not (response.get("name") and isinstance(response.get("response", {}), Mapping)):
            yield f"{where}.functionResponse has no name, or a response that is no object"
        for medium in parts_of(response):
            yield from _medium(medium, f"{where}.functionResponse.parts")
    inline = member(part, "inlineData")
    if inline is not None and not _base64(inline):
        yield f"{where}.inlineData is not base64"


def _medium(medium: Any, where: str) -> Iterator[str]:
    inline, file = member(medium, "inlineData"), member(medium, "fileData")
    if inline is None and file is None:
        if INVENTED not in medium:
            yield f"{where}: no medium"
        return
    if member(file if inline is None else inline, "mimeType") not in MEDIA_IN_RESPONSES:
        yield f"{where}: a type that no function response may hold"
    if inline is not None and not _base64(inline):
        yield f"{where}: not base64"


def _base64(inline: Mapping[str, Any]) -> bool:
    data = inline.get("data")
    if not isinstance(data, str):
        return False
    try:
        base64.b64decode(data.replace("-", "+").replace("_", "/") + "=" * (-len(data) % 4), validate=True)
    except binascii.Error:
        return False
    return True


def _turns(contents: list[Any]) -> Iterator[str]:
    """What is wrong with calls and responses from turn to turn."""
    turns: list[tuple[str, list[Any]]] = []
    for content in contents:
        role = _ROLES[content.get("role")]
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(parts_of(content))
    open_calls: list[Mapping[str, Any]] = []
    for index, (role, parts) in enumerate(turns):
        calls = [call for part in parts if (call := member(part, "functionCall")) is not None]
        responses = [response for part in parts if (response := member(part, "functionResponse")) is not None]
        if role == "model":
            if calls and index == 0:
                yield "a turn of calls comes first"
            if responses:
                yield f"turn {index}: the model gives a function response"
        elif calls:
            yield f"turn {index}: the user calls a function"
        elif len(responses) != len(open_calls):
            yield f"turn {index}: {len(responses)} function responses to {len(open_calls)} calls"
        else:
            yield from _paired(open_calls, responses, index)
        open_calls = calls


def _paired(calls: list[Mapping[str, Any]], responses: list[Mapping[str, Any]], turn: int) -> Iterator[str]:
    if Counter(call["name"] for call in calls) != Counter(response["name"] for response in responses):
        yield f"turn {turn}: responses of other functions than were called"
    ids = Counter(call["id"] for call in calls if call.get("id"))
    answered = Counter(response["id"] for response in responses if response.get("id"))
    if ids and answered and ids != answered:
        yield f"turn {turn}: responses to other calls than were made"


CASE = Case(
    format="gemini_contents",
    defects=defects,
    history=history,
    traffic="gemini",
    heads=(
        {},
        {"systemInstruction": {"parts": [{"text": "You are careful."}]}},
        {"system_instruction": {"parts": {"text": "You are careful."}}},
        {"cachedContent": "cachedContents/one"},
    ),
)
