"""A call that has ended leaves nothing behind that keeps its stream: a connection may have only so many."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import grpc
import orjson
import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.v1 import run_pb2, search_pb2, task_pb2, trim_pb2
from tests.doors.grpc.serving import PATIENCE, Serving, request, serving

STREAMS = 4
CALLS = 5 * STREAMS


@pytest.fixture
def few_streams() -> Iterator[Serving]:
    """A server that takes four streams a connection; no garbage is collected, as nobody knows when it would be."""
    gc.collect()
    gc.disable()
    try:
        with serving(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600, max_streams=STREAMS)) as served:
            yield served
    finally:
        gc.enable()


def body(messages: int) -> bytes:
    """A history with so many messages."""
    messages_sent = [{"role": ("user", "assistant")[at % 2], "content": f"said {at} " * 200} for at in range(messages)]
    return orjson.dumps({"messages": messages_sent})


def test_calls_one_after_another(few_streams: Serving) -> None:
    """Each is answered, however many came before it on the connection: prompts that grow, and what is asked of them."""
    for number in range(CALLS):
        sent = request("run", body(2 * number + 1))
        sent.context_window = 4_000
        answer = few_streams.stub.TrimPrompt(sent, timeout=PATIENCE)
        assert number + 1 == answer.iteration
        few_streams.stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id="run", query="said"), timeout=PATIENCE)
        few_streams.stub.ListTasks(task_pb2.ListTasksRequest(run_id="run"), timeout=PATIENCE)


def test_one_run_after_another(few_streams: Serving) -> None:
    """Likewise where each call is the first of its run, asks for edits, or changes nothing."""
    for number in range(CALLS):
        sent = request(f"run-{number}", body(31))
        sent.context_window = 4_000
        sent.response_mode = trim_pb2.RESPONSE_MODE_EDITS
        sent.dry_run = number % 2 == 0
        assert few_streams.stub.TrimPrompt(sent, timeout=PATIENCE).iteration > 1


def test_refused_calls(few_streams: Serving) -> None:
    """An error that was answered keeps neither its frames nor the call."""
    for number in range(CALLS):
        for sent in (request("", body(1)), request("run", b"{"), request("run", b'{"messages": [{"role": 7}]}')):
            with pytest.raises(grpc.RpcError) as refused:
                few_streams.stub.TrimPrompt(sent, timeout=PATIENCE)
            assert grpc.StatusCode.INVALID_ARGUMENT == refused.value.code(), number
        with pytest.raises(grpc.RpcError) as unknown:
            few_streams.stub.GetRun(run_pb2.GetRunRequest(run_id="nobody"), timeout=PATIENCE)
        assert grpc.StatusCode.NOT_FOUND == unknown.value.code(), number
