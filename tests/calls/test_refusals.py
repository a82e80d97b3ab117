"""Lines on refused calls: what stands in them, and how many there may be."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from prompt_sidecar.calls.checks import MESSAGE_BYTES
from prompt_sidecar.calls.refusals import (
    LIBRARIES,
    MOST_CHARACTERS,
    LibraryLines,
    LineBudget,
    Refusals,
    library_lines_limited,
)
from prompt_sidecar.doors.grpc.servicer import METHODS, SERVICE
from prompt_sidecar.errors import InvalidRequest, TooLarge
from prompt_sidecar.v1 import (
    guard_pb2,
    retrieve_pb2,
    run_pb2,
    search_pb2,
    task_pb2,
    tool_pb2,
    trim_pb2,
    usage_pb2,
)
from tests.doors.grpc.serving import PATIENCE, REQUESTS, failure, serving
from tests.promises.engine import Clock

PEER = "ipv4:127.0.0.1:5"


def test_a_line_has_reason_field_bound_and_address(caplog: pytest.LogCaptureFixture) -> None:
    """And never the message; what callers chose is on one line, as ASCII, and not too long."""
    refused = Refusals(10, Clock())
    refused.log("s/M", InvalidRequest("secret", field="a\nb\u2028" + "x" * 1_000), "INVALID_ARGUMENT", PEER)
    refused.log("", TooLarge("secret", bound="server.max_calls"), "RESOURCE_EXHAUSTED", PEER)
    refused.log("s/M", RuntimeError("secret"), "INTERNAL", PEER)
    first, second, third = caplog.messages
    assert first.startswith("s/M refused: INVALID_ARGUMENT INVALID_REQUEST, field a\\nb\\u2028xxx")
    assert len(first) < MOST_CHARACTERS + 100
    assert (
        f"a method that is not served refused: RESOURCE_EXHAUSTED TOO_LARGE, bound server.max_calls, from {PEER}"
        == second
    )
    assert f"s/M refused: INTERNAL, from {PEER}" == third
    assert "secret" not in caplog.text


def test_lines_are_bounded_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    """So many a minute, saved up for one; a line a minute says how many more there were, or at once at the end."""
    clock = Clock()
    refused = Refusals(3, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            refused.log("s/M", TooLarge("x"), "RESOURCE_EXHAUSTED", PEER)
        assert 3 == sum("refused: " in line for line in caplog.messages)
        caplog.clear()
        refused.log_omitted()
        assert not caplog.messages
        clock.now += 60
        refused.log_omitted()
        assert ["996 more calls were refused and not logged: log.refusals was reached"] == caplog.messages
        caplog.clear()
        for _ in range(5):
            refused.log("s/M", TooLarge("x"), "RESOURCE_EXHAUSTED", PEER)
        refused.log_omitted(at_once=True)
        assert 3 == sum("refused: " in line for line in caplog.messages)
        assert "2 more" in caplog.messages[-1]


def test_lines_of_libraries_are_bounded_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Each logger by itself, and no more than it is told for; all of them pass again afterwards."""
    clock = Clock()
    limit = LibraryLines(2, clock)
    lines = [logging.LogRecord("library", logging.ERROR, "", 0, "a line", (), None) for _ in range(5)]
    assert [True, True, False, False, False] == [limit.filter(line) for line in lines]
    clock.now += 60.0
    caplog.clear()
    assert limit.filter(lines[0])
    assert ["2 more lines of library were not logged: log.refusals was reached"] == caplog.messages

    loggers = [logging.getLogger(name) for name in LIBRARIES]
    with library_lines_limited(2):
        assert all(logger.filters for logger in loggers)
    assert not any(logger.filters for logger in loggers)


def test_a_budget_of_nothing_still_counts() -> None:
    """With no lines at all, how many there would have been is known."""
    clock = Clock()
    budget = LineBudget(0, clock)
    assert not any(budget.take() for _ in range(7))
    assert 7 == budget.taken_over()
    assert not budget.take()
    assert 0 == budget.taken_over()
    clock.now += 60
    assert 1 == budget.taken_over()


SECRET = "text of a prompt"
WRONG = {
    "TrimPrompt": (trim_pb2.TrimPromptRequest(run_id="r"), "prompt"),
    "RetrieveContent": (retrieve_pb2.RetrieveContentRequest(run_id="r", stash_id="s", page_tokens=-1), "page_tokens"),
    "SearchHistory": (search_pb2.SearchHistoryRequest(run_id="r", query=SECRET, max_snippets=-1), "max_snippets"),
    "CreateTasks": (task_pb2.CreateTasksRequest(run_id="r", items=[SECRET, ""]), "items[1]"),
    "UpdateTask": (task_pb2.UpdateTaskRequest(run_id="r", id=1), "status"),
    "ListTasks": (task_pb2.ListTasksRequest(run_id=""), "run_id"),
    "ListTools": (tool_pb2.ListToolsRequest(names=[SECRET]), "names"),
    "RestoreSecrets": (
        guard_pb2.RestoreSecretsRequest(run_id="r", calls=[guard_pb2.ToolArguments(arguments=SECRET.encode())]),
        "calls[0].tool",
    ),
    "CallTool": (tool_pb2.CallToolRequest(run_id="", name=SECRET, arguments_json=SECRET), "run_id"),
    "ReportUsage": (usage_pb2.ReportUsageRequest(run_id="r", input_tokens=-1), "input_tokens"),
    "GetRun": (run_pb2.GetRunRequest(run_id="r"), "run_id"),
    "EndRun": (run_pb2.EndRunRequest(run_id="x" * 10_000), "run_id"),
}


@pytest.mark.parametrize("method", [method for method in METHODS if method != "TrimPrompt"])
def test_long_requests_are_not_parsed(method: str) -> None:
    """Of millions of empty elements a parser makes a gigabyte: no request but a prompt is so long."""
    with serving() as served:
        call: Any = served.channel.unary_unary(f"/{SERVICE}/{method}")
        refused = failure(lambda: call(b"\x12\x00" * (MESSAGE_BYTES // 2 + 1), timeout=PATIENCE))
        assert ("RESOURCE_EXHAUSTED", "TOO_LARGE") == (refused.code, refused.reason)
        assert "1,048,578 bytes" in refused.message


@pytest.mark.parametrize("method", [method for method in METHODS if REQUESTS[method].DESCRIPTOR.fields])
def test_every_method_has_its_line(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """One for each refused call that has a field, with reason and field, and no text of it."""
    wrong, field = WRONG[method]
    with serving() as served, caplog.at_level(logging.WARNING):
        refused = failure(lambda: getattr(served.stub, method)(wrong, timeout=PATIENCE))
    lines = [record.getMessage() for record in caplog.records if record.name == "prompt_sidecar.refused"]
    assert 1 == len(lines)
    assert lines[0].startswith(
        f"{SERVICE}/{method} refused: {refused.code} {refused.reason}, field {field}, from ipv4:"
    )
    assert SECRET not in caplog.text
