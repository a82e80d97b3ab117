"""One tool result of the Model Context Protocol: the whole body is one message of role TOOL.

    {"content": [{"type": "text", …}, {"type": "image", …}, …], "structuredContent": {…}, "isError": …, "_meta": …}

Text items are text blocks and text resources; image items are image blocks and image resources. Audio, links and other
resources are never changed.

`structuredContent` must conform to the schema that the tool's server published, so it is kept whole or removed, never
shortened. Most servers write the same JSON as a text block too. Then it is removed when that text is trimmed, whose
marker covers both; otherwise it is an item of its own, and becomes a text block with its head, its tail and a marker. A
client checks the schema when it gets the result from the server, before it sends the result here.

Source: the protocol's specification of 2025-06-18, server features, tools (content types, structured content, output
schema), and its schema's CallToolResult.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.prompt.ambiguous import tolerant
from prompt_sidecar.prompt.format import Format, Replacement
from prompt_sidecar.prompt.gathering import Gathering, loaded
from prompt_sidecar.prompt.items import Item, ItemKind, Message, Path, Role
from prompt_sidecar.prompt.jsontext import ValuesByPath, canonical, digest, load, load_again, splice
from prompt_sidecar.prompt.likeness import check_result
from prompt_sidecar.prompt.parts import originals_at, shown_json, string, text_in_place

_STRUCTURED: Final = "structuredContent"
_KNOWN: Final = frozenset({"content", _STRUCTURED, "isError"})
_SALT: Final = b"mcp_tool_result:"
"""Prefix of the digested text, so that no message of a history has the identity of a result."""
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])


def read(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
    """Decode one result; see `Format.read`. Raises InvalidJson where the shape is not the protocol's."""
    value = loaded(raw, field, identify=identify)
    check_result(value)
    reader = _Reader(Role.TOOL)
    reader.parts(value.get("content", []), ("content",), f"{field}.content")
    again = _repeats(value) if value.get(_STRUCTURED) is not None else ()
    if again:  # condensing the text would remove the structured content with it
        reader.items = [item._replace(cited=item.cited or item.path[1] in again) for item in reader.items]
    elif value.get(_STRUCTURED) is not None:
        text = shown_json(value[_STRUCTURED], field)
        reader.items.append(Item(ItemKind.RESULT, (_STRUCTURED,), text, raw_json=True, result=0))
    reader.rest(value, _KNOWN)
    return reader.message(digest(_SALT + canonical(value)) if identify else b"")


class _Reader(Gathering):
    """Gathers the items of one result in order."""

    def part(self, part: dict[str, Any], path: Path, field: str) -> None:
        """Read one block."""
        del field
        item = _item(part, path)
        if item is None:
            self.other.append(canonical(part).decode())
        elif item.text:
            self.items.append(item)


def _item(block: dict[str, Any], path: Path) -> Item | None:
    """Return the trimmable item of a block; None if it has none."""
    kind, resource = block.get("type"), block.get("resource")
    if kind == "text" and type(block.get("text")) is str:
        return Item(ItemKind.RESULT, (*path, "text"), block["text"], result=0)
    if kind == "resource" and type(resource) is dict and type(resource.get("text")) is str:
        return Item(ItemKind.RESULT, (*path, "resource", "text"), resource["text"], result=0, cited=True)
    picture = kind == "resource" and type(resource) is dict and string(resource.get("mimeType")).startswith("image/")
    if kind == "image" or picture:
        return Item(ItemKind.IMAGE, path, canonical(block).decode(), raw_json=True, result=0)
    return None


def _repeats(value: Mapping[str, Any]) -> tuple[int, ...]:
    """Return indices of text blocks that repeat the structured content."""
    structured = canonical(value[_STRUCTURED])
    found: list[int] = []
    for index, block in enumerate(value.get("content", ())):
        text = block.get("text") if block.get("type") == "text" else None
        if type(text) is str and text.lstrip()[:1] == chr(structured[0]):
            try:
                same = canonical(load(text.encode(), "text")) == structured
            except (InvalidJson, TooLarge):
                same = False
            if same:
                found.append(index)
    return tuple(found)


def write(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
    """Return the result with items replaced. Raises nothing for a result that `read` accepted."""
    if not replacements:
        return raw
    value = load_again(raw)
    edits: dict[Path, bytes] = {}
    values = ValuesByPath(raw)
    moved = ""
    for item, text in replacements.items():
        if item.path == (_STRUCTURED,):
            moved = text or ""
        elif item.kind is ItemKind.IMAGE:
            edits[item.path] = text_in_place(values.at(item.path), text or "")
        else:
            edits[item.path] = orjson.dumps(text or "")
    again = _repeats(value) if value.get(_STRUCTURED) is not None else ()
    covered_by_text = any(("content", index, "text") in edits for index in again)
    written = splice(raw, edits)
    return _without_structured(written, moved) if moved or covered_by_text else written


def _without_structured(raw: bytes, text: str) -> bytes:
    """Return the result with a text block for its structured content, or without either if the text is empty."""
    members = _raw_object.decode(raw)
    del members[_STRUCTURED]
    if text:
        blocks = _raw_array.decode(members["content"]) if "content" in members else []
        blocks.append(msgspec.Raw(orjson.dumps({"type": "text", "text": text})))
        members["content"] = msgspec.Raw(msgspec.json.encode(blocks))
    return msgspec.json.encode(members)


def tool(name: str, description: str, parameters: bytes) -> bytes:
    """Return a tool's definition as an MCP server lists it."""
    return orjson.dumps({"name": name, "description": description, "inputSchema": orjson.Fragment(parameters)})


FORMAT: Final = tolerant(
    Format(
        name="mcp_tool_result",
        read=read,
        write=write,
        originals=originals_at,
        tool=tool,
        single=True,
    )
)
