"""Gemini's contents: their items, their identity, and writing them back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import ItemKind, Role
from tests.oracle.respell import SPELLINGS
from tests.prompt.reading import identity, read, shown

GEMINI: Format = FORMATS["gemini_contents"]

TEXT = {"text": "I look."}
SIGNED = {"thoughtSignature": "c2lnbmF0dXJl"}
CALL = {"functionCall": {"id": "c1", "name": "grep", "args": {"q": "é", "a": 1.0}}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
SNAKE_IMAGE = {"file_data": {"mime_type": "image/png", "file_uri": "gs://a/b.png", "display_name": "b"}}


def response(value: Any, **more: Any) -> dict[str, Any]:
    """A function response."""
    return {"functionResponse": {"id": "c1", "name": "grep", "response": value, **more}}


def plain(text: str) -> str:
    """A text as a plain text file's data."""
    return base64.b64encode(text.encode()).decode()


ROLES = [
    ({"role": "user"}, Role.USER),
    ({}, Role.USER),
    ({"role": None}, Role.USER),
    ({"role": "model"}, Role.ASSISTANT),
    ({"role": "function"}, Role.TOOL),
    ({"role": "x"}, Role.OTHER),
]


@pytest.mark.parametrize(("message", "role"), ROLES, ids=range(len(ROLES)))
def test_every_role_has_its_meaning(message: Any, role: Role) -> None:
    """Every role has its meaning, none is the user's; one that nobody knows passes through."""
    assert role == read(GEMINI, {**message, "parts": [TEXT]}).role


OPAQUE = ("opaque", (), "")
LOOKED = ("text", ("parts", 0, "text"), "I look.")


@pytest.mark.parametrize(
    ("parts", "items"),
    [
        (None, [OPAQUE]),
        ([], [OPAQUE]),
        (TEXT, [("text", ("parts", "text"), "I look.")]),
        ([TEXT, {"text": ""}], [LOOKED]),
        ([TEXT | {"thought": False, "functionCall": None}], [LOOKED]),
        ([TEXT | {"thought": True}], [("reasoning", ("parts", 0), ""), ("reasoning", ("parts", 0, "text"), "I look.")]),
        ([TEXT | SIGNED], [LOOKED, OPAQUE]),
        ([{"text": ""} | SIGNED], [OPAQUE]),
        ([TEXT | {"xNew": 1}], [LOOKED, OPAQUE]),
        ([{"executableCode": {"code": "1"}}], [OPAQUE]),
        ([{"toolCall": {"id": "a"}}], [OPAQUE]),
        ([{"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a"}}], [OPAQUE]),
        ([SNAKE_IMAGE | SIGNED], [OPAQUE]),
    ],
)
def test_texts_are_items_and_thoughts_stay(parts: Any, items: list[Any]) -> None:
    """Texts are items, an array of one part may be left out; thoughts and what nobody knows stay."""
    assert items == shown(read(GEMINI, {"role": "model", "parts": parts}).items)


@pytest.mark.parametrize("kind", ["functionCall", "function_call"])
def test_a_call_is_its_sorted_arguments(kind: str) -> None:
    """A call is its arguments as sorted, compact JSON, with the call's id and tool."""
    message = read(GEMINI, {"role": "model", "parts": [TEXT, {kind: CALL["functionCall"]}]})
    assert ("c1",) == message.calls
    item = message.items[1]
    assert ("parts", 1, kind, "args") == item.path
    assert ('{"a":1.0,"q":"é"}', "c1", "grep", False) == (item.text, item.call_id, item.tool, item.fixed)
    assert "application/json" == item.content_type


@pytest.mark.parametrize("name", ["thoughtSignature", "thought_signature"])
def test_signed_parts_stay_as_they_are(name: str) -> None:
    """What has a signature is recorded and stays as it is; the calls next to it are edited."""
    parts = [TEXT | {name: "c2ln"}, CALL | {name: "c2ln"}, CALL]
    message = read(GEMINI, {"role": "model", "parts": parts})
    assert [True, True, False, False] == [item.fixed for item in message.items]
    assert ItemKind.OPAQUE == message.items[-1].kind


@pytest.mark.parametrize(
    "value", ["skip_thought_signature_validator", plain("context_engineering_is_the_way_to_go"), None]
)
def test_signed_by_nobody(value: str | None) -> None:
    """What the guides give to those who have no signature is none."""
    message = read(GEMINI, {"role": "model", "parts": [CALL | {"thoughtSignature": value}]})
    assert [("arguments", False)] == [(item.kind.value, item.fixed) for item in message.items]


def test_without_ids() -> None:
    """Calls and responses without ids pair by name."""
    call = {"functionCall": {"name": "grep", "args": {}}}
    made = read(GEMINI, {"role": "model", "parts": [call, call, CALL]})
    parts = [{"functionResponse": {"name": "grep", "response": {"a": "x"}}}, response({"a": "x"})]
    answered = read(GEMINI, {"role": "user", "parts": parts})
    assert ("name:grep", "name:grep", "c1") == made.calls
    assert ("name:grep", "c1") == answered.answers
    assert ["name:grep", "c1"] == [item.call_id for item in answered.items]


AT = ("parts", 0, "functionResponse", "response")


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ({"output": "out"}, [("result", (*AT, "output"), "out")]),
        (
            {"status": "ok", "report": "r", "more": ""},
            [("result", (*AT, "report"), "r"), ("result", (*AT, "status"), "ok")],
        ),
        ({"rows": [1, {"b": 1.5, "a": "x"}]}, [("result", (*AT, "rows"), '[1,{"a":"x","b":1.5}]')]),
        ({"response": None}, [("result", (*AT, "response"), "null")]),
        ({"output": "out", "code": 0}, [("result", AT, '{"code":0,"output":"out"}')]),
        (
            {str(n): "x" for n in range(17)},
            [("result", AT, json.dumps({str(n): "x" for n in range(17)}, sort_keys=True, separators=(",", ":")))],
        ),
        ({}, [OPAQUE]),
        (None, [OPAQUE]),
        (["x"], [OPAQUE]),
    ],
    ids=range(9),
)
def test_texts_in_a_response_are_items(value: Any, items: list[Any]) -> None:
    """The texts of an object around texts are items; any other object is one, as a whole."""
    message = read(GEMINI, {"role": "user", "parts": [response(value)]})
    assert items == shown(message.items)
    assert ("c1",) == message.answers


def test_media_in_responses() -> None:
    """Images and plain text files of a response are items of it; what else it holds is kept."""
    file = {"inlineData": {"mimeType": "text/plain", "data": plain("né").replace("+", "-")}}
    pdf = {"inlineData": {"mimeType": "application/pdf", "data": "AA=="}}
    bad = {"inlineData": {"mimeType": "text/plain", "data": "%"}}
    part = response({"output": "out"}, parts=[IMAGE, SNAKE_IMAGE, file, pdf, bad])
    message = read(GEMINI, {"role": "user", "parts": [TEXT, part]})
    at = ("parts", 1, "functionResponse", "parts")
    assert [
        ("result", (*AT[:1], 1, *AT[2:], "output"), 0),
        ("image", (*at, 0), 0),
        ("image", (*at, 1), 0),
        ("result", (*at, 2, "inlineData", "data"), 0),
        ("opaque", (), -1),
    ] == [(item.kind.value, item.path, item.result) for item in message.items[1:]]
    assert "né" == message.items[4].text
    assert ("application/pdf" in message.other, "%" in message.other) == (True, True)


PLAIN: dict[str, Any] = {"role": "user", "parts": [response({"a": "x"}), TEXT, CALL]}


def test_nulls_are_no_part_of_identity() -> None:
    """Members of a message or a part that are null come and go, as does the array around one part."""
    parts = [response({"a": "x"}), TEXT | {"functionCall": None}, CALL | {"thoughtSignature": None}]
    assert identity(GEMINI, PLAIN) == identity(GEMINI, {"role": "user", "parts": parts, "x": None})
    assert identity(GEMINI, {"role": "user", "parts": [TEXT]}) == identity(GEMINI, {"role": "user", "parts": TEXT})


OTHER = [
    PLAIN | {"role": "model"},
    PLAIN | {"x": 1},
    PLAIN | {"parts": [TEXT, response({"a": "x"}), CALL]},
    PLAIN | {"parts": [response({"a": None}), TEXT, CALL]},
    PLAIN | {"parts": [response({"a": "x"}), TEXT | {"thought": True}, CALL]},
    PLAIN | {"parts": [response({"a": "x"}), TEXT, CALL | SIGNED]},
]


@pytest.mark.parametrize("other", OTHER, ids=range(len(OTHER)))
def test_other_identity(other: Any) -> None:
    """Anything else that differs is another message."""
    assert identity(GEMINI, PLAIN) != identity(GEMINI, other)


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_identity_is_of_what_is_decoded(spelling: str) -> None:
    """Another language's spelling is the same message with the same items."""
    call = {"functionCall": {"name": "f", "args": {"z": 1.0, "a": {"10": 1e3, "é": "\u2028"}}}}
    raw = json.dumps({"role": "user", "parts": [{"text": "a—<b>&"}, call, response({"n": 1e3, "b": [-0.0]})]}).encode()
    one, other = GEMINI.read(raw, "f"), GEMINI.read(SPELLINGS[spelling](raw), "f")
    assert one.identity == other.identity
    assert shown(one.items) == shown(other.items)


def test_replacements_take_the_items_places() -> None:
    """Replacements stand where the items stood, and read again there are as many items, with the new texts."""
    file = {"inlineData": {"mimeType": "text/plain", "data": plain("file")}}
    parts = [
        TEXT,
        IMAGE,
        CALL,
        response({"a": "x", "response": "y"}, parts=[IMAGE, SNAKE_IMAGE, file]),
        response({"n": [1], "m": 2}),
        response({"response": [1]}),
    ]
    raw = json.dumps({"role": "user", "parts": parts}).encode()
    message = GEMINI.read(raw, "f")
    texts = ["t", "[image]", None, "é", "r", "[one]", "[two]", "f", "{…", "[…"]
    written = GEMINI.write(raw, dict(zip(message.items, texts, strict=True)))
    expected = [
        {"text": "t"},
        {"text": "[image]"},
        {"functionCall": {**CALL["functionCall"], "args": {}}},
        response(
            {"a": "é", "response": "r"},
            parts=[
                {"inlineData": {"mimeType": "text/plain", "data": plain("[one]")}},
                {"inline_data": {"mime_type": "text/plain", "data": plain("[two]"), "display_name": "b"}},
                {"inlineData": {"mimeType": "text/plain", "data": plain("f")}},
            ],
        ),
        response({"result": "{…"}),
        response({"response": "[…"}),
    ]
    assert expected == json.loads(written)["parts"]
    again = GEMINI.read(written, "f")
    assert (message.calls, message.answers) == (again.calls, again.answers)
    assert [text or "{}" for text in texts] == [item.text for item in again.items[: len(texts)]]


def test_write_keeps_other_bytes() -> None:
    """A signature next to an edit keeps its bytes, escapes included; so does a part that is no array."""
    raw = b'{"parts":[{"thoughtSignature":"\\u0041\\/==","text":"kept"},{"text":"long"}],"role":"model"}'
    item = GEMINI.read(raw, "f").items[1]
    assert raw.replace(b'"long"', b'"s"') == GEMINI.write(raw, {item: "s"})
    one = b'{"parts":{"x":"\\u0041","text":"long"}}'
    assert one.replace(b'"long"', b'"s"') == GEMINI.write(one, {GEMINI.read(one, "f").items[0]: "s"})


def test_the_original_of_each_kind_of_item() -> None:
    """The original of a text is its UTF-8, of arguments or a whole response the raw JSON, of a message the message."""
    raw = (
        b'{"role":"user","parts":[{"text":"\\u00e9"},{"functionCall":{"name":"f","args":{"b" : 1.0}}},'
        b'{"functionResponse":{"name":"f","response":{"n" : 1}}},'
        b'{"functionResponse":{"name":"f","response":{"n" : 1, "m":2}}},'
        b'{"functionResponse":{"name":"f","response":{"a" : "\\u00e9"}}},{"x":{}}]}'
    )
    message = GEMINI.read(raw, "f")
    originals = [GEMINI.original(raw, item) for item in message.items]
    assert ["é".encode(), b'{"b" : 1.0}', b"1", b'{"n" : 1, "m":2}', "é".encode(), raw] == originals


BAD = [
    ([], ""),
    ({"role": 1, "parts": [TEXT]}, ".role"),
    ({"role": "user", "parts": "x"}, ".parts"),
    ({"role": "user", "parts": ["x"]}, ".parts[0]"),
    ({"role": "user", "parts": [response({}, parts=1)]}, ".parts[0].functionResponse.parts"),
    ({"role": "user", "parts": [TEXT, response({}, parts=[1])]}, ".parts[1].functionResponse.parts[0]"),
]


@pytest.mark.parametrize(("message", "field"), BAD, ids=range(len(BAD)))
def test_bad_shapes(message: Any, field: str) -> None:
    """A wrong shape is refused by the name of where it is."""
    with pytest.raises(InvalidJson) as caught:
        read(GEMINI, message)
    assert "json.body.messages[2]" + field == caught.value.field


ODD: list[Any] = [
    {"parts": [{}]},
    {"parts": [{"text": 1}]},
    {"parts": [{"functionCall": 1}, {"functionResponse": "x"}]},
    {"parts": [{"functionCall": {"name": 1, "id": 2, "args": "text"}}, {"functionCall": {}}]},
    {"parts": [{"functionResponse": {}}, {"functionResponse": {"response": 4, "parts": {"x": 1}}}]},
    {"parts": [{"inlineData": {"mimeType": 1}}, {"inlineData": "x"}, {"thoughtSignature": {"a": []}}]},
    {"parts": [{"functionResponse": {"parts": [{"inlineData": {"mimeType": "text/plain", "data": "=="}}]}}]},
]


@pytest.mark.parametrize("message", ODD, ids=range(len(ODD)))
def test_odd_shapes_pass_through(message: Any) -> None:
    """What the provider may refuse or not is no business of ours: it is read, and its parts of unknown kind kept."""
    raw = json.dumps(message).encode()
    found = GEMINI.read(raw, "f")
    assert raw == GEMINI.write(raw, {})
    assert all(GEMINI.original(raw, item) for item in found.items)
