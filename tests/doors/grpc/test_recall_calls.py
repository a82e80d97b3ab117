"""Searches and the model's tools over a real socket, and that one caller never reaches another's run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.client import Client, Trimmed
from prompt_sidecar.v1 import conversation_pb2, retrieve_pb2, run_pb2, search_pb2, task_pb2, tool_pb2, trim_pb2
from tests.client.histories import STEPS, WINDOW, history
from tests.client.histories import result as result_of
from tests.doors.grpc.recalling import CZECH, FACT, begin, call, create, result, rows, search
from tests.doors.grpc.serving import PATIENCE, REQUESTS, Serving, failure, serving

TOOLS = ["recall_elided_content", "search_conversation_history", "create_tasks", "update_task"]
RECALL, SEARCH, CREATE, UPDATE = TOOLS


@pytest.fixture(scope="module", params=["tcp", "unix"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for the tests, each of which has runs of its own."""
    options = ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600)
    if request.param == "unix":
        options = replace(options, listen="", socket=str(tmp_path_factory.mktemp("s") / "s.sock"))
    with serving(options) as running:
        yield running


# -- search ------------------------------------------------------------------------------------------------------------


def test_a_search_finds_what_was_sent(served: Serving) -> None:
    """A snippet says where it comes from; its bytes and lines are the original's; the model's text holds it."""
    begin(served, "found")
    found = search(served, "found", "reactor quartz")
    assert search_pb2.SEARCH_OUTCOME_FOUND == found.outcome
    snippet = found.snippets[0]
    assert FACT in snippet.text
    assert snippet.text in found.rendered
    assert ("read_file", "call_3", 3) == (snippet.tool, snippet.call_id, snippet.iteration)
    assert (conversation_pb2.ROLE_TOOL, trim_pb2.ITEM_KIND_RESULT) == (snippet.role, snippet.kind)
    original = result(3).encode()
    assert (len(original), 40) == (snippet.total_bytes, snippet.total_lines)
    asked = retrieve_pb2.RetrieveContentRequest(
        run_id="found",
        stash_id=snippet.stash_id,
        bytes=retrieve_pb2.ByteRange(start=snippet.start_byte, end=snippet.end_byte),
    )
    page = served.stub.RetrieveContent(asked, timeout=PATIENCE)
    assert snippet.text.encode() == page.content == original[snippet.start_byte : snippet.end_byte]
    assert (snippet.first_line, snippet.last_line) == (page.stretches[0].first_line, page.stretches[-1].last_line)
    assert 1 <= found.first_iteration <= 3 <= found.last_iteration


@pytest.mark.parametrize("query", ["žluťoučký", "ŽLUŤOUČKÝ KŮŇ", "ďábelské ódy"])
def test_other_languages_are_searched(served: Serving, query: str) -> None:
    """Words with accents are found, in either case, and come back as they were sent."""
    begin(served, "unicode")
    found = search(served, "unicode", query)
    assert CZECH in found.snippets[0].text
    assert CZECH in found.rendered


def test_an_exact_id_finds_its_item(served: Serving) -> None:
    """A stash id, or a call id, as the query."""
    begin(served, "exact")
    stash_id = search(served, "exact", "quartz").snippets[0].stash_id
    assert {stash_id} == {snippet.stash_id for snippet in search(served, "exact", stash_id).snippets}
    assert "call_3" == search(served, "exact", "call_3").snippets[0].call_id


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"first_iteration": 2, "last_iteration": 3}, {2, 3}),
        ({"first_iteration": 4}, {4}),
        ({"roles": [conversation_pb2.ROLE_USER]}, set()),
        ({"tools": ["read_file"]}, {1, 2, 3, 4}),
        ({"tools": ["write_file"]}, set()),
    ],
)
def test_filters_are_kept_to(served: Serving, filters: dict[str, Any], expected: set[int]) -> None:
    """Only what the filters leave is searched; nothing left is an answer, not an error."""
    begin(served, "filtered")
    found = search(served, "filtered", "unused import", max_snippets=50, **filters)
    assert expected == {snippet.iteration for snippet in found.snippets}
    nothing = search_pb2.SEARCH_OUTCOME_NOTHING_FOUND
    assert (search_pb2.SEARCH_OUTCOME_FOUND if expected else nothing) == found.outcome


@pytest.mark.parametrize("query", ["zanzibar", "xyzzy"])
def test_nothing_found_says_so(served: Serving, query: str) -> None:
    """What was never sent, and what stands only in system text, is not found; the answer says what was searched."""
    begin(served, "nothing")
    found = search(served, "nothing", query)
    assert (search_pb2.SEARCH_OUTCOME_NOTHING_FOUND, 0) == (found.outcome, len(found.snippets))
    assert found.message
    assert query not in found.message
    assert (1, True) == (found.first_iteration, found.last_iteration >= 4)


def test_bounds_hold(served: Serving) -> None:
    """As many snippets, and as many tokens, as were asked for at most."""
    begin(served, "bounds")
    found = search(served, "bounds", "unused import", max_snippets=2, snippet_tokens=100, total_tokens=400)
    assert 1 <= len(found.snippets) <= 2
    assert max(snippet.tokens for snippet in found.snippets) <= 100
    assert found.rendered_tokens <= 400


def test_a_run_that_was_not_seen_is_an_outcome(served: Serving) -> None:
    """Search and tools say RUN_UNKNOWN in the answer, as retrieval does; the model's text says it too."""
    assert search_pb2.SEARCH_OUTCOME_RUN_UNKNOWN == search(served, "never", "anything").outcome
    for name, arguments in ((RECALL, {"id": "abcdefghij"}), (SEARCH, {"query": "anything"})):
        answer = call(served, "never", name, arguments)
        assert (tool_pb2.TOOL_OUTCOME_RUN_UNKNOWN, True) == (answer.outcome, answer.is_error)
        assert answer.content
    asked = run_pb2.GetRunRequest(run_id="never")
    assert "RUN_UNKNOWN" == failure(lambda: served.stub.GetRun(asked, timeout=PATIENCE)).reason


# -- refusals ----------------------------------------------------------------------------------------------------------

BAD: list[tuple[str, str, Any]] = [
    ("query", "SearchHistory", search_pb2.SearchHistoryRequest(run_id="bad")),
    ("query", "SearchHistory", search_pb2.SearchHistoryRequest(run_id="bad", query=" \n")),
    ("query", "SearchHistory", search_pb2.SearchHistoryRequest(run_id="bad", query="secret " * 100_000)),
    ("max_snippets", "SearchHistory", search_pb2.SearchHistoryRequest(run_id="bad", query="q", max_snippets=51)),
    (
        "roles[0]",
        "SearchHistory",
        search_pb2.SearchHistoryRequest(run_id="bad", query="q", roles=[conversation_pb2.ROLE_SYSTEM]),
    ),
    ("items", "CreateTasks", task_pb2.CreateTasksRequest(run_id="bad", items=["secret"] * 51)),
    ("items[1]", "CreateTasks", task_pb2.CreateTasksRequest(run_id="bad", items=["a", "secret " * 40])),
    ("items[0]", "CreateTasks", task_pb2.CreateTasksRequest(run_id="bad", items=[" "])),
    ("request_id", "CreateTasks", task_pb2.CreateTasksRequest(run_id="bad", request_id="x" * 129)),
    ("id", "UpdateTask", task_pb2.UpdateTaskRequest(run_id="bad", id=7, status=2)),  # type: ignore[arg-type]
    ("status", "UpdateTask", task_pb2.UpdateTaskRequest(run_id="bad", id=1)),
    ("run_id", "ListTasks", task_pb2.ListTasksRequest(run_id="a\nb")),
    ("names", "ListTools", tool_pb2.ListToolsRequest(names=["recall_elided_content", "secret_tool"])),
    ("format", "ListTools", tool_pb2.ListToolsRequest(format=9)),  # type: ignore[arg-type]
    ("run_id", "CallTool", tool_pb2.CallToolRequest(name="create_tasks")),
]


@pytest.mark.parametrize(("field", "method", "asked"), BAD)
def test_a_bad_field_is_refused(served: Serving, field: str, method: str, asked: Any) -> None:
    """INVALID_ARGUMENT, the reason and the field; nothing of a query or a task in the message."""
    begin(served, "bad")
    create(served, "bad", "one")
    refused = failure(partial(getattr(served.stub, method), asked, timeout=PATIENCE))
    assert ("INVALID_ARGUMENT", "INVALID_REQUEST", field) == (refused.code, refused.reason, refused.field)
    assert "secret " not in refused.message
    assert [(1, "one", task_pb2.TASK_STATUS_PENDING)] == rows(
        served.stub.ListTasks(task_pb2.ListTasksRequest(run_id="bad"), timeout=PATIENCE).tasks
    )


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("UpdateTask", task_pb2.UpdateTaskRequest(run_id="unseen", id=1, status=2)),  # type: ignore[arg-type]
        ("ListTasks", task_pb2.ListTasksRequest(run_id="unseen")),
    ],
)
def test_tasks_of_a_run_that_was_not_seen(served: Serving, method: str, asked: Any) -> None:
    """NOT_FOUND with RUN_UNKNOWN, for the agent to send the run's prompt or its tasks again."""
    refused = failure(partial(getattr(served.stub, method), asked, timeout=PATIENCE))
    assert ("NOT_FOUND", "RUN_UNKNOWN") == (refused.code, refused.reason)


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (trim_pb2.FORMAT_UNSPECIFIED, lambda tool: tool["parameters"]),
        (trim_pb2.FORMAT_OPENAI_CHAT, lambda tool: tool["function"]["parameters"]),
        (trim_pb2.FORMAT_ANTHROPIC_MESSAGES, lambda tool: tool["input_schema"]),
    ],
)
def test_tools_are_defined_in_each_format(served: Serving, form: Any, schema: Callable[[Any], Any]) -> None:
    """The array is ready for the body, and holds what each definition says, in an order that does not change."""
    listed = served.stub.ListTools(tool_pb2.ListToolsRequest(format=form), timeout=PATIENCE)
    assert TOOLS == [tool.name for tool in listed.tools]
    array = json.loads(listed.tools_json)
    assert [json.loads(tool.definition_json) for tool in listed.tools] == array
    assert [json.loads(tool.parameters_json) for tool in listed.tools] == [schema(tool) for tool in array]
    assert listed == served.stub.ListTools(tool_pb2.ListToolsRequest(format=form), timeout=PATIENCE)


def test_some_of_the_tools(served: Serving) -> None:
    """Those that were named, in the order of all."""
    asked = tool_pb2.ListToolsRequest(names=[SEARCH, RECALL])
    assert [RECALL, SEARCH] == [tool.name for tool in served.stub.ListTools(asked, timeout=PATIENCE).tools]


def test_the_models_tools_do_what_the_methods_do(served: Serving) -> None:
    """Search, recall and tasks by the model: text for it, and the same facts for programs."""
    begin(served, "tools")
    found = call(served, "tools", SEARCH, {"query": "reactor quartz"})
    assert (tool_pb2.TOOL_OUTCOME_OK, "found", False) == (found.outcome, found.WhichOneof("result"), found.is_error)
    assert FACT in found.content
    assert 0 < found.content_tokens <= 1_500
    recalled = call(served, "tools", RECALL, {"id": found.found.snippets[0].stash_id})
    assert result(3).encode() == recalled.recalled.content
    assert FACT in recalled.content
    tasks = call(served, "tools", CREATE, {"tasks": ["čti", "piš"]})
    assert [(1, "čti", 1), (2, "piš", 1)] == rows(tasks.tasks.tasks)
    assert [(1, "čti", 3), (2, "piš", 1)] == rows(
        call(served, "tools", UPDATE, {"id": 1, "status": "completed"}).tasks.tasks
    )
    figures = served.stub.GetRun(run_pb2.GetRunRequest(run_id="tools"), timeout=PATIENCE).run
    assert (4, 1, 1) == (figures.history.tool_calls, figures.history.searches, figures.history.searches_found)
    assert [(2, "piš", 1)] == rows(figures.unfinished_tasks)


@pytest.mark.parametrize(
    ("name", "arguments", "outcome"),
    [
        ("no_such_tool", "{}", tool_pb2.TOOL_OUTCOME_UNKNOWN_TOOL),
        ("", "{}", tool_pb2.TOOL_OUTCOME_UNKNOWN_TOOL),
        ("x" * 10_000, "{}", tool_pb2.TOOL_OUTCOME_UNKNOWN_TOOL),
        (SEARCH, "", tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS),
        (SEARCH, '{"query": ', tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS),
        (SEARCH, "[" * 50_000, tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS),
        (SEARCH, json.dumps({"query": "secret " * 20_000}), tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS),
        (RECALL, '{"id": "ID", "pattern": "("}', tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS),
        (CREATE, '{"tasks": 7}', tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS),
        (UPDATE, '{"id": 99, "status": "completed"}', tool_pb2.TOOL_OUTCOME_INVALID_ARGUMENTS),
        (RECALL, '{"id": "abcdefghij"}', tool_pb2.TOOL_OUTCOME_OK),
    ],
)
def test_a_models_mistake_is_answered(served: Serving, name: str, arguments: str, outcome: int) -> None:
    """The call succeeds, and its text tells the model; an id that is none is an ordinary answer."""
    begin(served, "mistakes")
    stash_id = search(served, "mistakes", "quartz").snippets[0].stash_id
    answer = call(served, "mistakes", name, arguments.replace("ID", stash_id))
    assert (outcome, outcome != tool_pb2.TOOL_OUTCOME_OK) == (answer.outcome, answer.is_error)
    assert 0 < answer.content_tokens < 500
    assert "secret " not in answer.content


def test_a_model_that_asks_again_and_again_gets_a_notice(served: Serving) -> None:
    """The same range is shown as often as recall.repeats says; then the answer is short and is no error."""
    begin(served, "again")
    stash_id = search(served, "again", "quartz").snippets[0].stash_id
    answers = [call(served, "again", RECALL, {"id": stash_id}) for _ in range(5)]
    outcomes = [tool_pb2.TOOL_OUTCOME_OK] * 3 + [tool_pb2.TOOL_OUTCOME_REPEATED] * 2
    assert outcomes == [answer.outcome for answer in answers]
    assert (False, False) == (answers[-1].is_error, FACT in answers[-1].content)


def test_what_left_the_prompt_is_shown_however_often(served: Serving) -> None:
    """At each tenth iteration of sixty; a repeat while the prompt holds it is told where it is."""
    run_id = "however often"
    with Client(served.address, deadline=PATIENCE) as client:

        def trim(messages: list[Any]) -> Trimmed[list[Any]]:
            return client.trim(run_id, messages, context_window=WINDOW, output_reserve=500)

        messages = history("openai_chat", 9)
        first, last = result_of(1), trim(messages)
        stash_id = next(each.stash_id for each in last.trims if each.kind == "result")
        for number in range(10, 61):
            if not number % 10:
                assert json.dumps(first)[1:-1] not in json.dumps(last.prompt)
                answers = [client.call_tool(run_id, RECALL, {"id": stash_id}) for _ in range(4)]
                assert ["ok", True] == [answers[0].outcome, first in answers[0].content]
                messages += recalled(f"own-{number}", stash_id, answers[0].content)
                at = trim(messages).iteration - 1
                again = client.call_tool(run_id, RECALL, {"id": stash_id})
                assert "repeated" == again.outcome
                assert f"is in the prompt, at iteration {at}; it is not shown again while it is there" in again.content
            messages += STEPS["openai_chat"](number)
            last = trim(messages)


def recalled(call_id: str, stash_id: str, content: str) -> list[Any]:
    """A recall and its answer, as an agent has them in its history."""
    function = {"name": RECALL, "arguments": json.dumps({"id": stash_id})}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": content},
    ]


# -- what holds for all ------------------------------------------------------------------------------------------------


def test_reflection_lists_the_methods(served: Serving) -> None:
    """A client without the protos finds every method."""
    reflect: Any = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="prompt_sidecar.v1.SidecarService")
    answer = next(iter(reflect.ServerReflectionInfo(iter([asked]), timeout=PATIENCE)))
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(file)
        for file in answer.file_descriptor_response.file_descriptor_proto
    ]
    listed = {method.name for file in files for service in file.service for method in service.method}
    assert {*REQUESTS} == listed


def test_what_a_prompt_brought_is_indexed_without_being_asked_for(served: Serving) -> None:
    """After a prompt's answer nothing waits for long, though nobody searches."""
    begin(served, "indexed")
    asked = run_pb2.GetRunRequest(run_id="indexed")
    until = monotonic() + PATIENCE
    history = served.stub.GetRun(asked, timeout=PATIENCE).run.history
    while not history.items or history.waiting_bytes:
        assert monotonic() < until
        threading.Event().wait(0.01)  # the indexing gives way to calls
        history = served.stub.GetRun(asked, timeout=PATIENCE).run.history
    assert 0 < history.passages
    assert (0, 0) == (history.searches, history.tool_calls)


def test_a_run_belongs_to_its_caller(tmp_path: Path) -> None:
    """What one caller sent and planned is unknown to another, who may have a run of the same name."""
    path = tmp_path / "tokens"
    path.write_text("alice:alice-token-0123456789\nbob:bob-token-0123456789\n")
    path.chmod(0o600)
    with serving(ServerOptions(listen="127.0.0.1:0", tokens_file=str(path))) as served:
        alice, bob = ((("authorization", f"Bearer {name}-token-0123456789"),) for name in ("alice", "bob"))
        begin(served, "shared", metadata=alice)
        tasks = task_pb2.CreateTasksRequest(run_id="shared", items=["plan"])
        served.stub.CreateTasks(tasks, metadata=alice)
        query = search_pb2.SearchHistoryRequest(run_id="shared", query="quartz")
        stash_id = served.stub.SearchHistory(query, metadata=alice).snippets[0].stash_id
        recall = tool_pb2.CallToolRequest(run_id="shared", name=RECALL, arguments_json=json.dumps({"id": stash_id}))

        assert search_pb2.SEARCH_OUTCOME_RUN_UNKNOWN == served.stub.SearchHistory(query, metadata=bob).outcome
        assert tool_pb2.TOOL_OUTCOME_RUN_UNKNOWN == served.stub.CallTool(recall, metadata=bob).outcome
        listing = task_pb2.ListTasksRequest(run_id="shared")
        for method, asked in (
            ("ListTasks", listing),
            ("UpdateTask", task_pb2.UpdateTaskRequest(run_id="shared", id=1, status=task_pb2.TASK_STATUS_COMPLETED)),
        ):
            refused = failure(partial(getattr(served.stub, method), asked, metadata=bob))
            assert ("NOT_FOUND", "RUN_UNKNOWN") == (refused.code, refused.reason)

        served.stub.CreateTasks(task_pb2.CreateTasksRequest(run_id="shared"), metadata=bob)
        begin(served, "shared", metadata=bob)
        assert FACT not in served.stub.CallTool(recall, metadata=bob).content
        assert [(1, "plan", task_pb2.TASK_STATUS_PENDING)] == rows(served.stub.ListTasks(listing, metadata=alice).tasks)
        assert [] == rows(served.stub.ListTasks(listing, metadata=bob).tasks)
