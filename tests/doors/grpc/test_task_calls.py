"""A run's tasks over a real socket: changed, listed, retried, and told with the run's figures."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from prompt_sidecar.v1 import run_pb2, task_pb2, tool_pb2
from tests.doors.grpc.recalling import begin, call, create, rows
from tests.doors.grpc.serving import PATIENCE, Serving, failure, serving

PENDING, IN_PROGRESS, COMPLETED = (
    task_pb2.TASK_STATUS_PENDING,
    task_pb2.TASK_STATUS_IN_PROGRESS,
    task_pb2.TASK_STATUS_COMPLETED,
)
APPEND = task_pb2.CREATE_TASKS_MODE_APPEND


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    """One server for the tests, each of which has runs of its own."""
    with serving() as running:
        yield running


def update(served: Serving, run_id: str, number: int, status: Any, request_id: str = "") -> list[tuple[int, str, int]]:
    """Say where a task stands; what tasks there are then."""
    asked = task_pb2.UpdateTaskRequest(run_id=run_id, id=number, status=status, request_id=request_id)
    return rows(served.stub.UpdateTask(asked, timeout=PATIENCE).tasks)


def listed(served: Serving, run_id: str) -> list[tuple[int, str, int]]:
    """The run's tasks."""
    return rows(served.stub.ListTasks(task_pb2.ListTasksRequest(run_id=run_id), timeout=PATIENCE).tasks)


def test_tasks_are_created_updated_and_listed(served: Serving) -> None:
    """Each change answers with all tasks, and so does the list."""
    assert [(1, "read", PENDING), (2, "write", PENDING)] == create(served, "life", "read", "write")
    assert [(1, "read", IN_PROGRESS), (2, "write", PENDING)] == update(served, "life", 1, IN_PROGRESS)
    after = [(1, "read", IN_PROGRESS), (2, "write", PENDING), (3, "test", PENDING)]
    assert after == create(served, "life", "test", mode=APPEND)
    assert after == listed(served, "life")
    assert [(1, "anew", PENDING)] == create(served, "life", "anew")
    assert [] == create(served, "life")


def test_any_language_is_a_task(served: Serving) -> None:
    """Texts come back as they were sent, without the white space around them."""
    texts = ["ověřit žluťoučkého koně", "修复错误", "👩‍👩‍👧 ship", "é" * 200]
    assert texts == [text for _, text, _ in create(served, "languages", *(f" {text}\n" for text in texts))]


def test_a_run_may_begin_with_its_tasks(served: Serving) -> None:
    """Tasks can be written down before the first prompt, and stay when it comes."""
    create(served, "early", "plan")
    begin(served, "early")
    assert [(1, "plan", PENDING)] == listed(served, "early")
    assert 1 == served.stub.GetRun(run_pb2.GetRunRequest(run_id="early"), timeout=PATIENCE).run.calls


def test_a_retry_changes_nothing_more(served: Serving) -> None:
    """The same request id is the same change, whichever method made it; another id, or none, is another change."""
    for _ in range(2):
        assert [(1, "once", PENDING)] == create(served, "retry", "once", mode=APPEND, request_id="a")
    for _ in range(2):
        assert [(1, "once", COMPLETED)] == update(served, "retry", 1, COMPLETED, "b")
    update(served, "retry", 1, PENDING)
    assert [(1, "once", PENDING)] == update(served, "retry", 1, COMPLETED, "b")
    assert 2 == len(create(served, "retry", "twice", mode=APPEND, request_id="c"))
    assert [3, 4] == [len(create(served, "retry", "more", mode=APPEND)) for _ in range(2)]


def test_a_retried_tool_call_changes_nothing_more(served: Serving) -> None:
    """The model's call that is sent again with its request id gets the same answer, and counts once."""
    begin(served, "retried")
    arguments = {"tasks": ["once"], "mode": "append"}
    first, second = (call(served, "retried", "create_tasks", arguments, "a") for _ in range(2))
    assert first == second
    assert [(1, "once", PENDING)] == listed(served, "retried")
    assert tool_pb2.TOOL_OUTCOME_OK == call(served, "retried", "create_tasks", arguments, "b").outcome
    assert 2 == len(listed(served, "retried"))


def test_retries_at_the_same_time_are_one_change(served: Serving) -> None:
    """However many threads send the same change, it is made once."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create(served, "race", "once", mode=APPEND, request_id="a"), range(32)))
    assert [[(1, "once", PENDING)]] * 32 == made


def test_a_refused_change_is_not_made(served: Serving) -> None:
    """Of tasks of which one cannot be, none is created, and the run does not begin by it."""
    asked = task_pb2.CreateTasksRequest(run_id="refused", items=["fine", ""])
    refused = failure(lambda: served.stub.CreateTasks(asked, timeout=PATIENCE))
    assert ("INVALID_ARGUMENT", "items[1]") == (refused.code, refused.field)
    assert "RUN_UNKNOWN" == failure(lambda: listed(served, "refused")).reason


def test_fifty_tasks_are_all(served: Serving) -> None:
    """A run's tasks are bounded, however they come."""
    create(served, "fifty", *(f"task {number}" for number in range(50)))
    refused = failure(lambda: create(served, "fifty", "one more", mode=APPEND))
    assert ("INVALID_ARGUMENT", "items") == (refused.code, refused.field)
    assert 50 == len(listed(served, "fifty"))


def test_figures_name_what_is_unfinished(served: Serving) -> None:
    """GetRun and EndRun tell the tasks that are pending or in progress; after the end there is no run."""
    begin(served, "unfinished")
    create(served, "unfinished", "done", "doing", "to do")
    update(served, "unfinished", 1, COMPLETED)
    update(served, "unfinished", 2, IN_PROGRESS)
    expected = [(2, "doing", IN_PROGRESS), (3, "to do", PENDING)]
    figures = served.stub.GetRun(run_pb2.GetRunRequest(run_id="unfinished"), timeout=PATIENCE).run
    assert expected == rows(figures.unfinished_tasks)
    ended = served.stub.EndRun(run_pb2.EndRunRequest(run_id="unfinished"), timeout=PATIENCE)
    assert expected == rows(ended.run.unfinished_tasks)
    assert "RUN_UNKNOWN" == failure(lambda: listed(served, "unfinished")).reason
