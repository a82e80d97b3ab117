"""Typed messages: their items, their identity, and writing them back without losing what we do not know."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import Parse

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.v1 import conversation_pb2 as pb
from tests.prompt.reading import shown

TYPED = FORMATS["conversation"]
IMAGE = pb.Image(media_type="image/png", data=b"\x00\xff")
FULL = pb.Message(
    role=pb.ROLE_ASSISTANT,
    parts=[
        pb.Part(text="I look."),
        pb.Part(tool_call=pb.ToolCall(id="c1", name="grep", arguments_json='{"q": 1}')),
        pb.Part(tool_result=pb.ToolResult(call_id="c0", text="out", images=[IMAGE])),
        pb.Part(image=IMAGE),
        pb.Part(opaque_json='{"b":1,"a":2}'),
    ],
)


def test_each_part_is_an_item_of_its_kind() -> None:
    """Each part is an item of its kind, at its place."""
    message = TYPED.read(FULL.SerializeToString(), "f")
    assert Role.ASSISTANT == message.role
    assert [
        (ItemKind.TEXT, (0,), -1),
        (ItemKind.ARGUMENTS, (1,), -1),
        (ItemKind.RESULT, (2,), 0),
        (ItemKind.IMAGE, (2, 0), 0),
        (ItemKind.IMAGE, (3,), -1),
        (ItemKind.OPAQUE, (), -1),
    ] == [(item.kind, item.path, item.result) for item in message.items]
    assert (("c1",), ("c0",)) == (message.calls, message.answers)
    assert 2 == message.media
    assert 'grep\n{"a":2.0,"b":1.0}' == message.other


def test_replacements_take_the_items_places() -> None:
    """Replacements stand where the items stood, and the rest is as it came."""
    raw = FULL.SerializeToString(deterministic=True)
    items = TYPED.read(raw, "f").items
    new = {items[0]: "t", items[1]: None, items[2]: "r", items[3]: "[image]", items[4]: "[image]"}
    again = TYPED.read(TYPED.write(raw, new), "f")
    assert ["t", "{}", "r"] == [item.text for item in again.items[:3]]
    written = pb.Message.FromString(TYPED.write(raw, new))
    assert pb.Image(media_type="text/plain", data=b"[image]") == written.parts[2].tool_result.images[0]
    assert "[image]" == written.parts[3].text
    assert FULL.parts[4] == written.parts[4]


def test_write_nothing() -> None:
    """Without replacements the message is the same."""
    raw = FULL.SerializeToString(deterministic=True)
    assert raw == TYPED.write(raw, {})


def test_fields_of_a_later_version() -> None:
    """A field that we do not know survives an edit."""
    later = FULL.SerializeToString(deterministic=True) + b"\xfa\x3e\x03new"
    item = TYPED.read(later, "f").items[0]
    assert b"\xfa\x3e\x03new" in TYPED.write(later, {item: "t"})


def test_the_original_of_each_kind_of_item() -> None:
    """The original of a text is its UTF-8, of an image and of a message its protobuf JSON."""
    raw = FULL.SerializeToString(deterministic=True)
    originals = [TYPED.original(raw, item) for item in TYPED.read(raw, "f").items]
    assert [b"I look.", b'{"q": 1}', b"out"] == originals[:3]
    assert [IMAGE, IMAGE] == [Parse(text, pb.Image()) for text in originals[3:5]]
    assert FULL == Parse(originals[5], pb.Message())


def test_two_encodings_of_a_message_are_one() -> None:
    """Two encodings of one message are the same; another text is not."""
    one = pb.Message(role=pb.ROLE_USER, parts=[pb.Part(text="a")]).SerializeToString()
    part = b"\x12\x03\x0a\x01a"
    assert part in one
    respelled = part + one.replace(part, b"")
    assert TYPED.read(one, "f").identity == TYPED.read(respelled, "f").identity
    assert TYPED.read(one, "f").identity != TYPED.read(one.replace(b"a", b"b"), "f").identity


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.Message(parts=[pb.Part(text="a")]), "m[1].role"),
        (pb.Message(role=99, parts=[pb.Part(text="a")]), "m[1].role"),  # type: ignore[arg-type]
        (pb.Message(role=pb.ROLE_USER, parts=[pb.Part()]), "m[1].parts[0]"),
        (
            pb.Message(role=pb.ROLE_USER, parts=[pb.Part(text="a"), pb.Part(opaque_json="{")]),
            "m[1].parts[1].opaque_json",
        ),
        (pb.Message(role=pb.ROLE_USER, parts=[pb.Part(opaque_json='{"a":1,}')]), "m[1].parts[0].opaque_json"),
    ],
)
def test_bad_messages(message: pb.Message, field: str) -> None:
    """A role that is not said, a part of no kind, a text that is not JSON: refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        TYPED.read(message.SerializeToString(), "m[1]")
    assert field == caught.value.field


@pytest.mark.parametrize("raw", [b"\xff", b"\x12\x05a", b'{"role":"user"}'])
def test_not_a_message(raw: bytes) -> None:
    """Bytes that are no message are refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        TYPED.read(raw, "m[1]")
    assert "m[1]" == caught.value.field


def test_empty_parts() -> None:
    """A message without content is an item as a whole."""
    raw = pb.Message(role=pb.ROLE_USER, parts=[pb.Part(text="")]).SerializeToString()
    assert [("opaque", (), "")] == shown(TYPED.read(raw, "f").items)
    assert [("opaque", (), "")] == shown(TYPED.read(pb.Message(role=pb.ROLE_TOOL).SerializeToString(), "f").items)


def test_system_message() -> None:
    """A system message reads back as one text."""
    assert TYPED.placement.message is not None
    message = TYPED.read(TYPED.placement.message("ours"), "f")
    assert (Role.SYSTEM, [("text", (0,), "ours")]) == (message.role, shown(message.items))


def test_arguments_are_text() -> None:
    """Arguments that are not JSON pass through as they came."""
    call = pb.ToolCall(id="a", name="b", arguments_json="{not json")
    raw = pb.Message(role=pb.ROLE_ASSISTANT, parts=[pb.Part(tool_call=call)]).SerializeToString()
    assert "{not json" == TYPED.read(raw, "f").items[0].text
    assert json.loads("{}") == json.loads(pb.Message.FromString(
        TYPED.write(raw, {TYPED.read(raw, "f").items[0]: None})
    ).parts[0].tool_call.arguments_json)  # fmt: skip
