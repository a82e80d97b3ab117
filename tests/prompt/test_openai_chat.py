"""OpenAI's chat messages: their items, their identity, and writing them back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.body import split
from prompt_sidecar.prompt.format import Format, Stands
from prompt_sidecar.prompt.items import ItemKind, Role
from tests.oracle.respell import SPELLINGS
from tests.prompt.reading import OPENAI, identity, read, shown

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"q": "é"}'}}
ASSISTANT: dict[str, Any] = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("system", Role.SYSTEM),
        ("developer", Role.SYSTEM),
        ("user", Role.USER),
        ("assistant", Role.ASSISTANT),
        ("tool", Role.TOOL),
        ("function", Role.TOOL),
        ("critic", Role.OTHER),
    ],
)
def test_every_role_has_its_meaning(name: str, role: Role) -> None:
    """Every role has its meaning; one that nobody knows passes through."""
    assert role == read(OPENAI, {"role": name, "content": "x"}).role


def test_a_string_is_one_text() -> None:
    """A string is one text."""
    assert [("text", ("content",), "héllo")] == shown(read(OPENAI, {"role": "user", "content": "héllo"}).items)


@pytest.mark.parametrize("content", ["", None, []])
def test_a_message_without_content_is_one_item(content: object) -> None:
    """A message without content is an item as a whole, so that it can be stored when it is dropped."""
    assert [("opaque", (), "")] == shown(read(OPENAI, {"role": "user", "content": content}).items)


def test_each_part_is_an_item_of_its_kind() -> None:
    """Each part is an item of its kind; an empty text is none, an unknown part makes the whole message opaque."""
    audio = {"type": "input_audio", "input_audio": {"data": "AA=="}}
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, IMAGE, audio]
    message = read(OPENAI, {"role": "user", "content": parts})
    image = json.dumps(IMAGE, sort_keys=True, separators=(",", ":"))
    expected = [("text", ("content", 0, "text"), "a"), ("image", ("content", 2), image), ("opaque", (), "")]
    assert expected == shown(message.items)
    assert 1 == message.media
    assert '{"input_audio":{"data":"AA=="},"type":"input_audio"}' == message.other


def test_calls_follow_text_and_have_id_and_tool() -> None:
    """Calls are arguments with the call's id and tool; text stands before them."""
    message = read(OPENAI, ASSISTANT | {"tool_calls": [CALL, CALL | {"id": ""}]})
    assert ["text", "arguments", "arguments"] == [item.kind.value for item in message.items]
    assert ("tool_calls", 1, "function", "arguments") == message.items[2].path
    assert ("c1", "") == message.calls
    assert [("c1", "grep"), ("", "grep")] == [(item.call_id, item.tool) for item in message.items[1:]]
    assert '{"q": "é"}' == message.items[1].text
    assert "application/json" == message.items[1].content_type


def test_function_call() -> None:
    """The retired single call is arguments too; it has no id, so it pairs with its function's answer by name."""
    message = read(OPENAI, {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}})
    assert [("arguments", ("function_call", "arguments"), "{}")] == shown(message.items)
    answer = read(OPENAI, {"role": "function", "name": "f", "content": "out"})
    assert message.calls == answer.answers
    assert [message.calls[0]] * 2 == [message.items[0].call_id, answer.items[0].call_id]
    assert ("f", "f") == (message.items[0].tool, answer.items[0].tool)
    other = read(OPENAI, {"role": "function", "name": "g", "content": "out"})
    assert message.calls != other.answers


def test_function_call_clipped() -> None:
    """Its arguments become the empty object; the name stays."""
    raw = b'{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\\"a\\":1}"}}'
    item = OPENAI.read(raw, "f").items[0]
    expected = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    assert expected == json.loads(OPENAI.write(raw, {item: None}))


CUSTOM = {"id": "c9", "type": "custom", "custom": {"name": "patch", "input": "*** Begin Patch\n+é"}}


def test_custom_call() -> None:
    """A custom tool takes free text: no JSON, and empty when it is clipped."""
    raw = json.dumps({"role": "assistant", "tool_calls": [CUSTOM, CALL]}).encode()
    message = OPENAI.read(raw, "f")
    assert ("c9", "c1") == message.calls
    custom, call = message.items
    assert ("tool_calls", 0, "custom", "input") == custom.path
    assert ("*** Begin Patch\n+é", "c9", "patch", "text/plain") == (
        custom.text,
        custom.call_id,
        custom.tool,
        custom.content_type,
    )
    assert custom.text.encode() == OPENAI.original(raw, custom)
    written = OPENAI.write(raw, {custom: None, call: None})
    again = OPENAI.read(written, "f")
    assert ["", "{}"] == [item.text for item in again.items]
    assert message.calls == again.calls


def test_a_call_of_another_kind() -> None:
    """A call of a kind that nobody knows passes through, and is still a call that wants an answer."""
    future = {"id": "c9", "type": "x_new", "x_new": {"name": "x", "input": "y"}}
    message = read(OPENAI, {"role": "assistant", "tool_calls": [future]})
    assert ("c9",) == message.calls
    assert ["opaque"] == [item.kind.value for item in message.items]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}},
        {"type": "refusal", "refusal": "no"},
        {"type": "x_new", "text": "a"},
    ],
)
def test_parts_that_stay(part: dict[str, Any]) -> None:
    """Audio, files, refusals and parts of tomorrow keep their bytes next to a text that is edited."""
    raw = json.dumps({"role": "assistant", "content": [part, {"type": "text", "text": "long"}]}).encode()
    text, whole = OPENAI.read(raw, "f").items
    assert (ItemKind.TEXT, ItemKind.OPAQUE) == (text.kind, whole.kind)
    assert [part, {"type": "text", "text": "s"}] == json.loads(OPENAI.write(raw, {text: "s"}))["content"]


def variant(model: str, first: Any = None, **members: Any) -> Format:
    """The format of a body for a model, whose first message is a user's unless another is given."""
    body = members | {"messages": [first or {"role": "user", "content": "x"}]}
    assert OPENAI.variant is not None
    return OPENAI.variant(split(json.dumps(body).encode()), model)


@pytest.mark.parametrize(
    "model", ["mistral-large-latest", "open-mistral-7b", "magistral-small", "mistralai/Mixtral-8x7B-Instruct-v0.1"]
)
def test_a_model_that_takes_system_messages_first_only(model: str) -> None:
    """Its provider refuses one anywhere else."""
    assert variant(model).placement.lists is Stands.LEADING


@pytest.mark.parametrize(("model", "none"), [("o1-mini", True), ("o1-preview-2024-09-12", True), ("o1", False)])
def test_a_model_that_takes_no_system_message(model: str, none: bool) -> None:
    """The first reasoning models refuse every system message, so none of ours is written."""
    assert none is (variant(model).placement.message is None)


@pytest.mark.parametrize(
    ("first", "role"),
    [
        ({"role": "developer", "content": "Be."}, "developer"),
        ({"content": "Be.", "role": "developer"}, "developer"),
        ({"role": "system", "content": "developer"}, "system"),
        ({"role": "user", "content": [{"role": "developer"}]}, "system"),
        (["developer"], "system"),
    ],
)
def test_role_of_our_text(first: Any, role: str) -> None:
    """It is the developer's where the body's first message is, as the two are not mixed."""
    write = variant("gpt-5", first).placement.message
    assert write is not None
    assert {"role": role, "content": "ours"} == json.loads(write("ours"))


def test_variants_are_few() -> None:
    """The same kind of body is the same format: another object would make another history of it."""
    assert OPENAI is variant("gpt-5")
    assert variant("mistral-a") is variant("mistral-b")


@pytest.mark.parametrize("content", ["out", [{"type": "text", "text": "out"}]])
def test_a_tools_text_answers_its_call(content: object) -> None:
    """A tool's text is a result of the call that it answers."""
    message = read(OPENAI, {"role": "tool", "tool_call_id": "c1", "name": "grep", "content": content})
    assert ("c1",) == message.answers
    item = message.items[0]
    assert (ItemKind.RESULT, "out", "c1", "grep", 0) == (item.kind, item.text, item.call_id, item.tool, item.result)


@pytest.mark.parametrize(
    "member",
    [
        {"reasoning_effort": "hm"},
        {"x_new": {"a": [1]}},
        {"refusal": "no"},
        {"audio": {"id": "a"}},
        {"annotations": [1]},
    ],
)
def test_unknown_members(member: dict[str, Any]) -> None:
    """A member that nobody knows is weighed, stashed with its message, and part of its identity."""
    plain = {"role": "assistant", "content": "a"}
    message = read(OPENAI, plain | member)
    assert ItemKind.OPAQUE == message.items[-1].kind
    assert message.other
    assert identity(OPENAI, plain) != message.identity


BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
SAME: list[tuple[Any, Any]] = [
    (ASSISTANT, ASSISTANT | {"refusal": None, "audio": None, "x": None}),
    (ASSISTANT, ASSISTANT | {"cache_control": {"type": "ephemeral"}}),
    ({"role": "assistant", "tool_calls": [CALL]}, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    (
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
    ),
    *(
        ({"role": role, "content": [part]}, {"role": role, "content": [part | BREAKPOINT]})
        for role in ("user", "tool")
        for part in (
            {"type": "text", "text": "a"},
            IMAGE,
            {"type": "file", "file": {"file_data": "data:a/b;base64,AA=="}},
        )
    ),
    ({"role": "tool", "content": "a"}, {"role": "tool", "content": [{"type": "text", "text": "a"} | BREAKPOINT]}),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=range(len(SAME)))
def test_same_identity(one: Any, other: Any) -> None:
    """Cache marks and members that are null come and go."""
    assert identity(OPENAI, one) == identity(OPENAI, other)
    first, second = read(OPENAI, one), read(OPENAI, other)
    assert (first.other, first.items[0].text) == (second.other, second.items[0].text)


OTHER = [
    ASSISTANT | {"content": "I look"},
    ASSISTANT | {"content": "I look. "},
    ASSISTANT | {"role": "user"},
    ASSISTANT | {"name": "bob"},
    ASSISTANT | {"tool_calls": []},
    ASSISTANT | {"tool_calls": [CALL | {"id": "c2"}]},
    ASSISTANT | {"tool_calls": [CALL | {"cache_control": 1}]},
    ASSISTANT | {"tool_calls": [CALL, CALL]},
    ASSISTANT | {"tool_calls": [CALL | {"function": {"name": "grep", "arguments": '{"q":"é"}'}}]},
    ASSISTANT | {"tool_calls": [CALL | {"function": {"name": "grep ", "arguments": '{"q": "é"}'}}]},
    ASSISTANT | {"content": [{"type": "text", "text": "I look.", "x": None}]},
    ASSISTANT | {"x": False},
    ASSISTANT | {"x": 0},
    ASSISTANT | {"x": ""},
]


@pytest.mark.parametrize("other", OTHER, ids=range(len(OTHER)))
def test_other_identity(other: Any) -> None:
    """Anything else that differs is another message; arguments are text, and text is compared as text."""
    assert identity(OPENAI, ASSISTANT) != identity(OPENAI, other)


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_identity_is_of_what_is_decoded(spelling: str) -> None:
    """Another language's spelling is the same message with the same items."""
    message = ASSISTANT | {"content": "a—<b>&\u2028", "z": 1.0, "a": {"10": 1e3, "9": -0.0}}
    raw = json.dumps(message).encode()
    one, other = OPENAI.read(raw, "f"), OPENAI.read(SPELLINGS[spelling](raw), "f")
    assert one.identity == other.identity
    assert shown(one.items) == shown(other.items)


def test_replacements_take_the_items_places() -> None:
    """Replacements stand where the items stood; all else keeps its bytes."""
    raw = (
        b'{"x":1.50,"role":"assistant","tool_calls":[{"id":"c1",'
        b'"function":{"arguments":"{\\"a\\":1}","name":"f"}}],"content":"\\u0061"}'
    )
    message = OPENAI.read(raw, "f")
    text, call, _ = message.items
    written = OPENAI.write(raw, {call: None})
    assert raw.replace(b'"{\\"a\\":1}"', b'"{}"') == written
    assert raw.replace(b'"\\u0061"', '"né\\"w"'.encode()) == OPENAI.write(raw, {text: 'né"w'})
    again = OPENAI.read(OPENAI.write(raw, {call: None, text: "cut"}), "f")
    assert ["cut", "{}"] == [item.text for item in again.items[:2]]
    assert message.calls == again.calls


def test_write_an_image() -> None:
    """A clipped image is a text part."""
    raw = json.dumps({"role": "user", "content": [IMAGE, {"type": "text", "text": "b"}]}).encode()
    image = OPENAI.read(raw, "f").items[0]
    written = json.loads(OPENAI.write(raw, {image: "[image clipped]"}))
    assert [{"type": "text", "text": "[image clipped]"}, {"type": "text", "text": "b"}] == written["content"]


@pytest.mark.parametrize("mark", [{"cache_control": {"type": "ephemeral"}}, BREAKPOINT])
def test_write_an_image_that_is_marked(mark: dict[str, Any]) -> None:
    """Where the agent wants its cache to break, it still breaks."""
    raw = json.dumps({"role": "user", "content": [IMAGE | mark]}).encode()
    written = json.loads(OPENAI.write(raw, {OPENAI.read(raw, "f").items[0]: "[gone]"}))
    assert [{"type": "text", "text": "[gone]"} | mark] == written["content"]


def test_write_nothing() -> None:
    """Without replacements the message is the very bytes."""
    raw = b'{ "role":"user", "content":"x" }'
    assert raw is OPENAI.write(raw, {})


def test_the_original_of_each_kind_of_item() -> None:
    """The original of a text and of arguments is its UTF-8, of an image its raw JSON, of a message the message."""
    raw = (
        b'{"role":"assistant","content":[{"type":"text","text":"\\u00e9"},{"image_url":{"url":"u"},'
        b' "type":"image_url"}],"tool_calls":[{"id":"c","function":{"name":"f",'
        b'"arguments":"{\\"a\\": 1}"}}],"x":1}'
    )
    message = OPENAI.read(raw, "f")
    assert [
        "é".encode(),
        b'{"image_url":{"url":"u"}, "type":"image_url"}',
        b'{"a": 1}',
        raw,
    ] == [OPENAI.original(raw, item) for item in message.items]


def test_system_message() -> None:
    """A system message reads back as one text."""
    assert OPENAI.placement.message is not None
    message = OPENAI.read(OPENAI.placement.message('a "b"\n'), "f")
    assert (Role.SYSTEM, ['a "b"\n']) == (message.role, [item.text for item in message.items])


BAD = [
    ([], ""),
    ("x", ""),
    (1, ""),
    (None, ""),
    ({}, ".role"),
    ({"role": 1}, ".role"),
    ({"role": None}, ".role"),
    ({"role": "user", "content": 1}, ".content"),
    ({"role": "user", "content": {}}, ".content"),
    ({"role": "user", "content": False}, ".content"),
    ({"role": "user", "content": ["x"]}, ".content[0]"),
    ({"role": "user", "content": [{"type": "text", "text": "a"}, None]}, ".content[1]"),
    ({"role": "assistant", "tool_calls": {}}, ".tool_calls"),
    ({"role": "assistant", "tool_calls": "x"}, ".tool_calls"),
    ({"role": "assistant", "tool_calls": [CALL, 3]}, ".tool_calls[1]"),
]


@pytest.mark.parametrize(("message", "field"), BAD, ids=range(len(BAD)))
def test_bad_shapes(message: Any, field: str) -> None:
    """A wrong shape is refused by the name of where it is."""
    with pytest.raises(InvalidJson) as caught:
        read(OPENAI, message)
    assert "json.body.messages[2]" + field == caught.value.field


ODD: list[Any] = [
    {"role": "user"},
    {"role": "", "content": "x"},
    {"role": "user", "content": [{}]},
    {"role": "user", "content": [{"type": 1, "text": []}]},
    {"role": "user", "content": [{"type": "text", "text": 1}]},
    {"role": "user", "content": [{"type": ["text"]}]},
    {"role": "user", "content": [{"type": {"a": 1}}]},
    {"role": "assistant", "tool_calls": [{}]},
    {"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": 1, "arguments": "{}"}}]},
    {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"a": 1}}}]},
    {"role": "assistant", "function_call": "auto"},
    {"role": "tool", "tool_call_id": None, "content": "x"},
    {"role": "tool", "tool_call_id": ["a"], "name": {"a": 1}, "content": "x"},
]


@pytest.mark.parametrize("message", ODD, ids=range(len(ODD)))
def test_odd_shapes_pass_through(message: Any) -> None:
    """What the provider may refuse or not is no business of ours: it is read, and its parts of unknown kind kept."""
    raw = json.dumps(message).encode()
    found = OPENAI.read(raw, "f")
    assert raw == OPENAI.write(raw, {})
    assert all(OPENAI.original(raw, item) for item in found.items)
