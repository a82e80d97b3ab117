"""OpenAI's responses: what each item is, what is edited in it, and where our own text goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.prompt.body import split
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import ItemKind, Role
from tests.prompt.reading import fault, identity, read, shown

RESPONSES: Format = FORMATS["openai_responses"]
IMAGE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": '{"path":"a"}'}
CITED = {"type": "output_text", "text": "so", "annotations": [{"type": "url_citation", "start_index": 0}]}


BREAKPOINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}
OUTPUT = {"type": "function_call_output", "call_id": "c1"}


def written(item: Any, *texts: str | None) -> Any:
    """An item with as many of its parts replaced."""
    raw = json.dumps(item, ensure_ascii=False).encode()
    items = RESPONSES.read(raw, "f").items
    return json.loads(RESPONSES.write(raw, dict(zip(items, texts, strict=False))))


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_a_message_needs_no_type(role: str) -> None:
    """A message is one with or without its type, its text a string or parts."""
    kind = "output_text" if role == "assistant" else "input_text"
    plain = {"role": role, "content": "hello"}
    parts = {"type": "message", "role": role, "content": [{"type": kind, "text": "hello"}], "status": None}
    found = read(RESPONSES, plain)
    assert Role({"developer": "system"}.get(role, role)) is found.role
    assert [("text", ("content",), "hello")] == shown(found.items)
    assert [("text", ("content", 0, "text"), "hello")] == shown(read(RESPONSES, parts).items)
    assert identity(RESPONSES, plain) == identity(RESPONSES, parts)


def test_a_plain_string() -> None:
    """A string in place of the array is a message of the user, the same as one that says so."""
    assert Role.USER is read(RESPONSES, "hello").role
    assert [("text", (), "hello")] == shown(read(RESPONSES, "hello").items)
    assert identity(RESPONSES, "hello") == identity(RESPONSES, {"role": "user", "content": "hello"})


def test_a_call() -> None:
    """A call's arguments are an item; emptied, they are an object still."""
    found = read(RESPONSES, CALL)
    assert (Role.ASSISTANT, ("c1",), ()) == (found.role, found.calls, found.answers)
    assert [("arguments", ("arguments",), '{"path":"a"}')] == shown(found.items)
    assert "read" == found.items[0].tool
    assert CALL | {"arguments": "{}"} == written(CALL, None)


def test_a_custom_call() -> None:
    """A custom tool's input is free text: emptied, it is empty."""
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** Begin"}
    assert ("c1",) == read(RESPONSES, call).calls
    assert "text/plain" == read(RESPONSES, call).items[0].content_type
    assert call | {"input": ""} == written(call, None)


@pytest.mark.parametrize(
    ("kind", "output", "items"),
    [
        ("function_call_output", "done", [("result", ("output",), "done")]),
        ("function_call_output", [{"type": "input_text", "text": "a"}], [("result", ("output", 0, "text"), "a")]),
        ("function_call_output", "", [("opaque", (), "")]),
        ("custom_tool_call_output", "done", [("result", ("output",), "done")]),
        ("local_shell_call_output", "done", [("result", ("output",), "done")]),
        ("apply_patch_call_output", "done", [("result", ("output",), "done")]),
        (
            "shell_call_output",
            [{"stdout": "out", "stderr": "err", "outcome": {"type": "exit", "exit_code": 1}}],
            [("result", ("output", 0, "stdout"), "out"), ("result", ("output", 0, "stderr"), "err")],
        ),
        ("computer_call_output", {"type": "computer_screenshot", "file_id": "f"}, [("opaque", (), "")]),
        ("invented_output", "done", [("opaque", (), "")]),
    ],
)
def test_each_kind_of_output_answers_its_call(kind: str, output: Any, items: list[Any]) -> None:
    """Each kind of output answers its call; text in it is a result."""
    found = read(RESPONSES, {"type": kind, "call_id": "c1", "output": output})
    assert (Role.TOOL, (), ("c1",)) == (found.role, found.calls, found.answers)
    assert items == shown(found.items)


def test_an_image_becomes_a_text() -> None:
    """An image becomes a text, of a message or of an output."""
    message = {"type": "message", "role": "user", "content": [IMAGE]}
    gave = {"type": "function_call_output", "call_id": "c1", "output": [IMAGE]}
    assert (1, 1) == (read(RESPONSES, message).media, read(RESPONSES, gave).media)
    assert message | {"content": [{"type": "input_text", "text": "gone"}]} == written(message, "gone")
    assert gave | {"output": [{"type": "input_text", "text": "gone"}]} == written(gave, "gone")


def test_a_text_that_is_pointed_into() -> None:
    """Text with annotations is recorded, and stays as it is."""
    found = read(RESPONSES, {"type": "message", "role": "assistant", "content": [CITED]})
    assert [(ItemKind.TEXT, True), (ItemKind.OPAQUE, False)] == [(item.kind, item.fixed) for item in found.items]
    assert "url_citation" in found.other


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": None},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c", "outputs": []},
        {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"},
        {"type": "mcp_call", "id": "m_1", "name": "n", "server_label": "s", "arguments": "{}", "output": "x"},
        {"type": "mcp_list_tools", "id": "m_2", "server_label": "s", "tools": []},
        {"type": "tool_search_call", "id": "t", "call_id": "t", "execution": "server", "arguments": {}},
        {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []},
        {"type": "item_reference", "id": "msg_1"},
        {"id": "msg_1"},
        {"type": "hologram", "data": {"a": [1]}},
    ],
)
def test_what_belongs_to_the_model(item: dict[str, Any]) -> None:
    """What the provider made, and what nobody knows, is in the model's block, owes no answer and is never edited."""
    found = read(RESPONSES, item)
    assert (Role.ASSISTANT, (), ()) == (found.role, found.calls, found.answers)
    assert [("opaque", (), "")] == shown(found.items)
    assert found.other


@pytest.mark.parametrize(
    ("item", "role", "calls", "answers"),
    [
        ({"type": "compaction", "encrypted_content": "gAAA"}, Role.OTHER, (), ()),
        ({"type": "message", "role": "critic", "content": "no"}, Role.OTHER, (), ()),
        ({"type": "additional_tools", "role": "developer", "tools": []}, Role.SYSTEM, (), ()),
        ({"type": "mcp_approval_request", "id": "a"}, Role.ASSISTANT, ("approval:a",), ()),
        ({"type": "mcp_approval_response", "approval_request_id": "a"}, Role.TOOL, (), ("approval:a",)),
        ({"type": "local_shell_call", "call_id": "c", "action": {}}, Role.ASSISTANT, ("c",), ()),
        ({"type": "local_shell_call_output", "id": "c", "output": "x"}, Role.TOOL, (), ("c",)),
        ({"type": "tool_search_call", "call_id": "c", "execution": "client"}, Role.ASSISTANT, ("c",), ()),
        ({"type": "tool_search_output", "call_id": "c", "execution": "client"}, Role.TOOL, (), ("c",)),
    ],
)
def test_roles_and_pairs(item: dict[str, Any], role: Role, calls: Any, answers: Any) -> None:
    """Who an item is from, which call it makes or answers."""
    found = read(RESPONSES, item)
    assert (role, calls, answers) == (found.role, found.calls, found.answers)


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (7, ""),
        ({}, ".type"),
        ({"type": 7}, ".type"),
        ({"role": 7}, ".role"),
        ({"role": "user", "content": 7}, ".content"),
        ({"role": "user", "content": ["x"]}, ".content[0]"),
        ({"type": "function_call", "call_id": "c"}, ".arguments"),
        ({"type": "custom_tool_call", "call_id": "c", "input": {}}, ".input"),
        ({"type": "function_call_output", "call_id": "c", "output": {}}, ".output"),
        ({"type": "shell_call_output", "call_id": "c", "output": "x"}, ".output"),
        ({"type": "shell_call_output", "call_id": "c", "output": ["x"]}, ".output[0]"),
    ],
)
def test_wrong_shapes(item: Any, field: str) -> None:
    """What is no item is refused by the field at fault."""
    assert "json.body.messages[2]" + field == fault(lambda: read(RESPONSES, item))


def test_what_clients_add_changes_nothing() -> None:
    """Members that are null and lists that are empty, as typed clients write them, make no other message."""
    bare = {"role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    full: dict[str, Any] = {"type": "message", "role": "assistant", "status": None, "content": [
        {"type": "output_text", "text": "hi", "annotations": [], "logprobs": None}]}  # fmt: skip
    assert identity(RESPONSES, bare) == identity(RESPONSES, full)


@pytest.mark.parametrize(
    ("head", "in_history"),
    [
        ("", False),
        ('"store":true,', False),
        ('"store":false,', True),
        ('"store":false,"previous_response_id":null,', True),
        ('"store":false,"previous_response_id":"resp_1",', False),
        ('"store":false,"conversation":{"id":"conv_1"},', False),
    ],
)
def test_where_our_text_may_stand(head: str, in_history: bool) -> None:
    """In the history only if nothing of that is stored."""
    assert RESPONSES.variant is not None
    body = split(f'{{{head}"input":[{{"role":"user","content":"a"}}]}}'.encode(), None, "input", text=True)
    assert in_history == (RESPONSES.variant(body).placement.message is not None)


@pytest.mark.parametrize("raw", [b'[{"role":"user","content":"a"}]', b'{"store":false,"input":"a"}'])
def test_no_text_of_ours_in_an_array_or_beside_a_string(raw: bytes) -> None:
    """A bare array does not say what is stored; where a string stands there is no array to add to."""
    assert RESPONSES.variant is not None
    assert RESPONSES.variant(split(raw, None, "input", text=True)).placement.message is None


def test_a_tool_is_flat_and_not_strict() -> None:
    """A tool is flat, and not strict: the provider would otherwise want every parameter required."""
    made = json.loads(RESPONSES.tool("recall", "Fetches.", b'{"type":"object"}'))
    assert {
        "type": "function",
        "name": "recall",
        "description": "Fetches.",
        "parameters": {"type": "object"},
        "strict": False,
    } == made


@pytest.mark.parametrize(("kind", "final"), [("compaction_trigger", True), ("compaction", False), ("reasoning", False)])
def test_the_item_that_must_be_last(kind: str, final: bool) -> None:
    """Only the one that asks for a compaction."""
    assert final == read(RESPONSES, {"type": kind, "summary": []}).final


@pytest.mark.parametrize(("of", "member"), [({"role": "user"}, "content"), (OUTPUT, "output")])
@pytest.mark.parametrize(
    "part",
    [{"type": "input_text", "text": "a"}, IMAGE, {"type": "input_file", "filename": "a.pdf", "file_data": "AA=="}],
)
def test_a_cache_breakpoint_is_no_content(of: dict[str, str], member: str, part: dict[str, str]) -> None:
    """It moves between calls: the item with it is the same one, with the same text."""
    plain, marked = {**of, member: [part]}, {**of, member: [part | BREAKPOINT]}
    first, second = read(RESPONSES, plain), read(RESPONSES, marked)
    assert first.identity == second.identity
    assert (first.other, first.items[0].text) == (second.other, second.items[0].text)


def test_a_clipped_image_keeps_its_cache_breakpoint() -> None:
    """Where the agent wants its cache to break, it still breaks."""
    assert {**OUTPUT, "output": [{"type": "input_text", "text": "[gone]"} | BREAKPOINT]} == written(
        {**OUTPUT, "output": [IMAGE | BREAKPOINT]}, "[gone]"
    )
