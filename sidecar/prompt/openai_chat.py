"""OpenAI's chat completions, and the many services that speak it.

A message is `{"role", "content", …}`. Content is a string or an array of parts; an assistant's `tool_calls` hold their
arguments as a string of JSON; a tool's answer is a message of its own with a `tool_call_id`. System messages may stand
anywhere. Source: the provider's API reference, chat completions, create.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from sidecar.errors import InvalidJson
from sidecar.prompt.format import Format, Replacement
from sidecar.prompt.items import Item, ItemKind, Message, Path, Role, check_parts, text_kind
from sidecar.prompt.jsontext import canonical, digest, load, load_again, splice, value_at

_ROLES: Final[Mapping[str, Role]] = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_KNOWN: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "function_call", "cache_control"})


def read(raw: bytes, field: str, identify: bool = True) -> Message:
    """Decode one message; see `Format.read`. Raises InvalidJson where the shape is not the format's."""
    value = load(raw, field) if identify else load_again(raw)
    if type(value) is not dict:
        raise InvalidJson(f"{field} must be an object", field=field)
    role_name = value.get("role")
    if type(role_name) is not str:
        raise InvalidJson(f"{field}.role must be a string", field=f"{field}.role")
    role = _ROLES.get(role_name, Role.OTHER)
    call_id = value.get("tool_call_id")
    call_id = call_id if type(call_id) is str else ""
    reader = _Reader(role, call_id, str(value.get("name") or ""))
    reader.content(value.get("content"), field)
    reader.calls_of(value.get("tool_calls"), value.get("function_call"), field)
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
        answers=(call_id,) if role is Role.TOOL else (),
        other="\n".join((*reader.names, *reader.other)),
        media=sum(item.kind is ItemKind.IMAGE for item in reader.items),
    )


class _Reader:
    """Gathers the items of one message in order."""

    def __init__(self, role: Role, call_id: str, name: str) -> None:
        self.role = role
        self.call_id = call_id
        self.items: list[Item] = []
        self.calls: list[str] = []
        self.names: list[str] = [name] if name else []
        self.other: list[str] = []

    def content(self, content: Any, field: str) -> None:
        if type(content) is str:
            if content:
                self._text(content, ("content",))
        elif type(content) is list:
            check_parts(content, f"{field}.content")
            for index, part in enumerate(content):
                self._part(part, ("content", index), f"{field}.content[{index}]")
        elif content is not None:
            raise InvalidJson(f"{field}.content must be a string, an array or null", field=f"{field}.content")

    def _text(self, text: str, path: Path) -> None:
        if self.role is Role.TOOL:
            self.items.append(
                Item(ItemKind.RESULT, path, text, call_id=self.call_id, tool=_first(self.names), result=0)
            )
        else:
            self.items.append(Item(text_kind(self.role, text), path, text))

    def _part(self, part: Any, path: Path, field: str) -> None:
        if type(part) is not dict:
            raise InvalidJson(f"{field} must be an object", field=field)
        kind = part.get("type")
        if kind == "text" and type(part.get("text")) is str:
            if part["text"]:
                self._text(part["text"], (*path, "text"))
        elif kind == "image_url":
            result = 0 if self.role is Role.TOOL else -1
            self.items.append(
                Item(ItemKind.IMAGE, path, canonical(part).decode(), raw_json=True, call_id=self.call_id, result=result)
            )
        else:
            self.other.append(canonical(part).decode())

    def calls_of(self, tool_calls: Any, function_call: Any, field: str) -> None:
        if tool_calls is not None and type(tool_calls) is not list:
            raise InvalidJson(f"{field}.tool_calls must be an array", field=f"{field}.tool_calls")
        check_parts(tool_calls or (), f"{field}.tool_calls")
        for index, call in enumerate(tool_calls or ()):
            if type(call) is not dict:
                where = f"{field}.tool_calls[{index}]"
                raise InvalidJson(f"{where} must be an object", field=where)
            call_id = call.get("id")
            call_id = call_id if type(call_id) is str else ""
            self.calls.append(call_id)
            if not self._function(call.get("function"), call_id, ("tool_calls", index, "function")):
                self.other.append(canonical(call).decode())
        if function_call is not None and not self._function(function_call, "", ("function_call",)):
            self.other.append(canonical(function_call).decode())

    def _function(self, function: Any, call_id: str, path: Path) -> bool:
        if type(function) is not dict or type(function.get("arguments")) is not str:
            return False
        name = function.get("name")
        name = name if type(name) is str else ""
        self.names.append(name)
        self.items.append(
            Item(ItemKind.ARGUMENTS, (*path, "arguments"), function["arguments"], call_id=call_id, tool=name)
        )
        return True


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the message with items replaced. Raises nothing for a message that `read` took."""
    return splice(raw, {item.path: _value(item, text) for item, text in replacements.items()})


def _value(item: Item, text: Replacement) -> bytes:
    if item.kind is ItemKind.IMAGE:
        return orjson.dumps({"type": "text", "text": text or ""})
    if item.kind is ItemKind.ARGUMENTS:
        return orjson.dumps(text or "{}")
    return orjson.dumps(text or "")


def original(raw: bytes, item: Item) -> bytes:
    """The original of an item of this message."""
    return value_at(raw, item.path) if item.raw_json else item.text.encode()


def system_message(text: str) -> bytes:
    """A system message."""
    return orjson.dumps({"role": "system", "content": text})


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """A tool's definition, a member of `tools`."""
    function = {"name": name, "description": description, "parameters": orjson.Fragment(parameters)}
    return orjson.dumps({"type": "function", "function": function})


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """The message without what moves between calls (cache marks) and without members that are null."""
    kept = {name: member for name, member in value.items() if member is not None and name != "cache_control"}
    content = kept.get("content")
    if type(content) is str:  # a client may turn it into one part to mark it
        kept["content"] = [{"type": "text", "text": content}]
    if type(content) is list:
        kept["content"] = [
            {name: member for name, member in part.items() if name != "cache_control"} if type(part) is dict else part
            for part in content
        ]
    return kept


def _first(names: list[str]) -> str:
    return names[0] if names else ""


FORMAT: Final = Format(
    name="openai_chat",
    read=read,
    write=write,
    original=original,
    system_message=system_message,
    tool=tool,
    tool_fields=("tools", "functions", "response_format"),
    reserve_fields=("max_completion_tokens", "max_tokens"),
)
