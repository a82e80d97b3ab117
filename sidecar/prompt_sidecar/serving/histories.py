"""Where each format's request holds its history, who said an entry of it, and what an entry is known by.

Just enough to tell conversations apart and to find an answer again. The readers of `prompt/` know everything about a
format and are not needed for that.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.providers.untyped import member, objects, text_of
from prompt_sidecar.serving.members import Members, NotJson, each_element, elements, loads

_INTEGRAL: Final = re.compile(rb"(?<=\d)\.0+(?![\d.eE])")


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call of a tool in a history."""

    id: str
    """Empty: it has none."""
    name: str
    arguments: Any
    """JSON's types, or text of JSON; bytes: a digest of them."""

    @property
    def digest(self) -> bytes:
        """What its arguments are known by, however they are written."""
        given = self.arguments
        if isinstance(given, bytes):
            return given
        read = loads(given.encode("utf-8", "surrogatepass")) if isinstance(given, str) and given.strip() else given
        return bytes.fromhex(_arguments(read if read is not None else given))

    def digested(self) -> NamedCall:
        """Return the call with a digest in place of its arguments, as it is kept."""
        return replace(self, arguments=self.digest)


class History(ABC):
    """One format's history."""

    format: ClassVar[str]
    """Its name in `prompt_sidecar.prompt.formats`."""
    messages: ClassVar[str]
    """The member that holds the history."""
    system: ClassVar[tuple[str, ...]] = ()
    """The members that hold the system prompt, where it is not in the history."""
    answers_have_entries: ClassVar[bool] = False
    """Whether an answer of the model may be several entries."""

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
    def text(self, entry: Any) -> str | None:
        """What an entry says, without its calls; None: it is reasoning, which an agent may leave out."""

    @abstractmethod
    def calls(self, entry: Any) -> list[NamedCall]:
        """The calls of tools in an entry."""

    def gist(self, entry: Any) -> str | None:
        """What an entry is known by when an agent sends it back; None: it may be missing then, as reasoning."""
        said = self.text(entry)
        return None if said is None else gist_of(said, [(call.id, call.name) for call in self.calls(entry)])

    def item(self, entry: Any) -> str:  # noqa: ARG002 - of those that know entries by ids
        """The id by which a provider that stores entries knows one; empty: none."""
        return ""

    def referred(self, entry: Any) -> str:  # noqa: ARG002 - as above
        """The id of the stored entry that one stands for; empty: it stands for none."""
        return ""


def gist_of(text: str, calls: Sequence[tuple[Any, Any]]) -> str:
    """Return the gist of a text with calls, each an id and a name."""
    return "\x1f".join([text.strip(), *(f"{_label(call_id)}\x1e{_label(name)}" for call_id, name in calls)])


def _label(value: Any) -> Any:
    """An id or a name; an array or an object is none, and may be nested deeper than Python can show."""
    return "" if isinstance(value, list | dict) else value


def _named(call_id: Any, name: Any, arguments: Any) -> NamedCall:
    """A call, by what stands where its id and its name should be."""
    return NamedCall(call_id if isinstance(call_id, str) else "", name if isinstance(name, str) else "", arguments)


class ChatHistory(History):
    """OpenAI's chat completions."""

    format: ClassVar[str] = "openai_chat"
    messages: ClassVar[str] = "messages"

    def text(self, entry: Any) -> str | None:
        """A message's text."""
        return text_of(member(entry, "content"), "text")

    def calls(self, entry: Any) -> list[NamedCall]:
        """A message's calls, of functions and of tools that take a text."""
        found = []
        for each in objects(member(entry, "tool_calls")):
            held = each.get("function") or each.get("custom")
            found.append(
                _named(each.get("id"), member(held, "name"), member(held, "arguments") or member(held, "input"))
            )
        return found


class ResponsesHistory(History):
    """OpenAI's responses."""

    format: ClassVar[str] = "openai_responses"
    messages: ClassVar[str] = "input"
    system: ClassVar[tuple[str, ...]] = ("instructions",)
    answers_have_entries: ClassVar[bool] = True

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

    def text(self, entry: Any) -> str | None:
        """A message's text."""
        if member(entry, "role") is not None:
            return text_of(member(entry, "content"), "input_text", "output_text", "text")
        return None if member(entry, "type") == "reasoning" else ""

    def calls(self, entry: Any) -> list[NamedCall]:
        """A call, if it is one."""
        kind = member(entry, "type")
        if member(entry, "role") is not None or kind == "reasoning":
            return []
        called = member(entry, "arguments") if kind == "function_call" else member(entry, "input")
        return [_named(member(entry, "call_id") or member(entry, "id"), member(entry, "name") or kind, called)]

    def item(self, entry: Any) -> str:
        """An item's id."""
        found = member(entry, "id")
        return found if isinstance(found, str) else ""

    def referred(self, entry: Any) -> str:
        """The id in a reference, whose type may be left out."""
        is_reference = member(entry, "type") == "item_reference" or (isinstance(entry, dict) and entry.keys() == {"id"})
        return self.item(entry) if is_reference else ""


class AnthropicHistory(History):
    """Anthropic's messages."""

    format: ClassVar[str] = "anthropic_messages"
    messages: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ("system",)

    def text(self, entry: Any) -> str | None:
        """A message's text."""
        return text_of(member(entry, "content"), "text")

    def calls(self, entry: Any) -> list[NamedCall]:
        """A message's calls."""
        blocks = [each for each in objects(member(entry, "content")) if each.get("type") == "tool_use"]
        return [_named(each.get("id"), each.get("name"), each.get("input")) for each in blocks]


class GeminiHistory(History):
    """Gemini's contents."""

    format: ClassVar[str] = "gemini_contents"
    messages: ClassVar[str] = "contents"
    system: ClassVar[tuple[str, ...]] = ("systemInstruction", "system_instruction")
    answers_have_entries: ClassVar[bool] = True

    def speaker(self, entry: Any) -> str:
        """Who a content is from; one without a role is the user's."""
        role = member(entry, "role")
        return "model" if role == "model" else "user" if role in (None, "user") else "other"

    def agent_tools(self, members: Members) -> list[bytes]:
        """The declarations of the agent's functions."""
        return [each for raw in elements(members.raw("tools")) for each in elements(declarations(raw)[1])]

    def text(self, entry: Any) -> str | None:
        """A content's text."""
        parts = parts_of(entry)
        return "".join(
            [each["text"] for each in parts if isinstance(each.get("text"), str) and not each.get("thought")]
        )

    def calls(self, entry: Any) -> list[NamedCall]:
        """A content's calls."""
        found = [call for each in parts_of(entry) if (call := call_of(each)) is not None]
        return [_named(call.get("id"), call.get("name"), call.get("args")) for call in found]

    def gist(self, entry: Any) -> str | None:
        """A content's text and calls, which are known by their arguments: agents may leave out an id, or have one."""
        calls = [call for each in parts_of(entry) if (call := call_of(each)) is not None]
        named = [(_arguments(call.get("args")), call.get("name")) for call in calls]
        return gist_of(self.text(entry) or "", named)


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

    def text(self, entry: Any) -> str | None:
        """A message's text."""
        blocks = objects(member(entry, "content"))
        return "".join([each["text"] for each in blocks if isinstance(each.get("text"), str)])

    def calls(self, entry: Any) -> list[NamedCall]:
        """A message's calls."""
        blocks = objects(member(entry, "content"))
        found = [each["toolUse"] for each in blocks if isinstance(each.get("toolUse"), dict)]
        return [_named(call.get("toolUseId"), call.get("name"), call.get("input")) for call in found]


HISTORIES: Final[Mapping[str, History]] = {
    each.format: each
    for each in (ChatHistory(), ResponsesHistory(), AnthropicHistory(), GeminiHistory(), ConverseHistory())
}
"""By format."""
