"""The AI SDK's model messages: their items, their identity, writing them back, and the system prompt next to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import ItemKind, Role
from tests.oracle.respell import SPELLINGS
from tests.prompt.reading import fault, identity, read, shown

SDK = FORMATS["ai_sdk"]
OPTIONS = {"providerOptions": {"anthropic": {"cacheControl": {"type": "ephemeral"}}}}
TEXT = {"type": "text", "text": "I look."}
CALL = {"type": "tool-call", "toolCallId": "c1", "toolName": "grep", "input": {"q": "é", "n": 1}}
IMAGE = {"type": "image", "image": "AA==", "mediaType": "image/png"}
REASONING = {"type": "reasoning", "text": "hm", "providerOptions": {"x": {"signature": "sig=="}}}


def result(output: Any, **members: Any) -> dict[str, Any]:
    """A tool's result with this output."""
    return {"type": "tool-result", "toolCallId": "c1", "toolName": "grep", "output": output} | members


@pytest.mark.parametrize(
    ("name", "role"),
    [("system", Role.SYSTEM), ("user", Role.USER), ("assistant", Role.ASSISTANT), ("x", Role.OTHER)],
)
def test_every_role_has_its_meaning(name: str, role: Role) -> None:
    """Every role has its meaning; one that nobody knows passes through."""
    assert role == read(SDK, {"role": name, "content": "x"}).role


@pytest.mark.parametrize(
    ("content", "items"),
    [
        ("héllo", [("text", ("content",), "héllo")]),
        ("", [("opaque", (), "")]),
        ([], [("opaque", (), "")]),
        ([TEXT, {"type": "text", "text": ""}], [("text", ("content", 0, "text"), "I look.")]),
        (
            [REASONING, TEXT],
            [
                ("reasoning", ("content", 0), "sig=="),
                ("reasoning", ("content", 0, "text"), "hm"),
                ("text", ("content", 1, "text"), "I look."),
            ],
        ),
        ([{"type": "x-new", "text": "a"}], [("opaque", (), "")]),
        ([{"type": "file", "data": "AA==", "mediaType": "application/pdf"}], [("opaque", (), "")]),
    ],
)
def test_texts_and_reasoning_are_items(content: Any, items: list[Any]) -> None:
    """Texts and reasoning are items; files and parts of tomorrow stay, and make the whole message opaque."""
    assert items == shown(read(SDK, {"role": "assistant", "content": content}).items)


@pytest.mark.parametrize("part", [IMAGE, {"type": "file", "data": "https://x/a.png", "mediaType": "image/png"}])
def test_an_image_becomes_a_text_part(part: dict[str, Any]) -> None:
    """An image is one under either name, and becomes a text part that keeps its options."""
    raw = json.dumps({"role": "user", "content": [part | OPTIONS]}).encode()
    message = SDK.read(raw, "f")
    assert ([ItemKind.IMAGE], 1) == ([item.kind for item in message.items], message.media)
    written = json.loads(SDK.write(raw, {message.items[0]: "[image]"}))["content"]
    assert [{"type": "text", "text": "[image]"} | OPTIONS] == written


def test_a_clipped_call_keeps_an_empty_input() -> None:
    """A call is its input; clipped, it is empty, and the call stays."""
    raw = json.dumps({"role": "assistant", "content": [TEXT, CALL | {"providerExecuted": False}]}).encode()
    message = SDK.read(raw, "f")
    assert ("c1",) == message.calls
    item = message.items[1]
    assert (ItemKind.ARGUMENTS, ("content", 1, "input"), "c1", "grep") == (
        item.kind,
        item.path,
        item.call_id,
        item.tool,
    )
    assert {"q": "é", "n": 1} == json.loads(item.text) == json.loads(SDK.original(raw, item))
    again = json.loads(SDK.write(raw, {item: None}))["content"]
    assert [TEXT, CALL | {"input": {}, "providerExecuted": False}] == again


def test_call_with_text() -> None:
    """A tool that takes text gets an empty one."""
    raw = json.dumps({"role": "assistant", "content": [CALL | {"input": "*** patch"}]}).encode()
    item = SDK.read(raw, "f").items[0]
    assert "" == json.loads(SDK.write(raw, {item: None}))["content"][0]["input"]


@pytest.mark.parametrize("kind", ["text", "error-text"])
def test_text_output(kind: str) -> None:
    """An output of text is a result as it is, in a tool's message or the assistant's own."""
    for role in ("tool", "assistant"):
        raw = json.dumps({"role": role, "content": [result({"type": kind, "value": "out"} | OPTIONS)]}).encode()
        message = SDK.read(raw, "f")
        item = message.items[0]
        assert (("c1",), "out", "c1", "grep", 0) == (message.answers, item.text, item.call_id, item.tool, item.result)
        written = json.loads(SDK.write(raw, {item: "cut"}))["content"]
        assert [result({"type": kind, "value": "cut"} | OPTIONS)] == written


@pytest.mark.parametrize(("kind", "becomes"), [("json", "text"), ("error-json", "error-text")])
def test_json_output(kind: str, becomes: str) -> None:
    """JSON that is cut is text, and says so; its original is the JSON as it came."""
    raw = (
        b'{"role":"tool","content":[{"type":"tool-result","toolCallId":"c1","toolName":"f","output":'
        b'{"type":"%s","value":{"b": 1.0,"a":[]},"providerOptions":{}}}]}' % kind.encode()
    )
    item = SDK.read(raw, "f").items[0]
    assert (ItemKind.RESULT, '{"a":[],"b":1}', "application/json") == (item.kind, item.text, item.content_type)
    assert b'{"b": 1.0,"a":[]}' == SDK.original(raw, item)
    written = SDK.write(raw, {item: '{"a":'})
    output = json.loads(written)["content"][0]["output"]
    assert {"type": becomes, "value": '{"a":', "providerOptions": {}} == output
    again = SDK.read(written, "f").items[0]
    assert (ItemKind.RESULT, '{"a":', 0) == (again.kind, again.text, again.result), "the same item, trimmed"


def test_content_output() -> None:
    """Each text and each image of an output of parts is an item; all else stays."""
    file = {"type": "file-data", "data": "AA==", "mediaType": "application/pdf"}
    picture = {"type": "media", "data": "AA==", "mediaType": "image/png"}
    parts = [TEXT, picture, {"type": "image-url", "url": "u"}, file, {"type": "custom"}]
    raw = json.dumps({"role": "tool", "content": [result({"type": "content", "value": parts})]}).encode()
    message = SDK.read(raw, "f")
    assert ["result", "image", "image", "opaque"] == [item.kind.value for item in message.items]
    assert [0, 0, 0, -1] == [item.result for item in message.items]
    written = json.loads(SDK.write(raw, dict.fromkeys(message.items[:3], "cut")))["content"][0]["output"]["value"]
    assert [{"type": "text", "text": "cut"}] * 3 + [file, {"type": "custom"}] == written


@pytest.mark.parametrize(
    "output",
    [
        {"type": "execution-denied", "reason": "no"},
        {"type": "json", "value": None},
        {"type": "text", "value": 1},
        {"type": "x-new", "value": "a"},
        None,
        "text",
    ],
)
def test_outputs_that_stay(output: Any) -> None:
    """What holds no text that we know is still an answer to its call."""
    message = read(SDK, {"role": "tool", "content": [result(output)]})
    assert (("c1",), ["opaque"]) == (message.answers, [item.kind.value for item in message.items])


def test_an_approval_is_paired_like_a_call() -> None:
    """An approval is asked and answered like a call of its own, which no call's id can meet."""
    request = {"type": "tool-approval-request", "approvalId": "c1", "toolCallId": "c1"}
    response = {"type": "tool-approval-response", "approvalId": "c1", "approved": True}
    asked = read(SDK, {"role": "assistant", "content": [CALL, request]})
    answered = read(SDK, {"role": "tool", "content": [response]})
    assert ("c1", asked.calls[1]) == asked.calls
    assert (asked.calls[1],) == answered.answers
    assert "c1" != asked.calls[1]
    assert [ItemKind.ARGUMENTS, ItemKind.OPAQUE] == [item.kind for item in asked.items]


def test_results_are_numbered_with_approvals() -> None:
    """A result's number is its place among the message's answers."""
    response = {"type": "tool-approval-response", "approvalId": "a", "approved": True}
    message = read(SDK, {"role": "tool", "content": [response, result({"type": "text", "value": "out"})]})
    assert (2, 1) == (len(message.answers), message.items[0].result)


def test_options_stay() -> None:
    """Options of a message, a part and a result keep their bytes next to an edit."""
    raw = (
        b'{"role":"assistant","content":[{"type":"text","text":"long","providerOptions":{ }}],'
        b'"providerOptions":{"a":1.50}}'
    )
    text = SDK.read(raw, "f").items[0]
    assert raw.replace(b'"long"', b'"s"') == SDK.write(raw, {text: "s"})


SAME = [
    ({"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}),
    ({"role": "user", "content": "a"}, {"role": "user", "content": "a", "providerOptions": None}),
    (
        {"role": "assistant", "content": [CALL]},
        {"role": "assistant", "content": [CALL | {"input": {"n": 1.0, "q": "é"}}]},
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=range(len(SAME)))
def test_same_identity(one: Any, other: Any) -> None:
    """A string is one text part; absent and null are the same; a number is its value."""
    assert identity(SDK, one) == identity(SDK, other)


@pytest.mark.parametrize(
    "other",
    [
        {"role": "assistant", "content": [CALL | {"toolCallId": "c2"}]},
        {"role": "assistant", "content": [CALL | {"input": {"q": "é", "n": 2}}]},
        {"role": "assistant", "content": [CALL, CALL]},
        {"role": "assistant", "content": [CALL], **OPTIONS},
        {"role": "tool", "content": [CALL]},
    ],
)
def test_other_identity(other: Any) -> None:
    """Anything else that differs is another message."""
    assert identity(SDK, {"role": "assistant", "content": [CALL]}) != identity(SDK, other)


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_identity_is_of_what_is_decoded(spelling: str) -> None:
    """Another language's spelling is the same message with the same items, JSON outputs included."""
    output = {"type": "json", "value": {"z": 1.0, "a": {"10": 1e3, "9": -0.0, "é": "\u2028<b>"}}}
    raw = json.dumps({"role": "tool", "content": [result(output)]}).encode()
    one, other = SDK.read(raw, "f"), SDK.read(SPELLINGS[spelling](raw), "f")
    assert one.identity == other.identity
    assert shown(one.items) == shown(other.items)


BAD: list[tuple[Any, str]] = [
    ([], ""),
    ({"content": "x"}, ".role"),
    ({"role": 1, "content": "x"}, ".role"),
    ({"role": "user"}, ".content"),
    ({"role": "user", "content": {}}, ".content"),
    ({"role": "user", "content": [TEXT, None]}, ".content[1]"),
]


@pytest.mark.parametrize(("message", "field"), BAD, ids=range(len(BAD)))
def test_bad_shapes(message: Any, field: str) -> None:
    """A wrong shape is refused by the name of where it is."""
    assert "json.body.messages[2]" + field == fault(lambda: read(SDK, message))


ODD: list[Any] = [
    {"role": "user", "content": [{}]},
    {"role": "user", "content": [{"type": ["text"], "text": "x"}]},
    {"role": "assistant", "content": [{"type": "tool-call"}]},
    {"role": "assistant", "content": [CALL | {"toolCallId": 1, "toolName": None, "input": None}]},
    {"role": "assistant", "content": [{"type": "tool-approval-request"}]},
    {"role": "tool", "content": [{"type": "tool-result"}]},
    {"role": "tool", "content": [result({"type": "content", "value": [1, None, {"type": "text"}]})]},
]


@pytest.mark.parametrize("message", ODD, ids=range(len(ODD)))
def test_odd_shapes_pass_through(message: Any) -> None:
    """What the SDK may refuse or not is no business of ours: it is read, and what is unknown kept."""
    raw = json.dumps(message).encode()
    found = SDK.read(raw, "f")
    assert raw == SDK.write(raw, {})
    assert all(SDK.original(raw, item) for item in found.items)


def test_a_tool_definition_has_the_sdks_form() -> None:
    """A tool's definition is what `tool` takes, its schema what `jsonSchema` takes."""
    made = json.loads(SDK.tool("recall", "Fetch.", b'{"type":"object"}'))
    assert {"name": "recall", "description": "Fetch.", "inputSchema": {"type": "object"}} == made


OURS = '{"role":"system","content":"ours"}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '"ours"'),
        ("null", '"ours"'),
        ('""', '"ours"'),
        ('"S\\u00e9"', '"S\\u00e9\\n\\nours"'),
        ("[]", f"[{OURS}]"),
        ('{"role":"system", "content":"S"}', '[{"role":"system", "content":"S"},' + OURS + "]"),
        ('[{"role":"system", "content":"S"} ]', '[{"role":"system", "content":"S"} ,' + OURS + "]"),
    ],
)
def test_own_text_is_added_and_removed_again(before: str | None, after: str) -> None:
    """Our text follows what is there in its own shape, and is taken out again, also where it stands twice."""
    assert SDK.system is not None
    value = None if before is None else before.encode()
    made = SDK.system.add(value, "ours")
    assert after == made.decode()
    clean = SDK.system.without(made, lambda text: text == "ours")
    assert "ours" not in clean.decode()
    assert json.loads(made) == json.loads(SDK.system.add(clean, "ours"))
    twice = SDK.system.without(SDK.system.add(made, "ours"), lambda text: text == "ours")
    assert json.loads(clean) == json.loads(twice)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (b'"S"', ["S"]),
        (b'[{"role":"system","content":"S"},{"role":"system","content":1}]', ["S", '{"content":1.0,"role":"system"}']),
        (b"null", []),
    ],
)
def test_system_texts(value: bytes, texts: list[str]) -> None:
    """What is weighed of a system prompt: its texts, and anything else as JSON."""
    assert SDK.system is not None
    assert texts == SDK.system.texts(value)


@pytest.mark.parametrize("value", [b"1", b"true", b"[1]"])
def test_system_refuses(value: bytes) -> None:
    """A system prompt that is neither text nor messages is refused by its name."""
    assert SDK.system is not None
    with pytest.raises(InvalidJson) as caught:
        SDK.system.texts(value)
    assert "json.body.system" == caught.value.field
