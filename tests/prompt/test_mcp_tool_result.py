"""One result of a tool of the Model Context Protocol: its items, its identity, and writing it back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import Item, ItemKind, Role
from tests.oracle.respell import SPELLINGS
from tests.prompt.reading import fault, identity, read, shown

MCP = FORMATS["mcp_tool_result"]
TEXT = {"type": "text", "text": "out", "annotations": {"audience": ["user"]}}
IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png", "_meta": {"a": 1}}
FILE = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "body"}}
PICTURE = {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "image/png", "blob": "AA=="}}
DATA: dict[str, Any] = {"rows": [1, 2.0, "é"], "total": 3}


def written(value: Any, items: dict[int, str | None]) -> Any:
    """The result with the items of these numbers replaced."""
    raw = json.dumps(value).encode()
    found = MCP.read(raw, "f").items
    return json.loads(MCP.write(raw, {found[number]: text for number, text in items.items()}))


def kinds(items: tuple[Item, ...]) -> list[tuple[str, tuple[str | int, ...], int]]:
    """Items as kind, path and number of their result."""
    return [(item.kind.value, item.path, item.result) for item in items]


def test_texts_and_pictures_are_items_of_one_result() -> None:
    """Texts of blocks and resources are the one result's, pictures its images; it is a message of a tool."""
    message = read(MCP, {"content": [TEXT, IMAGE, FILE, PICTURE]})
    assert (Role.TOOL, 2) == (message.role, message.media)
    assert [
        ("result", ("content", 0, "text"), 0),
        ("image", ("content", 1), 0),
        ("result", ("content", 2, "resource", "text"), 0),
        ("image", ("content", 3), 0),
    ] == kinds(message.items)


def test_replacements_take_the_items_places() -> None:
    """A text stays where it stands with all that is said of it; a picture becomes a text block, its meta data kept."""
    value = {"content": [TEXT, IMAGE, FILE, PICTURE], "isError": True, "_meta": {"x": 1.5}}
    expected = value | {
        "content": [
            TEXT | {"text": "a"},
            {"type": "text", "text": "b", "_meta": {"a": 1}},
            {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "c"}},
            {"type": "text", "text": "d"},
        ]
    }
    assert expected == written(value, {0: "a", 1: "b", 2: "c", 3: "d"})


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///a", "blob": "AA=="}},
        {"type": "x_new", "text": "a"},
    ],
)
def test_blocks_that_stay(block: dict[str, Any]) -> None:
    """Audio, links, other resources and blocks of tomorrow keep their place next to a text that is cut."""
    value = {"content": [block, TEXT], "x_new": [1]}
    assert ["result", "opaque"] == [item.kind.value for item in read(MCP, value).items]
    assert value | {"content": [block, TEXT | {"text": "cut"}]} == written(value, {0: "cut"})


def test_structured_content_alone() -> None:
    """It is a result of its own. Cut, it is a text block, as its schema could not hold what is left."""
    value = {"content": [IMAGE], "structuredContent": DATA, "isError": False}
    raw = json.dumps(value).encode()
    image, item = MCP.read(raw, "f").items
    assert (ItemKind.IMAGE, ItemKind.RESULT) == (image.kind, item.kind)
    assert '{"rows":[1,2,"é"],"total":3}' == item.text
    assert (DATA, "application/json") == (json.loads(MCP.original(raw, item)), item.content_type)
    assert {"content": [IMAGE, {"type": "text", "text": "cut"}], "isError": False} == written(value, {1: "cut"})
    assert {"content": [{"type": "text", "text": "cut"}]} == written({"structuredContent": DATA}, {0: "cut"})


@pytest.mark.parametrize(
    "spelled", [json.dumps(DATA), json.dumps(DATA, indent=2), '{"total":3.0,"rows":[1,2,"\\u00e9"]}']
)
def test_structured_content_that_a_text_repeats(spelled: str) -> None:
    """It is no item then. It stays while that text does, and goes when the text is cut, whose original holds it."""
    value = {"content": [TEXT, {"type": "text", "text": spelled}, IMAGE], "structuredContent": DATA}
    assert ["result", "result", "image"] == [item.kind.value for item in read(MCP, value).items]
    assert DATA == written(value, {0: "cut"})["structuredContent"]
    assert DATA == written(value, {2: "cut"})["structuredContent"]
    cut = {"content": [TEXT, {"type": "text", "text": "cut"}, IMAGE]}
    assert cut == written(value, {1: "cut"})


@pytest.mark.parametrize("text", ['{"total":3}', "{not JSON", "", '{"a":1,"a":1}'])
def test_structured_content_beside_other_text(text: str) -> None:
    """A text that says something else takes nothing with it."""
    value = {"content": [{"type": "text", "text": text or " "}], "structuredContent": DATA}
    assert ["result", "result"] == [item.kind.value for item in read(MCP, value).items]
    assert DATA == written(value, {0: "cut"})["structuredContent"]


def test_write_keeps_other_bytes() -> None:
    """Beside an edit all else is the very bytes; without one the whole is."""
    raw = b'{"_meta":{"n":1.50},"content":[{"text":"long","type":"text"},{"type":"x","a":"\\u0061"}]}'
    item = MCP.read(raw, "f").items[0]
    assert raw.replace(b'"long"', b'"s"') == MCP.write(raw, {item: "s"})
    assert raw is MCP.write(raw, {})


@pytest.mark.parametrize("value", [{}, {"content": []}, {"content": [{"type": "text", "text": ""}]}])
def test_a_result_without_content_is_one_item(value: Any) -> None:
    """A result without content is an item as a whole."""
    assert [("opaque", (), "")] == shown(read(MCP, value).items)


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_identity_is_of_what_is_decoded(spelling: str) -> None:
    """Another language's spelling is the same result with the same items."""
    raw = json.dumps({"content": [TEXT, FILE], "structuredContent": DATA, "_meta": {"10": 1e3}}).encode()
    one, other = MCP.read(raw, "f"), MCP.read(SPELLINGS[spelling](raw), "f")
    assert one.identity == other.identity
    assert shown(one.items) == shown(other.items)


def test_other_identity() -> None:
    """Any difference is another result, and no message of a history is the same as a result."""
    value = {"role": "tool", "content": [{"type": "text", "text": "a"}]}
    assert identity(MCP, value) != identity(MCP, value | {"isError": True})
    assert all(identity(MCP, value) != identity(FORMATS[name], value) for name in ("openai_chat", "anthropic_messages"))


BAD: list[tuple[Any, str]] = [
    ([], ""),
    ("x", ""),
    ({"content": "x"}, ".content"),
    ({"content": None}, ".content"),
    ({"content": [TEXT, 1]}, ".content[1]"),
]


@pytest.mark.parametrize(("value", "field"), BAD, ids=range(len(BAD)))
def test_bad_shapes(value: Any, field: str) -> None:
    """A wrong shape is refused by the name of where it is."""
    assert "json.body.messages[2]" + field == fault(lambda: read(MCP, value))


ODD: list[Any] = [
    {"content": [{}]},
    {"content": [{"type": "text", "text": 1}, {"type": "resource", "resource": "x"}]},
    {"content": [{"type": "text", "text": 1}], "structuredContent": {"a": 1}},
    {"content": [TEXT], "structuredContent": [1]},
    {"content": [TEXT], "structuredContent": None},
]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_odd_shapes_pass_through(value: Any) -> None:
    """What a host may refuse or not is no business of ours: it is read, and what is unknown kept."""
    raw = json.dumps(value).encode()
    found = MCP.read(raw, "f")
    assert raw == MCP.write(raw, {})
    assert all(MCP.original(raw, item) for item in found.items)


def test_a_tool_definition_has_the_servers_form() -> None:
    """A tool's definition is as a server lists it."""
    made = json.loads(MCP.tool("recall", "Fetch.", b'{"type":"object"}'))
    assert {"name": "recall", "description": "Fetch.", "inputSchema": {"type": "object"}} == made
