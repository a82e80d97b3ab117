"""Amazon Bedrock's Converse API, one format for the models of many vendors.

A message is `{"role", "content"}` with an array of blocks, each an object whose one member is its kind. Calls are
`toolUse` blocks whose input is an object; results are `toolResult` blocks in the next user turn, with content of their
own: texts, JSON, media. The system prompt is a member of the body, an array of blocks; system messages in the history
are not allowed. Reasoning is signed: it is kept unchanged, or removed (`thinking.py`). A cache point is a block of its
own that moves from call to call, so it is not part of a message's identity. Source: the provider's API
reference, Converse, ContentBlock, ToolResultContentBlock, and its user guide on tool use and prompt caching.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.ambiguous import tolerant
from prompt_sidecar.prompt.anthropic_messages import CALL_TOKENS
from prompt_sidecar.prompt.cache_marks import CacheMarks
from prompt_sidecar.prompt.format import Format, ReasoningRule, Replacement
from prompt_sidecar.prompt.gathering import Gathering, each_object, identity_of, loaded, role_of, without_reasoning
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role
from prompt_sidecar.prompt.jsontext import array_length, canonical, splice
from prompt_sidecar.prompt.parts import originals_at, string
from prompt_sidecar.prompt.structured import result_items, result_value
from prompt_sidecar.prompt.system_member import add_block, block_member
from prompt_sidecar.providers.caching import takes_cache_points

_ROLES: Final[Mapping[str, Role]] = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_KNOWN: Final = frozenset({"role", "content"})
_KNOWN_OF_USE: Final = frozenset({"toolUseId", "name", "input"})
_KNOWN_OF_RESULT: Final = frozenset({"toolUseId", "content", "status"})
_CACHE_POINT: Final = "cachePoint"
_SYSTEM: Final = "json.body.system"


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    return _read(raw, field, identify=identify, as_sent=False)


def _read_as_sent(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """The same for `Format.as_sent`."""
    return _read(raw, field, identify=identify, as_sent=True)


def _read(raw: bytes | memoryview, field: str, *, identify: bool, as_sent: bool) -> Message:
    value = loaded(raw, field, identify=identify)
    reader = _Reader(role_of(value, field, _ROLES), as_sent=as_sent)
    reader.parts(value.get("content"), ("content",), f"{field}.content")
    reader.rest(value, _KNOWN)
    return reader.message(identity_of(value, _comparable, identify=identify))


class _Reader(Gathering):
    """Gathers the items of one message in order."""

    def __init__(self, role: Role, *, as_sent: bool) -> None:
        super().__init__(role)
        self._as_sent = as_sent

    def part(self, part: Any, path: Path, field: str) -> None:
        """Read one block."""
        kind, value = _kind(part)
        if kind == "text" and type(value) is str:
            self.text(value, (*path, "text"))
        elif kind == "toolUse" and type(value) is dict and self._is_call(value):
            self._call(value, (*path, kind))
        elif kind == "toolResult" and type(value) is dict and self.role is Role.USER:
            self._result(value, (*path, kind), f"{field}.{kind}")
        elif kind == "image":
            self.items.append(Item(ItemKind.IMAGE, path, canonical(part).decode(), raw_json=True))
        elif kind == "reasoningContent" and type(value) is dict and self.role is Role.ASSISTANT:
            self._reasoning(value, path)
        elif kind != _CACHE_POINT:
            self.other.append(canonical(part).decode())

    def _reasoning(self, value: dict[str, Any], path: Path) -> None:
        """Read a block of reasoning: a signed text, or a redacted one, whose bytes are base64."""
        signed = value.get("reasoningText")
        signed = signed if type(signed) is dict else {}
        encrypted = string(signed.get("signature")) + string(value.get("redactedContent"))
        at = (*path, "reasoningContent", "reasoningText", "text")
        self.reasoning(path, encrypted, [(at, string(signed.get("text")))])

    @staticmethod
    def _is_call(use: dict[str, Any]) -> bool:
        """Whether the agent answers the call; calls with a type, and results in the model's turn, are the server's."""
        return "input" in use and use.get("type") is None

    def _call(self, use: dict[str, Any], path: Path) -> None:
        call_id, name = string(use.get("toolUseId")), string(use.get("name"))
        self.calls.append(call_id)
        self.names.append(name)
        self.rest(use, _KNOWN_OF_USE)
        text = canonical(use["input"]).decode()
        self.items.append(Item(ItemKind.ARGUMENTS, (*path, "input"), text, raw_json=True, call_id=call_id, tool=name))

    def _result(self, of_call: dict[str, Any], path: Path, field: str) -> None:
        call_id = string(of_call.get("toolUseId"))
        result = len(self.answers)
        self.answers.append(call_id)
        self.rest(of_call, _KNOWN_OF_RESULT)
        content = of_call.get("content")
        for part, at, where in each_object([] if content is None else content, (*path, "content"), f"{field}.content"):
            kind, value = _kind(part)
            if kind == "text" and type(value) is str:
                if value:
                    self.items.append(Item(ItemKind.RESULT, (*at, kind), value, call_id=call_id, result=result))
            elif kind == "json":
                of = Item(ItemKind.RESULT, (), "", call_id=call_id, result=result)
                self.items += result_items(value, (*at, kind), of, where, as_sent=self._as_sent)
            elif kind == "image":
                text = canonical(part).decode()
                self.items.append(Item(ItemKind.IMAGE, at, text, raw_json=True, call_id=call_id, result=result))
            else:
                self.other.append(canonical(part).decode())


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced. Raises nothing for a message that `read` accepted."""
    removed, others, label = without_reasoning(replacements)
    edits = removed | {item.path: _value(item, text) for item, text in others.items()}
    if removed and len(removed) == array_length(raw, ("content",)):  # a message must have content
        edits[min(removed)] = orjson.dumps({"text": label})
    return splice(raw, edits)


def _value(item: Item, text: Replacement) -> bytes:
    if item.kind is ItemKind.IMAGE:
        return orjson.dumps({"text": text or ""})
    if item.kind is ItemKind.ARGUMENTS:
        return (text or "{}").encode()
    return result_value(text or "", whole=item.raw_json and type(item.path[-2]) is int)


def add_system(value: bytes | None, text: str) -> bytes:
    """Add a text block to the system prompt; existing parts keep their bytes.

    Raises:
        InvalidJson: the body's `system` is not an array.
    """
    block = orjson.dumps({"text": text})
    if value is None or value == b"null":
        return b"[" + block + b"]"
    if value[:1] != b"[":
        raise InvalidJson(f"{_SYSTEM} must be an array of blocks", field=_SYSTEM)
    return add_block(value, block)


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a tool's definition, a member of `toolConfig.tools`."""
    schema = {"json": orjson.Fragment(parameters)}
    return orjson.dumps({"toolSpec": {"name": name, "description": description, "inputSchema": schema}})


def _kind(block: dict[str, Any]) -> tuple[str, Any]:
    """Return a block's kind and value; the kind is empty unless it has exactly one member."""
    present = [(name, member) for name, member in block.items() if member is not None]
    return present[0] if len(present) == 1 else ("", None)


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """Return the message without cache points, which move between calls, and without null members."""
    kept = {name: member for name, member in value.items() if member is not None}
    if type(kept.get("content")) is list:
        kept["content"] = [
            block for block in kept["content"] if type(block) is not dict or block.keys() != {_CACHE_POINT}
        ]
    return kept


_MARKS: Final = CacheMarks(
    name=_CACHE_POINT,
    value=b'{"type":"default"}',
    as_block=True,
    text=b'{"text":',
    roles=frozenset({"user"}),
    at_newest=True,
    leads=frozenset(),
    places_itself=(),
    takes=takes_cache_points,
)
_BY_NAME: Final = Format(
    name="bedrock_converse",
    read=read,
    write=write,
    originals=originals_at,
    tool=tool,
    system=block_member("system", add_system),
    alternating=True,
    call_tokens=CALL_TOKENS,
    tool_fields=("toolConfig.tools",),
    reserve_fields=("inferenceConfig.maxTokens",),
    cache_marks=_MARKS,
)
_AS_SENT: Final = tolerant(replace(_BY_NAME, read=_read_as_sent, numbers_as_sent=True))
_UNBOUND: Final = replace(tolerant(_BY_NAME), as_sent=_AS_SENT)
_BOUND: Final = replace(
    _UNBOUND,
    reasoning=ReasoningRule.BOUND,
    as_sent=replace(_AS_SENT, reasoning=ReasoningRule.BOUND),
)
FORMAT: Final = replace(_UNBOUND, bound=_BOUND)
