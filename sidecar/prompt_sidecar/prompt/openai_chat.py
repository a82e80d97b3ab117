"""OpenAI's Chat Completions API, which many other services implement.

A message is `{"role", "content", …}`. Content is a string or an array of parts; an assistant's `tool_calls` hold their
arguments as a string of JSON, or for a custom tool its input as free text; a tool's answer is a message of its own with
a `tool_call_id`. The deprecated `function_call` has no id: the function's answer has the function's name, and is paired
by name and order. Source: the provider's API reference, chat completions, create.

System messages may be anywhere, with three exceptions that depend on the body. Mistral's models accept them only before
all other messages. The first reasoning models accept none, so our text is returned to the agent. And in a body whose
first message is a developer message ours are too, as the guide on reasoning forbids mixing the two. Sources:
`mistral-common`, the provider's own checks of a request; the API's rejection of "system" and "developer" for o1-mini.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec
import orjson

from prompt_sidecar.prompt.ambiguous import tolerant
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.cache_marks import CacheMarks
from prompt_sidecar.prompt.format import OUTSIDE, Format, Placement, ReasoningRule, Replacement
from prompt_sidecar.prompt.gathering import Gathering, each_object, identity_of, loaded, role_of, without_reasoning
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role, pairing_id, text_kind
from prompt_sidecar.prompt.jsontext import ValuesByPath, canonical, load_again, splice
from prompt_sidecar.prompt.parts import originals_at, string, text_in_place, without_mark
from prompt_sidecar.providers.caching import caches_at_breakpoints, is_of_openai
from prompt_sidecar.providers.messages import CACHE_MARKS

_ROLES: Final[Mapping[str, Role]] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_ARGUMENTS: Final[Mapping[str, str]] = {"function": "arguments", "custom": "input"}
"""Kinds of calls, with the member for the arguments: a function's JSON, a custom tool's free text."""
_ONLY_LEADING: Final = re.compile(r"(?i)\b(?:mistral|mixtral|ministral|magistral|codestral|devstral|pixtral|voxtral)")
_NO_SYSTEM: Final = re.compile(r"\bo1-(?:mini|preview)\b")
_KNOWN: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "function_call", *CACHE_MARKS})
_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""Members that vendors with this format use for reasoning; the last holds parts, signed or encrypted."""
_KNOWN_OF_MODEL: Final = _KNOWN | frozenset(_REASONING)


class _Role(msgspec.Struct):
    """The role of a message; other members are skipped."""

    role: object = None


_role_of: Final = msgspec.json.Decoder(_Role)


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    value = loaded(raw, field, identify=identify)
    role = role_of(value, field, _ROLES)
    name = str(value.get("name") or "")
    call_id = pairing_id("", name) if value["role"] == "function" else string(value.get("tool_call_id"))
    reader = _Reader(role, call_id, name)
    if value.get("content") is not None:
        reader.content(value["content"], field)
    reader.calls_of(value.get("tool_calls"), value.get("function_call"), field)
    if role is Role.ASSISTANT:
        reader.reasoning_of(value)
    reader.rest(value, _KNOWN_OF_MODEL if role is Role.ASSISTANT else _KNOWN)
    return reader.message(identity_of(value, _comparable, identify=identify))


class _Reader(Gathering):
    """Gathers the items of one message in order."""

    takes: ClassVar[str] = "a string, an array or null"

    def __init__(self, role: Role, call_id: str, name: str) -> None:
        super().__init__(role)
        self.call_id = call_id
        self.names += [name] if name else []
        self.answers += [call_id] if role is Role.TOOL else []

    def reasoning_of(self, value: dict[str, Any]) -> None:
        """Read the members that vendors use for reasoning: texts, and signed or encrypted parts."""
        for name in _REASONING:
            text = value.get(name)
            if type(text) is str:
                self.reasoning((name,), "", [((name,), text)])
            elif text is not None:
                parts = [part for part in text if type(part) is dict] if type(text) is list else []
                encrypted = "".join(string(part.get(member)) for part in parts for member in ("signature", "data"))
                self.reasoning((name,), encrypted)

    def text(self, text: str, path: Path, *, fixed: bool = False) -> None:
        """Add a text, which is a result in an answer of a tool."""
        if text and self.role is not Role.TOOL:
            self.items.append(Item(text_kind(self.role, text), path, text, fixed=fixed))
        elif text:
            tool = self.names[0] if self.names else ""
            self.items.append(Item(ItemKind.RESULT, path, text, call_id=self.call_id, tool=tool, result=0))

    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Read one part."""
        del field
        kind = part.get("type")
        if kind == "text" and type(part.get("text")) is str:
            self.text(part["text"], (*path, "text"))
        elif kind == "image_url":
            result = 0 if self.role is Role.TOOL else -1
            text = canonical(without_mark(part)).decode()
            self.items.append(Item(ItemKind.IMAGE, path, text, raw_json=True, call_id=self.call_id, result=result))
        else:
            self.other.append(canonical(without_mark(part)).decode())

    def calls_of(self, tool_calls: Any, function_call: Any, field: str) -> None:
        given = [] if tool_calls is None else tool_calls
        for call, at, _ in each_object(given, ("tool_calls",), f"{field}.tool_calls"):
            call_id = string(call.get("id"))
            self.calls.append(call_id)
            known = any(self._call(call, kind, call_id, at) for kind in _ARGUMENTS)
            if not known:
                self.other.append(canonical(call).decode())
        if function_call is not None:
            name = string(function_call.get("name")) if type(function_call) is dict else ""
            call_id = pairing_id("", name)
            self.calls.append(call_id)
            if not self._call({"function": function_call}, "function", call_id, ()):
                self.other.append(canonical(function_call).decode())

    def _call(self, call: dict[str, Any], kind: str, call_id: str, path: Path) -> bool:
        """Read a call of one kind; False if it is of another kind or of an unknown shape."""
        called, member = call.get(kind), _ARGUMENTS[kind]
        if type(called) is not dict or type(called.get(member)) is not str:
            return False
        name = string(called.get("name"))
        self.names.append(name)
        at = (*path, kind, member) if path else ("function_call", member)
        free = kind == "custom"
        self.items.append(Item(ItemKind.ARGUMENTS, at, called[member], call_id=call_id, tool=name, free_text=free))
        return True


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced. Raises nothing for a message that `read` accepted."""
    removed, others, label = without_reasoning(replacements)
    values = ValuesByPath(raw)
    edits = removed | {item.path: _value(values, item, text) for item, text in others.items()}
    if removed:
        value = load_again(raw)
        if not any(value.get(name) for name in ("content", "tool_calls", "function_call")):  # it must have content
            if "content" not in value:
                return splice(raw, edits)[:-1] + b',"content":' + orjson.dumps(label) + b"}"
            edits["content",] = orjson.dumps(label)
    return splice(raw, edits)


def _value(values: ValuesByPath, item: Item, text: Replacement) -> bytes:
    if item.kind is ItemKind.IMAGE:
        return text_in_place(values.at(item.path), text or "")
    if item.kind is ItemKind.ARGUMENTS and not item.free_text:
        return orjson.dumps(text or "{}")
    return orjson.dumps(text or "")


def system_message(text: str) -> bytes:
    """Return a system message."""
    return orjson.dumps({"role": "system", "content": text})


def developer_message(text: str) -> bytes:
    """Return a developer message, the system message of reasoning models."""
    return orjson.dumps({"role": "developer", "content": text})


def variant(body: Split, model: str = "") -> Format:
    """Return the variant for a body: where our own text may be placed depends on the model and the first message."""
    if _ONLY_LEADING.search(model) is not None:
        return _LEADING
    if _NO_SYSTEM.search(model) is not None:
        return _WITHOUT
    return _DEVELOPER if _is_developers(body.message(0)) else FORMAT


def _is_developers(raw: bytes) -> bool:
    if b'"developer"' not in raw:
        return False
    try:
        return _role_of.decode(raw).role == "developer"
    except msgspec.DecodeError:  # not a message; reading it raises the error
        return False


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a tool's definition, a member of `tools`."""
    function = {"name": name, "description": description, "parameters": orjson.Fragment(parameters)}
    return orjson.dumps({"type": "function", "function": function})


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the message without cache marks, which move between calls, and without null members."""
    kept = {name: member for name, member in value.items() if member is not None and name not in CACHE_MARKS}
    content = kept.get("content")
    if type(content) is str:  # a client may turn it into one part to mark it
        kept["content"] = [{"type": "text", "text": content}]
    if type(content) is list:
        kept["content"] = [without_mark(part) for part in content]
    return kept


_MARKS: Final = CacheMarks(
    name="prompt_cache_breakpoint",
    value=b'{"mode":"explicit"}',
    as_block=False,
    text=b'{"type":"text","text":',
    roles=frozenset({"system", "developer", "user", "tool"}),
    at_newest=False,
    leads=frozenset({"system", "developer"}),
    places_itself=("prompt_cache_options",),
    takes=caches_at_breakpoints,
)
_BASE: Final = tolerant(
    Format(
        name="openai_chat",
        read=read,
        write=write,
        originals=originals_at,
        placement=Placement.inside(system_message),
        tool=tool,
        leading_system=True,
        tool_fields=("tools", "functions", "response_format"),
        reserve_fields=("max_completion_tokens", "max_tokens"),
        variant=variant,
        cache_marks=_MARKS,
        cache_key="prompt_cache_key",
        takes_cache_key=is_of_openai,
    )
)
_BOUND: Final = replace(_BASE, placement=Placement.leading(system_message), reasoning=ReasoningRule.BOUND)
"""For models behind a gateway that bind thinking to the prompt before it. How the gateway converts a system message
inside the history is not known, so none is written there."""
FORMAT: Final = replace(_BASE, bound=_BOUND)
_LEADING: Final = replace(FORMAT, placement=Placement.leading(system_message))
_WITHOUT: Final = replace(FORMAT, placement=OUTSIDE)
_DEVELOPER: Final = replace(FORMAT, placement=Placement.inside(developer_message))
