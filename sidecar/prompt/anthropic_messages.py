"""Anthropic's messages.

A message is `{"role", "content"}` with a string or an array of blocks. Calls are `tool_use` blocks whose input is an
object; results are `tool_result` blocks that open the next user turn. The system prompt is a member of the body, a
string or an array of text blocks, and no system message may stand in the history. Thinking blocks are signed and stay
as they are, where they are. Cache marks move from call to call, so they are no part of a message's identity. Source:
the provider's API reference, messages, and its pages on tool use, extended thinking and prompt caching.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from sidecar.errors import InvalidJson
from sidecar.prompt.format import Format, Replacement
from sidecar.prompt.items import Item, ItemKind, Message, Path, Role, check_parts, text_kind
from sidecar.prompt.jsontext import canonical, digest, load, load_again, splice, value_at

_ROLES: Final[Mapping[str, Role]] = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}
_KNOWN: Final = frozenset({"role", "content"})
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])


def read(raw: bytes, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    value = load(raw, field) if identify else load_again(raw)
    if type(value) is not dict:
        raise InvalidJson(f"{field} must be an object", field=field)
    role_name = value.get("role")
    if type(role_name) is not str:
        raise InvalidJson(f"{field}.role must be a string", field=f"{field}.role")
    role = _ROLES.get(role_name, Role.OTHER)
    reader = _Reader(role)
    reader.content(value.get("content"), field)
    rest = {name: member for name, member in value.items() if name not in _KNOWN and member is not None}
    if rest:
        reader.other.append(canonical(rest).decode())
    if reader.other or not reader.items:
        reader.items.append(Item(ItemKind.OPAQUE, (), "", raw_json=True))
    return Message(
        role=role,
        items=tuple(reader.items),
        identity=digest(canonical(_comparable(value))) if identify else b"",
        calls=tuple(reader.calls),
        answers=tuple(reader.answers),
        other="\n".join((*reader.names, *reader.other)),
        media=sum(item.kind is ItemKind.IMAGE for item in reader.items),
    )


class _Reader:
    """Gathers the items of one message in order."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.items: list[Item] = []
        self.calls: list[str] = []
        self.answers: list[str] = []
        self.names: list[str] = []
        self.other: list[str] = []

    def content(self, content: Any, field: str) -> None:
        if type(content) is str:
            if content:
                self.items.append(Item(text_kind(self.role, content), ("content",), content))
        elif type(content) is list:
            check_parts(content, f"{field}.content")
            for index, block in enumerate(content):
                where = f"{field}.content[{index}]"
                if type(block) is not dict:
                    raise InvalidJson(f"{where} must be an object", field=where)
                self._block(block, ("content", index), where)
        else:
            raise InvalidJson(f"{field}.content must be a string or an array", field=f"{field}.content")

    def _block(self, block: dict[str, Any], path: Path, field: str) -> None:
        kind = block.get("type")
        if kind == "text" and type(block.get("text")) is str:
            if block["text"]:
                self.items.append(Item(text_kind(self.role, block["text"]), (*path, "text"), block["text"]))
        elif kind == "tool_use" and "input" in block:
            self._call(block, path)
        elif kind == "tool_result":
            self._result(block, path, field)
        elif kind == "image":
            self.items.append(Item(ItemKind.IMAGE, path, _comparable_text(block), raw_json=True))
        else:
            self.other.append(_comparable_text(block))

    def _call(self, block: dict[str, Any], path: Path) -> None:
        call_id, name = _string(block.get("id")), _string(block.get("name"))
        self.calls.append(call_id)
        self.names.append(name)
        text = canonical(block["input"]).decode()
        self.items.append(Item(ItemKind.ARGUMENTS, (*path, "input"), text, raw_json=True, call_id=call_id, tool=name))

    def _result(self, block: dict[str, Any], path: Path, field: str) -> None:
        call_id = _string(block.get("tool_use_id"))
        result = len(self.answers)
        self.answers.append(call_id)
        content = block.get("content")
        if type(content) is str:
            if content:
                at = (*path, "content")
                self.items.append(Item(ItemKind.RESULT, at, content, call_id=call_id, result=result))
        elif type(content) is list:
            check_parts(content, f"{field}.content")
            for index, part in enumerate(content):
                at = (*path, "content", index)
                if type(part) is not dict:
                    where = f"{field}.content[{index}]"
                    raise InvalidJson(f"{where} must be an object", field=where)
                kind = part.get("type")
                if kind == "text" and type(part.get("text")) is str:
                    if part["text"]:
                        self.items.append(
                            Item(ItemKind.RESULT, (*at, "text"), part["text"], call_id=call_id, result=result)
                        )
                elif kind == "image":
                    text = _comparable_text(part)
                    self.items.append(Item(ItemKind.IMAGE, at, text, raw_json=True, call_id=call_id, result=result))
                else:
                    self.other.append(_comparable_text(part))
        elif content is not None:
            raise InvalidJson(f"{field}.content must be a string or an array", field=f"{field}.content")


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced. Raises nothing for a message that `read` took."""
    return splice(raw, {item.path: _value(item, text) for item, text in replacements.items()})


def _value(item: Item, text: Replacement) -> bytes:
    if item.kind is ItemKind.IMAGE:
        return orjson.dumps({"type": "text", "text": text or ""})
    if item.kind is ItemKind.ARGUMENTS:
        return b"{}"
    return orjson.dumps(text or "")


def original(raw: bytes, item: Item) -> bytes:
    """The original of an item of this message."""
    return value_at(raw, item.path) if item.raw_json else item.text.encode()


def add_system(value: bytes | None, text: str) -> bytes:
    """Add a text block to the system prompt; what is there keeps its bytes.

    Raises:
        InvalidJson: the body's `system` is neither a string nor an array.
    """
    block = orjson.dumps({"type": "text", "text": text})
    if value is None or value == b"null":
        return b"[" + block + b"]"
    opening = value[:1]
    if opening == b'"':
        present = b'{"type":"text","text":' + value + b"}"
        return b"[" + block + b"]" if value == b'""' else b"[" + present + b"," + block + b"]"
    if opening == b"[":
        if not _raw_array.decode(value):
            return b"[" + block + b"]"
        return value[:-1] + b"," + block + b"]"
    raise InvalidJson("json.body.system must be a string or an array of text blocks", field="json.body.system")


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """A tool's definition, a member of `tools`."""
    return orjson.dumps({"name": name, "description": description, "input_schema": orjson.Fragment(parameters)})


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    kept = {name: member for name, member in value.items() if member is not None}
    kept["content"] = _blocks(kept.get("content"))
    return kept


def _blocks(content: Any) -> Any:
    """Content as blocks without marks; a client may turn a string into one block to mark it."""
    if type(content) is str:
        return [{"type": "text", "text": content}]
    return [_without_mark(block) for block in content] if type(content) is list else content


def _without_mark(block: Any) -> Any:
    if type(block) is not dict:
        return block
    kept = {name: member for name, member in block.items() if name != "cache_control"}
    if kept.get("type") == "tool_result" and kept.get("content") is not None:
        kept["content"] = _blocks(kept["content"])
    return kept


def _comparable_text(block: dict[str, Any]) -> str:
    return canonical(_without_mark(block)).decode()


def _string(value: Any) -> str:
    return value if type(value) is str else ""


FORMAT: Final = Format(
    name="anthropic_messages",
    read=read,
    write=write,
    original=original,
    system_message=None,
    tool=tool,
    add_system=add_system,
    system_field="system",
    tool_fields=("tools",),
    reserve_fields=("max_tokens",),
)
