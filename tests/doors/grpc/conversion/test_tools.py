"""The model's tools: what the agent gets wrong is rejected by name, what the model does is passed on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.doors.grpc.conversion.responses import message
from prompt_sidecar.doors.grpc.conversion.tools import tool_call, tools_asked, tools_response
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.facts.task_calls import Tasks
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall, ToolDefinition, ToolOutcome
from prompt_sidecar.v1 import task_pb2, tool_pb2, trim_pb2
from tests.doors.grpc.conversion.test_recall import FOUND, FOUND_MESSAGE, PAGE, PAGE_MESSAGE
from tests.doors.grpc.conversion.test_tasks import TASK_MESSAGES, TASKS


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


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_definitions_make_one_array(count: int) -> None:
    """`tools_json` is a JSON array of the definitions, each with the bytes that it has by itself."""
    tools = [ToolDefinition(f"t{at}", "does", "{}", f'{{"name":"t{at}","é":1.50}}'.encode()) for at in range(count)]
    response = tools_response(tools)
    assert [json.loads(tool.definition) for tool in tools] == json.loads(response.tools_json)
    for tool, defined in zip(tools, response.tools, strict=True):
        expected = tool_pb2.ToolDefinition(
            name=tool.name, description="does", parameters_json="{}", definition_json=tool.definition
        )
        assert expected == defined
        assert tool.definition in response.tools_json


@pytest.mark.parametrize("outcome", ToolOutcome)
def test_a_tool_calls_outcome_says_whether_it_is_an_error(outcome: ToolOutcome) -> None:
    """A call that ran, or that was repeated too often, is none."""
    response = message(tool_pb2.CallToolResponse, ToolAnswer(outcome, "text", 1))
    expected = tool_pb2.CallToolResponse(
        outcome=tool_pb2.ToolOutcome.Value(f"TOOL_OUTCOME_{outcome.name}"),
        content="text",
        is_error=outcome not in {ToolOutcome.OK, ToolOutcome.REPEATED},
        content_tokens=1,
    )
    assert expected == response


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"recalled": PAGE}, {"recalled": PAGE_MESSAGE}),
        ({"found": FOUND}, {"found": FOUND_MESSAGE}),
        ({"tasks": Tasks(tuple(TASKS))}, {"tasks": task_pb2.ListTasksResponse(tasks=TASK_MESSAGES)}),
        ({"tasks": Tasks(())}, {"tasks": task_pb2.ListTasksResponse()}),
        ({}, {}),
    ],
)
def test_a_tool_calls_facts_follow_its_text(facts: dict[str, Any], expected: dict[str, Any]) -> None:
    """The facts of the tool that ran stand beside the text; an empty task list is still a task list."""
    response = message(tool_pb2.CallToolResponse, ToolAnswer(ToolOutcome.OK, "text", 1, **facts))
    assert tool_pb2.CallToolResponse(outcome=1, content="text", content_tokens=1, **expected) == response  # type: ignore[arg-type]


def test_the_outcomes_are_the_protos() -> None:
    """The core and the protos know the same outcomes, but for the protos' UNSPECIFIED."""
    names = {f"TOOL_OUTCOME_{outcome.name}" for outcome in ToolOutcome}
    assert {"TOOL_OUTCOME_UNSPECIFIED", *names} == set(tool_pb2.ToolOutcome.keys())
