"""Calls that wait for their run, which another call holds for long: they end at their deadlines."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.v1 import run_pb2, search_pb2, service_pb2_grpc, task_pb2, tool_pb2, usage_pb2
from tests.doors.grpc.serving import PATIENCE, Serving, failure, request, serving

DEADLINE = 0.3
_APART = [("grpc.use_local_subchannel_pool", 1)]
"""For a channel with a connection of its own."""
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
        run = served.core.table.known("local", "run")
        assert run is not None
        with run.lock:
            call = getattr(served.stub, method)
            assert "DEADLINE_EXCEEDED" == failure(lambda: call(WAITING[method], timeout=DEADLINE)).code
            assert served.server.stop(SOON)
        assert (1, (), False) == (run.calls, tuple(run.tasks.items), run.ended)


def test_calls_that_wait_leave_threads_for_other_connections() -> None:
    """However many of one connection wait for their run, another's is answered; and they go on when they can."""
    with serving() as served, grpc.insecure_channel(served.address, options=_APART) as channel:
        served.stub.TrimPrompt(request(), timeout=PATIENCE)
        other = service_pb2_grpc.SidecarServiceStub(channel)
        run = served.core.table.known("local", "run")
        assert run is not None
        with run.lock:
            waiting = [served.stub.TrimPrompt.future(request(), timeout=PATIENCE) for _ in range(60)]
            for number in range(5):
                assert other.TrimPrompt(request(f"other-{number}"), timeout=SOON).fits
            assert not any(each.done() for each in waiting)
        assert all(each.result().fits for each in waiting)


def test_many_connections_of_one_caller_leave_threads_for_others(tmp_path: Path) -> None:
    """However many of its calls wait, on however many connections, another caller's is answered."""
    tokens = tmp_path / "tokens"
    tokens.write_text("one:one-token-0123456789\nother:other-token-0123456789\n")
    tokens.chmod(0o600)
    one, other = ((("authorization", f"Bearer {name}-token-0123456789"),) for name in ("one", "other"))
    options = ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600, tokens_file=str(tokens))
    with serving(options) as served, ExitStack() as stack:
        served.stub.TrimPrompt(request(), timeout=PATIENCE, metadata=one)
        run = served.core.table.known("token:one", "run") or served.core.table.known("one", "run")
        assert run is not None
        with run.lock:
            waiting = []
            for _ in range(12):
                channel = stack.enter_context(grpc.insecure_channel(served.address, options=_APART))
                stub = service_pb2_grpc.SidecarServiceStub(channel)
                waiting += [stub.TrimPrompt.future(request(), timeout=PATIENCE, metadata=one) for _ in range(20)]
            _wait_for_begun(served, 20)
            for number in range(5):
                assert served.stub.TrimPrompt(request(f"other-{number}"), timeout=SOON, metadata=other).fits
            assert not any(each.done() for each in waiting)
        assert all(each.result().fits for each in waiting)


def _wait_for_begun(served: Serving, count: int) -> None:
    """Wait until so many calls have a thread."""
    pool = served.server.shared.workers
    for _ in range(int(PATIENCE / 0.01)):
        if pool.workers - pool._free_threads >= count:  # noqa: SLF001
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"fewer than {count} calls have begun")
