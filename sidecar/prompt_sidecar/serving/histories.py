"""Where each format's request holds its history, who said an entry of it, and what an entry is known by.

Just enough to tell conversations apart and to find an answer again. The readers of `prompt/` know everything about a
format and are not needed for that.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.serving.members import Members, NotJson, each_element, elements
from prompt_sidecar.serving.untyped import member, objects, text_of

_INTEGRAL: Final = re.compile(rb"(?<=\d)\.0+(?![\d.eE])")


class History(ABC):
    """One format's history."""

    format: ClassVar[str]
    """Its name in `prompt_sidecar.prompt.formats`."""
    messages: ClassVar[str]
    """The member that holds the history."""
    system: ClassVar[tuple[str, ...]] = ()
    """The members that hold the system prompt, where it is not in the history."""

    def agent_tools(self, members: Members) -> list[bytes]:
        """The definitions of the agent's tools."""
        return elements(members.raw("tools")) if "tools" in members else []

    def entries(self, members: Members) -> Iterator[bytes]:
        """The history's entries. Those that are not asked for are not copied."""
        return each_element(members.raw(self.messages))

    def speaker(self, entry: Any) -> str:
        """Who an entry is from: `user`, `model`, or something else."""
        role = member(entry, "role")
        return "model" if role == "assistant" else "user" if role == "user" else "other"

    @abstractmethod
    def gist(self, entry: Any) -> str | None:
        """What an entry is known by when an agent sends it back; None: it may be missing then, as reasoning."""


def gist_of(text: str, calls: Sequence[tuple[Any, Any]]) -> str:
    """Return the gist of a text with calls, each an id and a name."""
    return "\x1f".join([text.strip(), *(f"{_label(call_id)}\x1e{_label(name)}" for call_id, name in calls)])


def _label(value: Any) -> Any:
    """An id or a name; an array or an object is none, and may be nested deeper than Python can show."""
    return "" if isinstance(value, list | dict) else value


class ChatHistory(History):
    """OpenAI's chat completions."""

    format: ClassVar[str] = "openai_chat"
    messages: ClassVar[str] = "messages"

    def gist(self, entry: Any) -> str | None:
        """A message's text and calls."""
        calls = objects(member(entry, "tool_calls"))
        named = [(each.get("id"), member(each, "function", "name")) for each in calls]
        return gist_of(text_of(member(entry, "content"), "text"), named)


class ResponsesHistory(History):
    """OpenAI's responses."""

    format: ClassVar[str] = "openai_responses"
    messages: ClassVar[str] = "input"
    system: ClassVar[tuple[str, ...]] = ("instructions",)

    def entries(self, members: Members) -> Iterator[bytes]:
        """The history's items; a string is a message of the user's."""
        raw = members.raw("input")
        return iter([b'{"role":"user","content":' + raw + b"}"]) if raw.lstrip()[:1] == b'"' else each_element(raw)

    def speaker(self, entry: Any) -> str:
        """Who an item is from; of those without a role, results are nobody's and all others the model's."""
        kind = member(entry, "type")
        if member(entry, "role") is not None:
            return super().speaker(entry)
        return "other" if isinstance(kind, str) and kind.endswith(("_output", "_response")) else "model"

    def gist(self, entry: Any) -> str | None:
        """A message's text, or a call."""
        kind = member(entry, "type")
        if kind == "reasoning":
            return None
        if member(entry, "role") is not None:
            return gist_of(text_of(member(entry, "content"), "input_text", "output_text", "text"), [])
        return gist_of("", [(member(entry, "call_id") or member(entry, "id"), member(entry, "name") or kind)])


class AnthropicHistory(History):
    """Anthropic's messages."""

    format: ClassVar[str] = "anthropic_messages"
    messages: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ("system",)

    def gist(self, entry: Any) -> str | None:
        """A message's text and calls."""
        content = member(entry, "content")
        calls = [(each.get("id"), each.get("name")) for each in objects(content) if each.get("type") == "tool_use"]
        return gist_of(text_of(content, "text"), calls)


class GeminiHistory(History):
    """Gemini's contents."""

    format: ClassVar[str] = "gemini_contents"
    messages: ClassVar[str] = "contents"
    system: ClassVar[tuple[str, ...]] = ("systemInstruction", "system_instruction")

    def speaker(self, entry: Any) -> str:
        """Who a content is from; one without a role is the user's."""
        role = member(entry, "role")
        return "model" if role == "model" else "user" if role in (None, "user") else "other"

    def agent_tools(self, members: Members) -> list[bytes]:
        """The declarations of the agent's functions."""
        return [each for raw in elements(members.raw("tools")) for each in elements(declarations(raw)[1])]

    def gist(self, entry: Any) -> str | None:
        """A content's text and calls, which are known by their arguments: agents may leave out an id, or have one."""
        parts = parts_of(entry)
        said = [each["text"] for each in parts if isinstance(each.get("text"), str) and not each.get("thought")]
        calls = [call for each in parts if (call := call_of(each)) is not None]
        return gist_of("".join(said), [(_arguments(call.get("args")), call.get("name")) for call in calls])


def parts_of(content: Any) -> list[dict[str, Any]]:
    """Return the parts of one of Gemini's contents, also where one stands in place of an array."""
    parts = member(content, "parts")
    return objects([parts] if isinstance(parts, dict) else parts)


def declarations(tool: bytes) -> tuple[str, bytes]:
    """Return the name and the value of the member of one of Gemini's tools that declares functions; empty: none."""
    try:
        members = Members(tool)
    except NotJson:
        return "", b""
    name = next((name for name in ("functionDeclarations", "function_declarations") if name in members), "")
    return name, members.raw(name)


def _arguments(value: Any) -> str:
    """A digest of a call's arguments, the same for `1` and `1.0`: some of Google's libraries know no integers."""
    try:
        text = orjson.dumps(value or {}, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # an integer beyond 64 bits, unless it is nested too deep
        try:
            text = orjson.dumps(orjson.loads(json.dumps(value)), option=orjson.OPT_SORT_KEYS)
        except (orjson.JSONEncodeError, ValueError, RecursionError):  # nested too deep
            return ""
    return blake2b(_INTEGRAL.sub(b"", text), digest_size=16).hexdigest()


def call_of(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the call in one of Gemini's parts; None: it is something else."""
    found = part.get("functionCall") or part.get("function_call")
    return found if isinstance(found, dict) else None


class ConverseHistory(History):
    """Bedrock's Converse."""

    format: ClassVar[str] = "bedrock_converse"
    messages: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ("system",)

    def agent_tools(self, members: Members) -> list[bytes]:
        """The definitions of the agent's tools."""
        try:
            configuration = Members(members.raw("toolConfig"))
        except NotJson:
            return []
        return [each for each in elements(configuration.raw("tools")) if each.lstrip()[:1] == b"{"]

    def gist(self, entry: Any) -> str | None:
        """A message's text and calls."""
        blocks = objects(member(entry, "content"))
        said = [each["text"] for each in blocks if isinstance(each.get("text"), str)]
        calls = [each["toolUse"] for each in blocks if isinstance(each.get("toolUse"), dict)]
        return gist_of("".join(said), [(call.get("toolUseId"), call.get("name")) for call in calls])


HISTORIES: Final[Mapping[str, History]] = {
    each.format: each
    for each in (ChatHistory(), ResponsesHistory(), AnthropicHistory(), GeminiHistory(), ConverseHistory())
}
"""By format."""
