"""Searches, tasks and tool calls to facts: what the agent gets wrong is refused by name, what the model does is not."""

from __future__ import annotations

from typing import Any

import pytest

from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.recall_calls import SearchCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskStatus, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import ToolCall
from prompt_sidecar.prompt.items import Role
from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.server.recall_conversion import (
    create_tasks_call,
    search_call,
    tool_call,
    tools_asked,
    update_task_call,
)
from prompt_sidecar.v1 import conversation_pb2, search_pb2, task_pb2, tool_pb2, trim_pb2


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("run_id", {"run_id": ""}),
        ("run_id", {"run_id": "é" * 129}),
        ("roles", {"roles": [2] * 17}),
        ("roles[1]", {"roles": [2, 0]}),
        ("roles[0]", {"roles": [77]}),
        ("roles[0]", {"roles": [conversation_pb2.ROLE_SYSTEM]}),
        ("tools", {"tools": ["t"] * 65}),
        ("tools[1]", {"tools": ["t", ""]}),
        ("tools[0]", {"tools": ["é" * 129]}),
        ("stash_ids", {"stash_ids": ["s"] * 257}),
        ("stash_ids[0]", {"stash_ids": [""]}),
        ("stash_ids[1]", {"stash_ids": ["s", "s" * 257]}),
        ("first_iteration", {"first_iteration": -1}),
        ("last_iteration", {"last_iteration": -1}),
        ("last_iteration", {"first_iteration": 9, "last_iteration": 8}),
        ("max_snippets", {"max_snippets": -1}),
        ("max_snippets", {"max_snippets": 51}),
        ("snippet_tokens", {"snippet_tokens": -1}),
        ("snippet_tokens", {"snippet_tokens": 4_001}),
        ("total_tokens", {"total_tokens": -1}),
        ("total_tokens", {"total_tokens": 50_001}),
    ],
)
def test_a_bad_field_of_a_search_is_named(field: str, sent: dict[str, Any]) -> None:
    """A value that is never right is refused with its path; the message holds nothing of the query."""
    asked = search_pb2.SearchHistoryRequest(**({"run_id": "r", "query": "hello"} | sent))
    with pytest.raises(InvalidRequest) as caught:
        search_call(asked, "local")
    assert field == caught.value.field
    assert "hello" not in caught.value.message


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"tools": ["t"] * 65}, "tools has 65 elements; it may have 64"),
        ({"stash_ids": ["s" * 257]}, "stash_ids[0] has 257 bytes; it must have 1 to 256"),
        ({"snippet_tokens": 4_001}, "snippet_tokens is 4,001; it must be from 0 to 4,000"),
        ({"first_iteration": 9, "last_iteration": 8}, "last_iteration is 8; it must be at least 9"),
    ],
)
def test_a_refusal_says_what_would_be_accepted(sent: dict[str, Any], expected: str) -> None:
    """The message holds the value or its size, and the bound."""
    with pytest.raises(InvalidRequest) as caught:
        search_call(search_pb2.SearchHistoryRequest(run_id="r", query="q", **sent), "local")
    assert expected == caught.value.message


def test_a_plain_search_leaves_all_to_the_configuration() -> None:
    """What is not sent is empty or 0: everybody's text, every iteration, the configured bounds."""
    asked = search_pb2.SearchHistoryRequest(run_id="r", query="what")
    assert SearchCall("local", "r", SearchQuery("what")) == search_call(asked, "local")


def test_every_filter_and_bound_of_a_search_arrives() -> None:
    """Each field, at its largest, becomes its fact; repeated values count once."""
    asked = search_pb2.SearchHistoryRequest(
        run_id="r",
        query="q" * 9_999,
        roles=[conversation_pb2.ROLE_TOOL, conversation_pb2.ROLE_USER, conversation_pb2.ROLE_TOOL],
        tools=["a"] * 63 + ["číst"],
        first_iteration=7,
        last_iteration=7,
        stash_ids=[f"id{number}" for number in range(256)],
        max_snippets=50,
        snippet_tokens=4_000,
        total_tokens=50_000,
    )
    expected = SearchQuery(
        query="q" * 9_999,
        roles=frozenset({Role.TOOL, Role.USER}),
        tools=frozenset({"a", "číst"}),
        first_iteration=7,
        last_iteration=7,
        stash_ids=frozenset(f"id{number}" for number in range(256)),
        max_snippets=50,
        snippet_tokens=4_000,
        total_tokens=50_000,
    )
    assert SearchCall("local", "r", expected) == search_call(asked, "local")


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("run_id", {"run_id": "a\nb"}),
        ("mode", {"mode": 9}),
        ("request_id", {"request_id": "é" * 65}),
    ],
)
def test_a_bad_field_of_new_tasks_is_named(field: str, sent: dict[str, Any]) -> None:
    """Run, mode and request id are checked here; the tasks themselves by the core."""
    asked = task_pb2.CreateTasksRequest(**({"run_id": "r", "items": ["one"]} | sent))
    with pytest.raises(InvalidRequest) as caught:
        create_tasks_call(asked, "local")
    assert field == caught.value.field


@pytest.mark.parametrize(
    ("mode", "append"),
    [
        (task_pb2.CREATE_TASKS_MODE_UNSPECIFIED, False),
        (task_pb2.CREATE_TASKS_MODE_REPLACE, False),
        (task_pb2.CREATE_TASKS_MODE_APPEND, True),
    ],
)
def test_new_tasks_arrive(mode: Any, append: bool) -> None:
    """Texts arrive as they are, in order; a mode that is not said replaces."""
    asked = task_pb2.CreateTasksRequest(run_id="r", items=[" dva ", "", "👍"], mode=mode, request_id="x" * 128)
    expected = CreateTasksCall("local", "r", (" dva ", "", "👍"), append, "x" * 128)
    assert expected == create_tasks_call(asked, "local")


@pytest.mark.parametrize(
    ("field", "sent"),
    [
        ("run_id", {"run_id": ""}),
        ("id", {"id": 0}),
        ("id", {"id": -1}),
        ("status", {"status": 0}),
        ("status", {"status": 4}),
        ("request_id", {"request_id": "x" * 129}),
    ],
)
def test_a_bad_field_of_an_update_is_named(field: str, sent: dict[str, Any]) -> None:
    """An update needs a task and a status that exists."""
    fields: dict[str, Any] = {"run_id": "r", "id": 1, "status": 1} | sent
    asked = task_pb2.UpdateTaskRequest(**fields)
    with pytest.raises(InvalidRequest) as caught:
        update_task_call(asked, "local")
    assert field == caught.value.field


@pytest.mark.parametrize("status", TaskStatus)
def test_every_status_arrives(status: TaskStatus) -> None:
    """Each status of the wire becomes the core's of the same name."""
    number = task_pb2.TaskStatus.Value(f"TASK_STATUS_{status.name}")
    asked = task_pb2.UpdateTaskRequest(run_id="r", id=2**31 - 1, status=number, request_id="x")
    assert UpdateTaskCall("local", "r", 2**31 - 1, status, "x") == update_task_call(asked, "local")


@pytest.mark.parametrize(
    ("field", "sent"),
    [("format", {"format": 77}), ("names", {"names": ["n"] * 65}), ("names[0]", {"names": [""]})],
)
def test_a_bad_field_of_a_tool_list_is_named(field: str, sent: dict[str, Any]) -> None:
    """A format that is not known and lists past their bounds are refused."""
    with pytest.raises(InvalidRequest) as caught:
        tools_asked(tool_pb2.ListToolsRequest(**sent))
    assert field == caught.value.field


def test_tool_lists_are_asked_for_in_a_format_or_plain() -> None:
    """The format arrives by the core's name, and as nothing where none is said."""
    anthropic = tool_pb2.ListToolsRequest(format=trim_pb2.FORMAT_ANTHROPIC_MESSAGES, names=["b", "a"])
    assert ("anthropic_messages", ("b", "a")) == tools_asked(anthropic)
    assert ("", ()) == tools_asked(tool_pb2.ListToolsRequest())


@pytest.mark.parametrize(("field", "sent"), [("run_id", {"run_id": ""}), ("request_id", {"request_id": "x" * 129})])
def test_a_bad_field_of_a_tool_call_is_named(field: str, sent: dict[str, Any]) -> None:
    """What the agent itself sends with a model's call is checked."""
    asked = tool_pb2.CallToolRequest(**({"run_id": "r", "name": "t"} | sent))
    with pytest.raises(InvalidRequest) as caught:
        tool_call(asked, "local")
    assert field == caught.value.field


@pytest.mark.parametrize("name", ["", "no such tool", "x" * 9_999])
@pytest.mark.parametrize("arguments", ["", "{", '"{}"', "[" * 100_000])
def test_a_models_mistake_is_handed_on(name: str, arguments: str) -> None:
    """The core answers a model's wrong call with words for the model, so it arrives as it was made."""
    asked = tool_pb2.CallToolRequest(run_id="r", name=name, arguments_json=arguments)
    assert ToolCall("local", "r", name, arguments) == tool_call(asked, "local")
