"""Detecting the format of a message, to report a wrong `json.format` to the agent.

A history of another format is mostly JSON of an accepted shape: its calls and results are unknown blocks, which are
kept unchanged, and the prompt never gets smaller. So a message is rejected if it *is* of another format: if it has a
call, a result or parts in a form that only that format has, with all required members. Unknown blocks have no such form
and are accepted. Content that several formats share, such as a plain text, decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import InvalidJson, TooLarge, WrongFormat
from prompt_sidecar.prompt.readable import readable
from prompt_sidecar.prompt.structure import check_decoding

CHAT: Final = "openai_chat"
RESPONSES: Final = "openai_responses"
ANTHROPIC: Final = "anthropic_messages"
GEMINI: Final = "gemini_contents"
BEDROCK: Final = "bedrock_converse"
AI_SDK: Final = "ai_sdk"
MCP: Final = "mcp_tool_result"

HINT_BYTES: Final = 4_194_304
"""Most bytes of a rejected body whose format is detected; a larger one is rejected without a hint."""
_MESSAGES_LOOKED_AT: Final = 64
"""Messages of a rejected body that are examined: an agent calls a tool within its first messages."""

_MARKS: Final[Mapping[str, tuple[bytes, ...]]] = {
    CHAT: (b'"tool_calls"', b'"tool_call_id"'),
    RESPONSES: (b'"call_id"',),
    ANTHROPIC: (b'"tool_use"', b'"tool_result"'),
    GEMINI: (b'"parts"',),
    BEDROCK: (b'"toolUse"', b'"toolResult"'),
    AI_SDK: (b'"tool-call"', b'"tool-result"'),
}
"""Bytes that a message of a format contains: without those of another format, nothing is decoded."""
_MCP_BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
"""Types of blocks in a tool's result (modelcontextprotocol.io, schema 2025-06-18, `ContentBlock`)."""
_FOREIGN: Final = {
    named: re.compile(b"|".join(re.escape(mark) for other, marks in _MARKS.items() if other != named for mark in marks))
    for named in _MARKS
}
"""For each format the marks of all others. One expression finds them thirty times as fast as separate searches."""
_PARTS: Final = re.compile(rb'"parts"')
_AT_ONCE: Final = 1_048_576
"""Bytes that are searched at once, so that other threads can run in between."""
_LONGEST: Final = max(len(mark) for marks in _MARKS.values() for mark in marks)
_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


def check_message(raw: bytes | memoryview, named: str, field: str) -> None:
    """Reject a message of another format that the reader of the format `named` has accepted.

    Raises:
        WrongFormat: it is of another format, which the error names.
        InvalidJson: it is of one of several other formats.
    """
    foreign = _FOREIGN.get(named)
    if foreign is None:
        return
    without_parts = named == GEMINI and not _holds(raw, _PARTS)
    if not without_parts and not _holds(raw, foreign):
        return
    value = orjson.loads(readable(raw))
    if type(value) is not dict or _IS[named](value):
        return
    looks = message_format(value)
    if looks:
        raise wrong_format(field, named, looks)
    if without_parts and type(value.get("content")) in {str, list}:
        raise InvalidJson(f"{field} has content and no parts", field=field)


def _holds(raw: bytes | memoryview, marks: re.Pattern[bytes]) -> bool:
    starts = range(0, len(raw), _AT_ONCE)
    return any(marks.search(raw, start, start + _AT_ONCE + _LONGEST) is not None for start in starts)


def check_result(value: Mapping[str, Any]) -> None:
    """Reject a prompt that is sent as a single result. Raises WrongFormat."""
    if "content" in value or "structuredContent" in value:
        return
    for name, looks in (("contents", GEMINI), ("input", RESPONSES), ("messages", CHAT)):
        messages = value.get(name)
        if type(messages) is list:
            raise wrong_format("json.body", MCP, _of_messages(messages) or looks)


def message_format(value: Mapping[str, Any]) -> str:
    """Return the only format that a message can be in; empty if there are several, or no known one."""
    return next((name for name, is_one in _IS.items() if is_one(value)), "")


def likely_format(body: bytes, named: str) -> str:
    """Return the format that a body, which is invalid in `named`, looks like; empty if none."""
    if len(body) > HINT_BYTES:
        return ""
    try:
        check_decoding(body, "json.body")
        looks = _of_body(readable(body).strip())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, orjson.JSONDecodeError, TooLarge):
        return ""
    return "" if looks == named else looks


def format_by_members(members: Collection[str]) -> str:
    """Return the format of a body by the names of its members, as far as they show it."""
    if "contents" in members:
        return GEMINI
    if "input" in members:
        return RESPONSES
    if "inferenceConfig" in members or "toolConfig" in members:
        return BEDROCK
    return ANTHROPIC if "system" in members or "anthropic_version" in members else CHAT


def format_of_bare(messages: Iterable[Any]) -> str:
    """Return the format of messages without a body, by those with a `content`: blocks of tools are only Anthropic's."""
    kinds = (block.get("type") for message in messages if type(message) is dict for block in _blocks(message))
    return ANTHROPIC if any(kind in ("tool_use", "tool_result") for kind in kinds) else CHAT


def wrong_format(field: str, named: str, looks: str) -> WrongFormat:
    """Return the error with both formats."""
    return WrongFormat(
        f"{field} is not in the format {named.upper()}, which json.format says: it looks like {looks.upper()}",
        field="json.format",
    )


def _of_body(body: bytes) -> str:
    if body[:1] == b"[":
        return _of_slices(_raw_array.decode(body))
    members = _raw_object.decode(body)
    for name, usual in (("contents", GEMINI), ("messages", ""), ("input", RESPONSES)):
        if name in members:
            messages = bytes(members[name])
            found = _of_slices(_raw_array.decode(messages)) if messages[:1] == b"[" else ""
            return found or usual
    return MCP if "content" in members and bytes(members["content"])[:1] == b"[" else ""


def _of_slices(slices: Iterable[msgspec.Raw]) -> str:
    looked = [orjson.loads(bytes(raw)) for raw, _ in zip(slices, range(_MESSAGES_LOOKED_AT), strict=False)]
    return _of_messages(looked)


def _of_messages(messages: Iterable[Any]) -> str:
    """Return the format of the first message that can be in one only, else of a plain one."""
    found = [value for value in messages if type(value) is dict]
    certain = next((name for name in map(message_format, found) if name), "")
    if certain or not found:
        return certain
    if not all("role" in value for value in found):
        return _of_typed([value.get("type") for value in found if "role" not in value])
    blocks = [block for value in found for block in _blocks(value)]
    if blocks and all(len(block) == 1 and "text" in block for block in blocks):
        return BEDROCK
    return CHAT if all(type(value.get("content")) in {str, list} for value in found) else ""


def _of_typed(kinds: Sequence[Any]) -> str:
    """Return the format with elements of these types and no role: items of Responses, or a tool result's blocks."""
    if not all(type(kind) is str for kind in kinds):
        return ""
    return MCP if set(kinds) <= _MCP_BLOCKS else RESPONSES


def _blocks(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = value.get("content")
    return [block for block in content if type(block) is dict] if type(content) is list else []


def _text(value: Mapping[str, Any], *names: str) -> bool:
    return all(type(value.get(name)) is str for name in names)


def _is_chat(value: Mapping[str, Any]) -> bool:
    if value.get("role") == "tool":
        return _text(value, "tool_call_id") and type(value.get("content")) in {str, list}
    calls = value.get("tool_calls")
    return (
        value.get("role") == "assistant"
        and type(calls) is list
        and bool(calls)
        and all(type(call) is dict and type(call.get("function") or call.get("custom")) is dict for call in calls)
    )


def _is_responses(value: Mapping[str, Any]) -> bool:
    kind = value.get("type")
    if "role" in value or not _text(value, "type", "call_id"):
        return False
    return (kind == "function_call" and _text(value, "name", "arguments")) or (
        kind == "function_call_output" and "output" in value
    )


def _is_anthropic(value: Mapping[str, Any]) -> bool:
    return any(
        (block.get("type") == "tool_use" and _text(block, "id", "name") and "input" in block)
        or (block.get("type") == "tool_result" and _text(block, "tool_use_id"))
        for block in _blocks(value)
    )


def _is_gemini(value: Mapping[str, Any]) -> bool:
    parts = value.get("parts")
    if "content" in value or "type" in value or type(parts) is not list or not parts:
        return False
    # The AI SDK's UI messages have parts too, but with a type.
    return value.get("role") in (None, "user", "model", "function", "tool") and all(
        type(part) is dict and "type" not in part for part in parts
    )


def _is_bedrock(value: Mapping[str, Any]) -> bool:
    return any(
        "type" not in block and type(used := block.get(name)) is dict and _text(used, "toolUseId")
        for block in _blocks(value)
        for name in ("toolUse", "toolResult")
    )


def _is_ai_sdk(value: Mapping[str, Any]) -> bool:
    return any(
        block.get("type") in ("tool-call", "tool-result") and _text(block, "toolCallId", "toolName")
        for block in _blocks(value)
    )


_IS: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    CHAT: _is_chat,
    RESPONSES: _is_responses,
    ANTHROPIC: _is_anthropic,
    GEMINI: _is_gemini,
    BEDROCK: _is_bedrock,
    AI_SDK: _is_ai_sdk,
}
