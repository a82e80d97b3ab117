"""Anthropic's messages: their items, their identity, and writing them back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.items import ItemKind, Role
from tests.oracle.respell import SPELLINGS
from tests.prompt.reading import ANTHROPIC, identity, read, shown

MARK = {"cache_control": {"type": "ephemeral"}}
TEXT = {"type": "text", "text": "I look."}
USE = {"type": "tool_use", "id": "t1", "name": "grep", "input": {"q": "é", "a": 1.0}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "out"}, IMAGE]}


@pytest.mark.parametrize(
    ("name", "role"),
    [("user", Role.USER), ("assistant", Role.ASSISTANT), ("system", Role.SYSTEM), ("narrator", Role.OTHER)],
)
def test_every_role_has_its_meaning(name: str, role: Role) -> None:
    """Every role has its meaning; one that nobody knows passes through."""
    assert role == read(ANTHROPIC, {"role": name, "content": "x"}).role


@pytest.mark.parametrize(
    ("content", "items"),
    [
        ("héllo", [("text", ("content",), "héllo")]),
        ("", [("opaque", (), "")]),
        ([], [("opaque", (), "")]),
        ([TEXT, {"type": "text", "text": ""}], [("text", ("content", 0, "text"), "I look.")]),
        (
            [THINKING, TEXT],
            [
                ("reasoning", ("content", 0), "sig=="),
                ("reasoning", ("content", 0, "thinking"), "hm"),
                ("text", ("content", 1, "text"), "I look."),
            ],
        ),
        ([{"type": "redacted_thinking", "data": "x"}], [("reasoning", ("content", 0), "x")]),
        ([{"type": "x_new", "text": "a"}], [("opaque", (), "")]),
    ],
)
def test_texts_and_thinking_are_items(content: Any, items: list[Any]) -> None:
    """Texts and thinking are items; what nobody knows stays, and makes the whole message opaque."""
    assert items == shown(read(ANTHROPIC, {"role": "assistant", "content": content}).items)


def test_a_call_is_its_sorted_input() -> None:
    """A call is its input as sorted, compact JSON, with the call's id and tool."""
    message = read(ANTHROPIC, {"role": "assistant", "content": [TEXT, USE, USE | {"id": "t2"}]})
    assert ("t1", "t2") == message.calls
    item = message.items[1]
    assert ("content", 1, "input") == item.path
    assert ('{"a":1.0,"q":"é"}', "t1", "grep") == (item.text, item.call_id, item.tool)
    assert "application/json" == item.content_type


def test_each_text_of_a_result_is_an_item() -> None:
    """Each text of a result is an item of that result, as is each image; results are numbered in their message."""
    plain = {"type": "tool_result", "tool_use_id": "t0", "content": "all"}
    empty = {"type": "tool_result", "tool_use_id": "t2"}
    message = read(ANTHROPIC, {"role": "user", "content": [plain, RESULT, empty, TEXT]})
    assert ("t0", "t1", "t2") == message.answers
    assert [
        (ItemKind.RESULT, ("content", 0, "content"), 0, "t0"),
        (ItemKind.RESULT, ("content", 1, "content", 0, "text"), 1, "t1"),
        (ItemKind.IMAGE, ("content", 1, "content", 1), 1, "t1"),
        (ItemKind.TEXT, ("content", 3, "text"), -1, ""),
    ] == [(item.kind, item.path, item.result, item.call_id) for item in message.items]
    assert 1 == message.media


def test_documents_in_results() -> None:
    """A document or search result that a tool returned holds texts of its result, at any depth."""
    plain = {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    inside = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "y"}, IMAGE]}}
    string = {"type": "document", "source": {"type": "content", "content": "z"}}
    found = {"type": "search_result", "source": "u", "title": "v", "content": [{"type": "text", "text": "w"}]}
    raw = json.dumps({"role": "user", "content": [RESULT | {"content": [plain, inside, string, found]}]}).encode()
    message = ANTHROPIC.read(raw, "f")
    at = ("content", 0, "content")
    assert [
        (ItemKind.RESULT, (*at, 0, "source", "data")),
        (ItemKind.RESULT, (*at, 1, "source", "content", 0, "text")),
        (ItemKind.IMAGE, (*at, 1, "source", "content", 1)),
        (ItemKind.RESULT, (*at, 2, "source", "content")),
        (ItemKind.RESULT, (*at, 3, "content", 0, "text")),
    ] == [(item.kind, item.path) for item in message.items]
    assert {0} == {item.result for item in message.items}
    assert {"t", "u", "v"} == set(message.other.split()), "what names them is weighed"
    written = json.loads(ANTHROPIC.write(raw, dict.fromkeys(message.items, "cut")))["content"][0]["content"]
    assert plain | {"source": plain["source"] | {"data": "cut"}} == written[0]  # type: ignore[operator]
    assert [{"type": "text", "text": "cut"}] * 2 == written[1]["source"]["content"]
    assert found | {"content": [{"type": "text", "text": "cut"}]} == written[3]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}},
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "source": {"type": "text", "data": False}},
        {"type": "document", "source": "x"},
        {"type": "search_result", "source": "u", "title": "v", "content": "w"},
        {"type": "tool_reference", "tool_name": "grep"},
        {"type": "x_new", "text": "a"},
    ],
)
def test_parts_of_results_that_stay(part: dict[str, Any]) -> None:
    """A part of a result that holds no text that we know is weighed and kept."""
    message = read(ANTHROPIC, {"role": "user", "content": [RESULT | {"content": [part]}]})
    assert [("opaque", (), "")] == shown(message.items)
    assert json.dumps(part, sort_keys=True, separators=(",", ":")) == message.other


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
        {"type": "search_result", "source": "u", "title": "v", "content": [{"type": "text", "text": "w"}]},
        {"type": "container_upload", "file_id": "f"},
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "grep"}},
    ],
)
def test_what_a_user_sent_stays(block: dict[str, Any]) -> None:
    """Documents and files of a user are the user's, and no result."""
    assert [("opaque", (), "")] == shown(read(ANTHROPIC, {"role": "user", "content": [block]}).items)


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("server_tool_use", "web_search_tool_result"),
        ("server_tool_use", "code_execution_tool_result"),
        ("mcp_tool_use", "mcp_tool_result"),
        ("x_new_tool_use", "x_new_tool_result"),
    ],
)
def test_server_tools(call: str, result: str) -> None:
    """What the provider's tools do is paired and kept whole, next to the client's calls, in one message or in two."""
    asked = {"type": call, "id": "s1", "name": "run", "input": {"code": "1"}}
    got = {"type": result, "tool_use_id": "s1", "content": [{"type": "text", "text": "out"}]}
    both = read(ANTHROPIC, {"role": "assistant", "content": [asked, got, USE]})
    assert (("s1", "t1"), ("s1",)) == (both.calls, both.answers)
    assert [ItemKind.ARGUMENTS, ItemKind.OPAQUE] == [item.kind for item in both.items]
    first = read(ANTHROPIC, {"role": "assistant", "content": [asked, USE | {"caller": {"type": call}}]})
    later = read(ANTHROPIC, {"role": "assistant", "content": [got, TEXT]})
    assert (("s1", "t1"), ("s1",)) == (first.calls, later.answers)


def test_an_image_that_is_marked() -> None:
    """A clipped image keeps its cache mark."""
    raw = json.dumps({"role": "user", "content": [RESULT | {"content": [IMAGE | MARK]}]}).encode()
    written = json.loads(ANTHROPIC.write(raw, {ANTHROPIC.read(raw, "f").items[0]: "[gone]"}))
    assert [{"type": "text", "text": "[gone]"} | MARK] == written["content"][0]["content"]


PLAIN: dict[str, Any] = {"role": "user", "content": [RESULT, TEXT, USE]}


def test_cache_marks_are_no_part_of_identity() -> None:
    """A mark on a block, or on a part of a result, comes and goes."""
    part = [{"type": "text", "text": "out"} | MARK, IMAGE | MARK]
    marked = [RESULT | MARK, RESULT | {"content": part}, RESULT | {"content": part} | MARK]
    for result in marked:
        assert identity(ANTHROPIC, PLAIN) == identity(
            ANTHROPIC, {"role": "user", "content": [result, TEXT, USE | MARK]}
        )
    unknown = {"type": "x_new", "a": 1}
    assert identity(ANTHROPIC, {"role": "user", "content": [unknown]}) == identity(
        ANTHROPIC, {"role": "user", "content": [unknown | MARK]}
    )


def test_nulls_are_no_part_of_identity() -> None:
    """Members of the message that are null come and go."""
    assert identity(ANTHROPIC, PLAIN) == identity(ANTHROPIC, PLAIN | {"id": None, "stop_reason": None})


OTHER = [
    PLAIN | {"role": "assistant"},
    PLAIN | {"id": "msg"},
    PLAIN | {"content": [RESULT, TEXT]},
    PLAIN | {"content": [TEXT, RESULT, USE]},
    PLAIN | {"content": [RESULT | {"is_error": True}, TEXT, USE]},
    PLAIN | {"content": [RESULT | {"tool_use_id": "t2"}, TEXT, USE]},
    PLAIN | {"content": [RESULT | {"content": "out"}, TEXT, USE]},
    PLAIN | {"content": [RESULT, TEXT | {"citations": None}, USE]},
    PLAIN | {"content": [RESULT, TEXT, USE | {"id": "t2"}]},
    PLAIN | {"content": [RESULT, TEXT, USE | {"input": USE["input"] | MARK}]},  # type: ignore[operator]
    PLAIN | {"content": [RESULT, TEXT, USE | {"input": {"q": "é", "a": 1.5}}]},
    PLAIN | {"content": [RESULT, TEXT, USE | {"input": {"q": "é", "a": None}}]},
    PLAIN | {"content": [RESULT, TEXT, USE | {"input": {"q": "é", "a": "1.0"}}]},
]


@pytest.mark.parametrize("other", OTHER, ids=range(len(OTHER)))
def test_other_identity(other: Any) -> None:
    """Anything else that differs is another message; a tool's input may hold a `cache_control` of its own."""
    assert identity(ANTHROPIC, PLAIN) != identity(ANTHROPIC, other)


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_identity_is_of_what_is_decoded(spelling: str) -> None:
    """Another language's spelling is the same message with the same items."""
    content = [
        TEXT | {"text": "a—<b>&"},
        USE | {"input": {"z": 1.0, "a": {"10": 1e3, "9": -0.0, "é": "\u2028"}}},
        RESULT,
    ]
    raw = json.dumps({"role": "user", "content": content}).encode()
    one, other = ANTHROPIC.read(raw, "f"), ANTHROPIC.read(SPELLINGS[spelling](raw), "f")
    assert one.identity == other.identity
    assert shown(one.items) == shown(other.items)


def test_replacements_take_the_items_places() -> None:
    """Replacements stand where the items stood: an empty object for input, text for text, a text part for an image."""
    raw = json.dumps({"role": "user", "content": [THINKING, TEXT, USE, RESULT]}).encode()
    message = ANTHROPIC.read(raw, "f")
    text, use, result, image, _ = message.items
    written = ANTHROPIC.write(raw, {text: "t", use: None, result: 'ré"s', image: "[image]"})
    expected = [
        THINKING,
        TEXT | {"text": "t"},
        USE | {"input": {}},
        RESULT | {"content": [{"type": "text", "text": 'ré"s'}, {"type": "text", "text": "[image]"}]},
    ]
    assert expected == json.loads(written)["content"]
    again = ANTHROPIC.read(written, "f")
    assert (message.calls, message.answers) == (again.calls, again.answers)
    assert ["t", "{}", 'ré"s', "[image]"] == [item.text for item in again.items[:4]]


def test_write_keeps_other_bytes() -> None:
    """A signature next to an edit keeps its bytes, escapes included."""
    raw = (
        b'{"content":[{"signature":"\\u0041\\/==","type":"thinking","thinking":"x"},{"text":"long",'
        b'"type":"text"}],"role":"assistant"}'
    )
    item = ANTHROPIC.read(raw, "f").items[-1]
    assert raw.replace(b'"long"', b'"s"') == ANTHROPIC.write(raw, {item: "s"})


def test_the_original_of_each_kind_of_item() -> None:
    """The original of a text is its UTF-8, of an input or image its raw JSON, of a message the message."""
    raw = (
        b'{"role":"user","content":[{"type":"text","text":"\\u00e9"},{"type":"tool_use","id":"a",'
        b'"name":"f","input":{"b" : 1.0}},{"type":"image", "source":1},{"type":"x"}]}'
    )
    message = ANTHROPIC.read(raw, "f")
    originals = [ANTHROPIC.original(raw, item) for item in message.items]
    assert ["é".encode(), b'{"b" : 1.0}', b'{"type":"image", "source":1}', raw] == originals


BAD = [
    ([], ""),
    ({"content": "x"}, ".role"),
    ({"role": 1, "content": "x"}, ".role"),
    ({"role": "user"}, ".content"),
    ({"role": "user", "content": None}, ".content"),
    ({"role": "user", "content": 1}, ".content"),
    ({"role": "user", "content": {}}, ".content"),
    ({"role": "user", "content": ["x"]}, ".content[0]"),
    ({"role": "user", "content": [TEXT, None]}, ".content[1]"),
    ({"role": "user", "content": [RESULT | {"content": 1}]}, ".content[0].content"),
    ({"role": "user", "content": [TEXT, RESULT | {"content": ["x"]}]}, ".content[1].content[0]"),
]


@pytest.mark.parametrize(("message", "field"), BAD, ids=range(len(BAD)))
def test_bad_shapes(message: Any, field: str) -> None:
    """A wrong shape is refused by the name of where it is."""
    with pytest.raises(InvalidJson) as caught:
        read(ANTHROPIC, message)
    assert "json.body.messages[2]" + field == caught.value.field


ODD: list[Any] = [
    {"role": "user", "content": [{}]},
    {"role": "user", "content": [{"type": 1}]},
    {"role": "user", "content": [{"type": ["text"], "text": "x"}]},
    {"role": "user", "content": [{"type": "text", "text": None}]},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": 1, "name": None, "input": "text"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": 3, "content": "x"}]},
    {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": 4}]}]},
]


@pytest.mark.parametrize("message", ODD, ids=range(len(ODD)))
def test_odd_shapes_pass_through(message: Any) -> None:
    """What the provider may refuse or not is no business of ours: it is read, and its parts of unknown kind kept."""
    raw = json.dumps(message).encode()
    found = ANTHROPIC.read(raw, "f")
    assert raw == ANTHROPIC.write(raw, {})
    assert all(ANTHROPIC.original(raw, item) for item in found.items)


BLOCK = '{"type":"text","text":"ours"}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, f"[{BLOCK}]"),
        ("null", f"[{BLOCK}]"),
        ('""', f"[{BLOCK}]"),
        ("[]", f"[{BLOCK}]"),
        ("[ ]", f"[{BLOCK}]"),
        ('"S\\u00e9"', '[{"type":"text","text":"S\\u00e9"},' + BLOCK + "]"),
        ('[{"x" : 1} ]', '[{"x" : 1} ,' + BLOCK + "]"),
    ],
)
def test_add_system(before: str | None, after: str) -> None:
    """What is in the system prompt keeps its bytes; ours is a further block."""
    assert ANTHROPIC.system is not None
    assert after == ANTHROPIC.system.add(None if before is None else before.encode(), "ours").decode()


@pytest.mark.parametrize("value", [b"1", b"{}", b"true"])
def test_add_system_refuses(value: bytes) -> None:
    """A system prompt that is neither text nor blocks is refused by its name."""
    assert ANTHROPIC.system is not None
    with pytest.raises(InvalidJson) as caught:
        ANTHROPIC.system.add(value, "ours")
    assert "json.body.system" == caught.value.field


REFERENCE = {"type": "tool_reference", "name": "grep"}


@pytest.mark.parametrize(
    ("message", "tied", "in_force"),
    [
        ({"role": "user", "content": "x"}, False, False),
        ({"role": "system", "content": "x"}, True, False),
        ({"role": "system", "content": "x", "clear_at": "next_user_message"}, True, False),
        ({"role": "system", "content": [{"type": "tool_addition", "tool": REFERENCE}]}, True, True),
        ({"role": "system", "content": [{"type": "tool_removal", "tool": REFERENCE}]}, True, True),
        ({"role": "system", "content": [], "output_config": {"effort": "low"}}, True, True),
        ({"role": "system", "content": "x", "output_config": None}, True, False),
        (
            {"role": "user", "content": [{"type": "mid_conv_system", "content": [{"type": "text", "text": "x"}]}]},
            False,
            False,
        ),
        (
            {"role": "user", "content": [{"type": "mid_conv_system", "content": [{"type": "tool_removal"}]}]},
            False,
            True,
        ),
        ({"role": "user", "content": [{"type": "mid_conv_system", "content": ["tool_removal", 7]}]}, False, False),
        ({"role": "user", "content": [{"type": "mid_conv_system", "content": "tool_removal"}]}, False, False),
        ({"role": "system", "content": [{"type": ["tool_addition"]}]}, True, False),
    ],
)
def test_system_messages(message: dict[str, Any], tied: bool, in_force: bool) -> None:
    """They belong to the turn that they follow; those that change tools or the effort apply from there on."""
    decoded = read(ANTHROPIC, message)
    assert (tied, in_force) == (decoded.tied, decoded.in_force)
