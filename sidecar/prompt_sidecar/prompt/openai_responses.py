"""OpenAI's Responses API.

The history is the array `input`: each item of it is a message here. Items are messages, whose type is optional, calls
and outputs with a `call_id`, and items that the provider produced: reasoning, searches, generated images. Consecutive
items of the model are one block, so reasoning is dropped together with the items that need it ("Item 'fc_…' of type
'function_call' was provided without its required 'reasoning' item"). The provider relates items by their ids: where the
client keeps the history (`store: false`) and no item has an id, reasoning of finished turns may be removed alone. Items
that offer tools (`additional_tools`) stay, as system messages do. Items of unknown kinds are treated as the model's and
never edited. A plain string in place of the array is one user message.

The model always sees name and description of deferred tools (`defer_loading`), or those of their namespace; the rest of
a definition is in the `tool_search_output` that has loaded it, whose iteration stays.

Where our own text is placed depends on what the provider stores. With `store: false` and no earlier response to
continue, the whole history is in the body, and our text is added to it as developer messages. Otherwise these would be
stored, and permanently returned with `previous_response_id` or `conversation`; `instructions` apply to one response
only. Then only the body is trimmed: outputs without a call, which the provider has, are valid, and stored content is
not counted.

Source: the provider's API reference, responses, create, and its pages on reasoning, conversation state, compaction and
tool search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.ambiguous import tolerant
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.cache_marks import CacheMarks
from prompt_sidecar.prompt.format import Compaction, DeferredTools, Format, Placement, ReasoningRule, Replacement
from prompt_sidecar.prompt.gathering import Gathering, each_object, identity_of
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role, text_kind
from prompt_sidecar.prompt.jsontext import ValuesByPath, canonical, identity, load, load_again, splice
from prompt_sidecar.prompt.parts import originals_at, string, text_in_place, without_mark
from prompt_sidecar.prompt.system_member import string_member
from prompt_sidecar.providers.caching import caches_at_breakpoints, is_of_openai
from prompt_sidecar.providers.openai_responses import ADDITIONAL_TOOLS, COMPACTIONS

_ROLES: Final[Mapping[str, Role]] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}
_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text"})
_MEDIA: Final = frozenset({"computer_call_output", "image_generation_call"})
_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "namespace", "arguments", "status"}),
    "custom_tool_call": frozenset({"type", "id", "call_id", "name", "namespace", "input", "status"}),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "custom_tool_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "local_shell_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "apply_patch_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "shell_call_output": frozenset({"type", "id", "call_id", "output", "status", "max_output_length"}),
    "reasoning": frozenset({"type", "id", "encrypted_content", "summary", "content", "status"}),
}
"""Items whose members are read; their other members, and all other items, are counted as JSON."""
_ARGUMENTS: Final[Mapping[str, str]] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Calls with arguments that can be clipped: JSON in a string, and free text."""
_POINTERS: Final = ("annotations", "logprobs")
"""Members of a text part that refer to offsets in its text, which is therefore never edited."""
_STREAMS: Final = ("stdout", "stderr")
_LOADED: Final = "tool_search_output"
"""An item with the definitions of the tools that a search has loaded."""
_FINAL: Final = "compaction_trigger"
"""An item that requests a compaction of the history: "Must be the final input item"."""


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one item; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    value = load(raw, field) if identify else load_again(raw)
    if type(value) is str:
        items = (Item(text_kind(Role.USER, value), (), value),)
        return Message(Role.USER, items, identity(_comparable(_of_user(value))) if identify else b"")
    if type(value) is not dict:
        raise InvalidJson(f"{field} must be an object", field=field)
    kind = _kind_of(value, field)
    reader = _Reader(value, kind, _role_of(value, kind))
    reader.read(field)
    seen = value | {"tools": _seen(value.get("tools"))} if kind == ADDITIONAL_TOOLS else value
    reader.rest(seen, reader.known)
    message = reader.message(
        identity_of(value, _comparable, identify=identify),
        media=int(kind in _MEDIA),
        identified=reader.role is Role.ASSISTANT and type(value.get("id")) is str,
        final=kind == _FINAL,
    )
    return message._replace(in_force=True) if kind == _LOADED and value.get("tools") else message


def _kind_of(value: dict[str, Any], field: str) -> str:
    kind = value.get("type")
    if kind is None and "role" in value:
        if type(value["role"]) is not str:
            raise InvalidJson(f"{field}.role must be a string", field=f"{field}.role")
        return "message"
    if kind is None and type(value.get("id")) is str:
        return "item_reference"
    if type(kind) is not str:
        raise InvalidJson(f"{field}.type must be a string, or {field}.role", field=f"{field}.type")
    return kind


def _role_of(value: dict[str, Any], kind: str) -> Role:
    role = value.get("role")
    if kind == "message":
        return _ROLES.get(string(role), Role.OTHER)
    if kind == ADDITIONAL_TOOLS:
        return Role.SYSTEM
    if "compaction" in kind:
        return Role.OTHER  # it replaces everything before the history, so it is kept
    if _answers(value, kind):
        return Role.TOOL
    return _ROLES.get(string(role), Role.ASSISTANT)


def _calls(value: dict[str, Any], kind: str) -> tuple[str, ...]:
    """Return pairing ids of calls that the client answers; tools that the provider runs have none."""
    if kind == "mcp_approval_request":
        return (f"approval:{string(value.get('id'))}",)
    call_id = value.get("call_id")
    if kind in _ARGUMENTS:
        return (string(call_id),)
    client = kind.endswith("_call") and value.get("execution") != "server"
    return (call_id,) if client and type(call_id) is str else ()


def _answers(value: dict[str, Any], kind: str) -> tuple[str, ...]:
    if kind == "mcp_approval_response":
        return (f"approval:{string(value.get('approval_request_id'))}",)
    call_id = value.get("call_id")
    if call_id is None and kind == "local_shell_call_output":
        call_id = value.get("id")
    if kind in _KNOWN and kind.endswith("_output"):
        return (string(call_id),)
    client = kind.endswith("_output") and value.get("execution") != "server"
    return (call_id,) if client and type(call_id) is str else ()


class _Reader(Gathering):
    """Gathers the contents of one item."""

    def __init__(self, value: dict[str, Any], kind: str, role: Role) -> None:
        super().__init__(role)
        self.value = value
        self.kind = kind
        self.known = _KNOWN.get(kind, frozenset())
        self.calls += _calls(value, kind)
        self.answers += _answers(value, kind)
        self.call_id = next(iter((*self.calls, *self.answers)), "")

    def is_opaque(self) -> bool:
        """See `Gathering`.

        Reasoning is one item with all its members, such as Codex's `metadata`: nothing else is left.
        """
        return not self.items or (bool(self.other) and self.kind != "reasoning")

    def read(self, field: str) -> None:
        """Read the item by its kind."""
        name = "content" if self.kind == "message" else "output"
        if self.kind in COMPACTIONS and self.value.get("encrypted_content") is not None:
            seen = {name: self.value[name] for name in self.value if name != "encrypted_content"}
            self.known = frozenset(self.value)
            self.compaction(seen, string(self.value["encrypted_content"]), drops=False)
        elif self.kind in _ARGUMENTS:
            self._call(field)
        elif self.kind == "shell_call_output":
            self._streams(field)
        elif self.kind == "reasoning":
            self._reasoning()
        elif self.kind in _KNOWN and self.value.get(name) is not None:
            self.content(self.value[name], field, name)

    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Read one part."""
        del field
        kind = string(part.get("type"))
        if kind in _TEXT_PARTS and type(part.get("text")) is str:
            pointers = {name: part[name] for name in _POINTERS if part.get(name)}
            if pointers:
                self.other.append(canonical(pointers).decode())
            self.text(part["text"], (*path, "text"), fixed=bool(pointers))
        elif kind == "input_image":
            result = 0 if self.role is Role.TOOL else -1
            text = canonical(without_mark(part)).decode()
            self.items.append(Item(ItemKind.IMAGE, path, text, raw_json=True, call_id=self.call_id, result=result))
        else:
            self.other.append(canonical(without_mark(part)).decode())

    def text(self, text: str, path: Path, *, fixed: bool = False) -> None:
        """Add a text, which is a result except in a message."""
        if text and self.kind == "message":
            self.items.append(Item(text_kind(self.role, text), path, text, fixed=fixed))
        elif text:
            self.items.append(Item(ItemKind.RESULT, path, text, call_id=self.call_id, result=0, fixed=fixed))

    def _call(self, field: str) -> None:
        name = _ARGUMENTS[self.kind]
        arguments = self.value.get(name)
        if type(arguments) is not str:
            raise InvalidJson(f"{field}.{name} must be a string", field=f"{field}.{name}")
        tool = string(self.value.get("name"))
        self.names += [tool, string(self.value.get("namespace"))]
        free = name == "input"
        self.items.append(Item(ItemKind.ARGUMENTS, (name,), arguments, call_id=self.call_id, tool=tool, free_text=free))

    def _reasoning(self) -> None:
        """Read a reasoning item: its encrypted content, and the readable parts of its summary and text."""
        texts = [
            ((name, index, "text"), string(part.get("text")))
            for name in ("summary", "content")
            for index, part in enumerate(_list(self.value.get(name)))
            if type(part) is dict
        ]
        self.reasoning((), string(self.value.get("encrypted_content")), texts)

    def _streams(self, field: str) -> None:
        """Read the output of a shell: the streams of each command, and how it ended."""
        for ran, at, _ in each_object(self.value.get("output"), ("output",), f"{field}.output"):
            for name in _STREAMS:
                self.text(string(ran.get(name)), (*at, name))


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the item with parts replaced. Raises nothing for one that `read` accepted."""
    values = ValuesByPath(raw)
    return splice(raw, {item.path: _value(values, item, text) for item, text in replacements.items()})


def _value(values: ValuesByPath, item: Item, text: Replacement) -> bytes:
    if item.kind is ItemKind.IMAGE:
        return text_in_place(values.at(item.path), text or "", "input_text")
    if item.kind is ItemKind.ARGUMENTS and not item.free_text:
        return orjson.dumps(text or "{}")
    return orjson.dumps(text or "")


def developer_message(text: str) -> bytes:
    """Return a developer message."""
    return orjson.dumps({"type": "message", "role": "developer", "content": text})


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a tool's definition, a member of `tools`. It is not strict: arguments may be omitted."""
    return orjson.dumps(
        {
            "type": "function",
            "name": name,
            "description": description,
            "parameters": orjson.Fragment(parameters),
            "strict": False,
        }
    )


def _seen(tools: Any) -> Any:
    """Return what the model sees of tools from the start; of deferred ones the name or that of their namespace."""
    return [_seen_of(tool) for tool in tools] if type(tools) is list else tools


def _seen_of(tool: Any) -> Any:
    if type(tool) is not dict:
        return tool
    if _is_deferred(tool) and tool.get("type") == "function":
        return {name: tool[name] for name in ("type", "name", "description") if name in tool}
    if tool.get("type") == "namespace":
        return tool | {"tools": [each for each in _list(tool.get("tools")) if not _is_deferred(each)]}
    return tool


def _is_deferred(tool: Any) -> bool:
    return type(tool) is dict and tool.get("defer_loading") is True


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _of_user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the item without cache marks, null members and empty lists, and with its content as parts."""
    kept = {name: member for name, member in value.items() if member is not None}
    if "role" in kept and kept.get("type") in {None, "message"}:
        kept["type"] = "message"
        kind = "output_text" if kept["role"] == "assistant" else "input_text"
        kept["content"] = _parts(kept.get("content"), kind)
    if type(kept.get("output")) is list:
        kept["output"] = [without_mark(part) for part in kept["output"]]
    return kept


def _parts(content: Any, kind: str) -> Any:
    if type(content) is str:
        return [{"type": kind, "text": content}]
    if type(content) is not list:
        return content
    return [
        {name: member for name, member in part.items() if member is not None and member != []}
        if type(part) is dict
        else part
        for part in map(without_mark, content)
    ]


def variant(body: Split, _: str = "") -> Format:
    """Return the variant for a body: our text may be placed in the history unless the provider stores its items."""
    continues = any(body.field(name) not in {None, b"null"} for name in ("previous_response_id", "conversation"))
    kept_by_client = body.field("store") == b"false" and not continues
    return _UNSTORED if kept_by_client and not body.is_text else FORMAT


_MARKS: Final = CacheMarks(
    name="prompt_cache_breakpoint",
    value=b'{"mode":"explicit"}',
    as_block=False,
    text=b'{"type":"input_text","text":',
    roles=frozenset({"system", "developer", "user"}),
    at_newest=False,
    leads=frozenset({"system", "developer"}),
    places_itself=("prompt_cache_options",),
    takes=caches_at_breakpoints,
)
FORMAT: Final = tolerant(
    Format(
        name="openai_responses",
        read=read,
        write=write,
        originals=originals_at,
        tool=tool,
        leading_system=True,
        system=string_member("instructions"),
        messages_field="input",
        text_message=True,
        tool_fields=("tools", "text.format"),
        deferred=DeferredTools(_seen, lambda _: {}),
        reserve_fields=("max_output_tokens",),
        variant=variant,
        reasoning=ReasoningRule.KEPT,
        reasoning_messages=True,
        compaction=Compaction.READS,
        cache_marks=_MARKS,
        cache_key="prompt_cache_key",
        takes_cache_key=is_of_openai,
    )
)
_UNSTORED: Final = replace(FORMAT, placement=Placement.inside(developer_message), reasoning=ReasoningRule.CLOSED_TURNS)
