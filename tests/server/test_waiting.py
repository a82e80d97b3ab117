"""Calls that wait for their run, which another call holds for long: they end at their deadlines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prompt_sidecar.v1 import run_pb2, search_pb2, task_pb2, tool_pb2, usage_pb2
from tests.server.serving import PATIENCE, failure, request, serving

DEADLINE = 0.3
SOON = 20.0
"""Seconds in which all is over, on any machine; the run is held for longer."""
TASK = json.dumps({"tasks": ["look"]})
WAITING: dict[str, Any] = {
    "TrimPrompt": request(),
    "SearchHistory": search_pb2.SearchHistoryRequest(run_id="run", query="hello"),
    "CreateTasks": task_pb2.CreateTasksRequest(run_id="run", items=["look"]),
    "UpdateTask": task_pb2.UpdateTaskRequest(run_id="run", id=1, status=task_pb2.TASK_STATUS_COMPLETED),
    "ListTasks": task_pb2.ListTasksRequest(run_id="run"),
    "CallTool": tool_pb2.CallToolRequest(run_id="run", name="create_tasks", arguments_json=TASK),
    "ReportUsage": usage_pb2.ReportUsageRequest(run_id="run", input_tokens=9),
    "GetRun": run_pb2.GetRunRequest(run_id="run"),
    "EndRun": run_pb2.EndRunRequest(run_id="run"),
}


@pytest.mark.parametrize("method", WAITING)
def test_a_call_that_waits_for_its_run_ends_at_its_deadline(method: str) -> None:
    """In the server too: no thread of its own is held for longer, and nothing of the run has changed."""
    with serving() as served:
        served.stub.TrimPrompt(request(), timeout=PATIENCE)
        run = served.core._table.known("local", "run")  # noqa: SLF001 - another call, at work for as long as it likes
        assert run is not None
        with run.lock:
            call = getattr(served.stub, method)
            assert "DEADLINE_EXCEEDED" == failure(lambda: call(WAITING[method], timeout=DEADLINE)).code
            assert served.server.stop(SOON)
        assert (1, (), False) == (run.calls, tuple(run.tasks.items), run.ended)
