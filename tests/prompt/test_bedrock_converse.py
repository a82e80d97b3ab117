"""Bedrock's Converse: its items, its identity, and writing them back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.format import Format, SystemMember
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import ItemKind, Role
from tests.oracle.respell import SPELLINGS
from tests.prompt.reading import identity, read, shown

BEDROCK: Format = FORMATS["bedrock_converse"]

TEXT = {"text": "I look."}
USE = {"toolUse": {"toolUseId": "t1", "name": "grep", "input": {"q": "é", "a": 1.0}}}
IMAGE = {"image": {"format": "png", "source": {"bytes": "AA=="}}}
REASONING = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig=="}}}
MARK = {"cachePoint": {"type": "default"}}
RESULT = {"toolResult": {"toolUseId": "t1", "content": [{"text": "out"}, IMAGE], "status": "success"}}


def result(*content: Any) -> dict[str, Any]:
    """A result with this content."""
    return {"toolResult": {"toolUseId": "t1", "content": list(content)}}


@pytest.mark.parametrize(("name", "role"), [("user", Role.USER), ("assistant", Role.ASSISTANT), ("x", Role.OTHER)])
def test_every_role_has_its_meaning(name: str, role: Role) -> None:
    """Every role has its meaning; one that nobody knows passes through."""
    assert role == read(BEDROCK, {"role": name, "content": [TEXT]}).role


@pytest.mark.parametrize(
    ("content", "items"),
    [
        ([], [("opaque", (), "")]),
        ([TEXT, {"text": ""}], [("text", ("content", 0, "text"), "I look.")]),
        ([TEXT, MARK], [("text", ("content", 0, "text"), "I look.")]),
        ([MARK], [("opaque", (), "")]),
        (
            [REASONING, TEXT],
            [
                ("reasoning", ("content", 0), "sig=="),
                ("reasoning", ("content", 0, "reasoningContent", "reasoningText", "text"), "hm"),
                ("text", ("content", 1, "text"), "I look."),
            ],
        ),
        ([{"document": {"name": "a"}}], [("opaque", (), "")]),
        ([{"xNew": {"text": "a"}}], [("opaque", (), "")]),
        ([{"text": "a", "xNew": 1}], [("opaque", (), "")]),
        ([{"guardContent": {"text": {"text": "a"}}}], [("opaque", (), "")]),
    ],
)
def test_texts_are_items_and_cache_points_are_not(content: Any, items: list[Any]) -> None:
    """Texts are items, cache points are nothing; what is signed or unknown makes the whole message opaque."""
    assert items == shown(read(BEDROCK, {"role": "assistant", "content": content}).items)


def test_a_call_is_its_sorted_input() -> None:
    """A call is its input as sorted, compact JSON, with the call's id and tool."""
    message = read(BEDROCK, {"role": "assistant", "content": [TEXT, USE]})
    assert ("t1",) == message.calls
    item = message.items[1]
    assert ("content", 1, "toolUse", "input") == item.path
    assert ('{"a":1.0,"q":"é"}', "t1", "grep") == (item.text, item.call_id, item.tool)


def test_calls_of_the_server() -> None:
    """Calls that the provider runs, and their results in the model's turn, are no business of the agent's."""
    server = {"toolUse": {**USE["toolUse"], "type": "server_tool_use"}}
    message = read(BEDROCK, {"role": "assistant", "content": [server, result({"json": {"a": "b"}}), USE]})
    assert ("t1",) == message.calls
    assert () == message.answers
    assert [ItemKind.ARGUMENTS, ItemKind.OPAQUE] == [item.kind for item in message.items]


def test_each_part_of_a_result_is_an_item() -> None:
    """Texts, images and JSON of a result are items of that result; an object around texts is a text each."""
    path = ("content", 0, "toolResult", "content")
    message = read(
        BEDROCK,
        {
            "role": "user",
            "content": [
                result(
                    {"text": "out"},
                    IMAGE,
                    {"json": {"a": "x", "b": ""}},
                    {"json": {"n": 1}},
                    {"json": {"n": 1, "m": 2}},
                    {"json": {}},
                ),
                result(),
                TEXT,
            ],
        },
    )
    assert ("t1", "t1") == message.answers
    assert [
        (ItemKind.RESULT, (*path, 0, "text"), 0, "out"),
        (ItemKind.IMAGE, (*path, 1), 0, '{"image":{"format":"png","source":{"bytes":"AA=="}}}'),
        (ItemKind.RESULT, (*path, 2, "json", "a"), 0, "x"),
        (ItemKind.RESULT, (*path, 3, "json", "n"), 0, "1"),
        (ItemKind.RESULT, (*path, 4, "json"), 0, '{"m":2,"n":1}'),
        (ItemKind.TEXT, ("content", 2, "text"), -1, "I look."),
    ] == [(item.kind, item.path, item.result, item.text) for item in message.items]
    assert 1 == message.media


def test_documents_in_results() -> None:
    """A part of a result that nobody knows is weighed and kept."""
    message = read(BEDROCK, {"role": "user", "content": [result({"document": {"name": "a"}})]})
    assert [("opaque", (), "")] == shown(message.items)
    assert '{"document":{"name":"a"}}' == message.other


PLAIN: dict[str, Any] = {"role": "user", "content": [RESULT, TEXT]}


def test_cache_points_are_no_part_of_identity() -> None:
    """A cache point comes and goes, and the items are the same ones then."""
    marked = {"role": "user", "content": [MARK, RESULT, MARK, TEXT, MARK], "x": None}
    assert identity(BEDROCK, PLAIN) == identity(BEDROCK, marked)
    texts = [[item.text for item in read(BEDROCK, message).items] for message in (PLAIN, marked)]
    assert texts[0] == texts[1]


OTHER = [
    PLAIN | {"role": "assistant"},
    PLAIN | {"x": 1},
    PLAIN | {"content": [RESULT]},
    PLAIN | {"content": [TEXT, RESULT]},
    PLAIN | {"content": [{"toolResult": {**RESULT["toolResult"], "status": "error"}}, TEXT]},
    PLAIN | {"content": [result({"text": "out"}), TEXT]},
    PLAIN | {"content": [RESULT, TEXT, {"cachePoint": {"type": "default"}, "x": 1}]},
]


@pytest.mark.parametrize("other", OTHER, ids=range(len(OTHER)))
def test_other_identity(other: Any) -> None:
    """Anything else that differs is another message."""
    assert identity(BEDROCK, PLAIN) != identity(BEDROCK, other)


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_identity_is_of_what_is_decoded(spelling: str) -> None:
    """Another language's spelling is the same message with the same items."""
    given = {"toolUse": {"toolUseId": "a", "name": "f", "input": {"z": 1.0, "a": {"10": 1e3, "é": "\u2028"}}}}
    content = [{"text": "a—<b>&"}, given, result({"json": {"n": 1e3, "b": [-0.0]}})]
    raw = json.dumps({"role": "user", "content": content}).encode()
    one, other = BEDROCK.read(raw, "f"), BEDROCK.read(SPELLINGS[spelling](raw), "f")
    assert one.identity == other.identity
    assert shown(one.items) == shown(other.items)


def test_replacements_take_the_items_places() -> None:
    """Replacements stand where the items stood, and read again there are as many items, with the new texts."""
    content = [
        REASONING,
        TEXT,
        USE,
        result({"text": "out"}, IMAGE, {"json": {"a": "x"}}, {"json": [1]}, {"json": {"json": [1]}}),
    ]
    raw = json.dumps({"role": "user", "content": content}).encode()
    message = BEDROCK.read(raw, "f")
    text, use, out, image, member, whole, wrapped, _ = message.items
    given = {text: "t", use: None, out: 'é"', image: "[image]", member: "m", whole: "[…", wrapped: "[……"}
    written = BEDROCK.write(raw, given)
    expected = [
        REASONING,
        {"text": "t"},
        {"toolUse": {**USE["toolUse"], "input": {}}},
        result(
            {"text": 'é"'},
            {"text": "[image]"},
            {"json": {"a": "m"}},
            {"json": {"result": "[…"}},
            {"json": {"json": "[……"}},
        ),
    ]
    assert expected == json.loads(written)["content"]
    again = BEDROCK.read(written, "f")
    assert (message.calls, message.answers) == (again.calls, again.answers)
    assert ["t", "{}", 'é"', "[image]", "m", "[…", "[……"] == [item.text for item in again.items[:7]]
    assert raw.replace(b'"I look."', b'"t"').replace(b" ", b"") == BEDROCK.write(raw, {text: "t"}).replace(b" ", b"")


def test_write_keeps_other_bytes() -> None:
    """A signature next to an edit keeps its bytes, escapes included."""
    raw = b'{"content":[{"reasoningContent":{"x":"\\u0041\\/=="}},{"text":"long"}],"role":"assistant"}'
    item = BEDROCK.read(raw, "f").items[-1]
    assert raw.replace(b'"long"', b'"s"') == BEDROCK.write(raw, {item: "s"})


def test_the_original_of_each_kind_of_item() -> None:
    """The original of a text is its UTF-8, of an input or a JSON result its raw JSON, of a message the message."""
    raw = (
        b'{"role":"user","content":[{"text":"\\u00e9"},{"toolUse":{"toolUseId":"a","name":"f","input":{"b" : 1.0}}},'
        b'{"toolResult":{"toolUseId":"a","content":[{"json":{"n" : 1}},{"json":[1 ]},'
        b'{"json":{"a":"\\u00e9"}}]}},{"x":{}}]}'
    )
    message = BEDROCK.read(raw, "f")
    originals = [BEDROCK.original(raw, item) for item in message.items]
    assert ["é".encode(), b'{"b" : 1.0}', b"1", b"[1 ]", "é".encode(), raw] == originals


BAD = [
    ([], ""),
    ({"content": [TEXT]}, ".role"),
    ({"role": 1, "content": [TEXT]}, ".role"),
    ({"role": "user"}, ".content"),
    ({"role": "user", "content": "x"}, ".content"),
    ({"role": "user", "content": ["x"]}, ".content[0]"),
    ({"role": "user", "content": [TEXT, {"toolResult": {"content": 1}}]}, ".content[1].toolResult.content"),
    ({"role": "user", "content": [{"toolResult": {"content": ["x"]}}]}, ".content[0].toolResult.content[0]"),
]


@pytest.mark.parametrize(("message", "field"), BAD, ids=range(len(BAD)))
def test_bad_shapes(message: Any, field: str) -> None:
    """A wrong shape is refused by the name of where it is."""
    with pytest.raises(InvalidJson) as caught:
        read(BEDROCK, message)
    assert "json.body.messages[2]" + field == caught.value.field


ODD: list[Any] = [
    {"role": "user", "content": [{}]},
    {"role": "user", "content": [{"text": None}]},
    {"role": "user", "content": [{"text": 1}]},
    {"role": "user", "content": [{"toolUse": 1}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": 1, "name": None, "input": "text"}}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a"}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": 3, "content": None}}]},
    {"role": "user", "content": [{"toolResult": {"content": [{"text": 4}, {"json": 4}, {"json": None}]}}]},
    {"role": "user", "content": [{"toolResult": "x"}]},
]


@pytest.mark.parametrize("message", ODD, ids=range(len(ODD)))
def test_odd_shapes_pass_through(message: Any) -> None:
    """What the provider may refuse or not is no business of ours: it is read, and its parts of unknown kind kept."""
    raw = json.dumps(message).encode()
    found = BEDROCK.read(raw, "f")
    assert raw == BEDROCK.write(raw, {})
    assert all(BEDROCK.original(raw, item) for item in found.items)


def system() -> SystemMember:
    """The member that holds the system prompt."""
    assert BEDROCK.system is not None
    return BEDROCK.system


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '[{"text":"ours"}]'),
        ("null", '[{"text":"ours"}]'),
        ("[ ]", '[{"text":"ours"}]'),
        ('[{"x" : 1} ]', '[{"x" : 1} ,{"text":"ours"}]'),
    ],
)
def test_add_system(before: str | None, after: str) -> None:
    """What is in the system prompt keeps its bytes; ours is a further block, and goes again without a trace."""
    added = system().add(None if before is None else before.encode(), "ours")
    assert after == added.decode()
    wanted = b'[{"x" : 1} ]' if before and "x" in before else b"[]"
    assert wanted == system().without(added, lambda text: text == "ours")


@pytest.mark.parametrize("value", [b"1", b"{}", b'"text"'])
def test_add_system_refuses(value: bytes) -> None:
    """A system prompt that is no array is refused by its name."""
    with pytest.raises(InvalidJson) as caught:
        system().add(value, "ours")
    assert "json.body.system" == caught.value.field


def test_a_tool_is_a_member_of_tool_config() -> None:
    """A tool is a member of `toolConfig.tools`."""
    expected = {"toolSpec": {"name": "n", "description": "d", "inputSchema": {"json": {"type": "object"}}}}
    assert expected == json.loads(BEDROCK.tool("n", "d", b'{"type":"object"}'))
