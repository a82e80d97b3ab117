"""A planted text occurs nowhere in what leaves the process besides the answers: figures, spans, logs, errors."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from prompt_sidecar.process.logs import configure
from prompt_sidecar.telemetry.spans import current_ids
from prompt_sidecar.telemetry.tallies import Tallies
from prompt_sidecar.v1 import (
    retrieve_pb2,
    search_pb2,
    task_pb2,
    tool_pb2,
    trim_pb2,
    usage_pb2,
)
from tests.doors.grpc.serving import serving
from tests.telemetry.watched import Watched, messages, prompt_of, watched

SECRET = "Hollandaise-4711"
METHODS = (
    "TrimPrompt", "RetrieveContent", "SearchHistory", "CreateTasks", "UpdateTask", "ListTasks", "ListTools", "CallTool",
    "ReportUsage", "GetRun", "EndRun",
)  # fmt: skip


def _history() -> list[dict[str, Any]]:
    """A run that holds the secret in every place that has text of users, models or tools."""
    sent = messages(12, SECRET)
    sent[0]["content"] = f"Find {SECRET}."
    sent.insert(0, {"role": "system", "content": f"You know {SECRET}."})
    for message in sent:
        for call in message.get("tool_calls", ()):
            call["id"] = SECRET
            call["function"] = {"name": SECRET, "arguments": json.dumps({SECRET: SECRET})}
        if "tool_call_id" in message:
            message["tool_call_id"] = SECRET
    return sent


def _good(server: Watched) -> Iterator[Callable[[], object]]:
    """Calls of every method that succeed, with the secret wherever text can stand."""
    stub = server.served.stub
    bodies = [{"model": SECRET, "messages": _history(), SECRET: SECRET}, _history()]
    for sent in bodies:
        yield lambda sent=sent: stub.TrimPrompt(prompt_of(sent, model=SECRET))  # type: ignore[misc]
        yield lambda sent=sent: stub.TrimPrompt(prompt_of(sent, dry_run=True))  # type: ignore[misc]
    yield lambda: stub.RetrieveContent(retrieve_pb2.RetrieveContentRequest(run_id="run", stash_id=SECRET))
    yield lambda: stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id="run", query=SECRET, tools=[SECRET]))
    yield lambda: stub.CreateTasks(task_pb2.CreateTasksRequest(run_id="run", items=[SECRET], request_id=SECRET))
    for name in ("search_conversation_history", "recall_elided_content", "create_tasks", "update_task", SECRET):
        for arguments in ({"query": SECRET}, {"id": SECRET}, {"tasks": [SECRET]}, {SECRET: SECRET}, SECRET):
            asked = tool_pb2.CallToolRequest(run_id="run", name=name, arguments_json=json.dumps(arguments))
            yield lambda asked=asked: stub.CallTool(asked)  # type: ignore[misc]
    refusal = usage_pb2.PromptRefusal(message=f"{SECRET} is too long: 9000 tokens > 8000 maximum")
    yield lambda: stub.ReportUsage(usage_pb2.ReportUsageRequest(run_id="run", model=SECRET, refusal=refusal))


def _bad(server: Watched) -> Iterator[Callable[[], object]]:
    """Calls that are refused: bytes that are no request, bodies that are no prompt, fields that are out of bounds."""
    raw = SECRET.encode()
    for method in (*METHODS, SECRET):
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = server.served.channel.unary_unary(
            f"/prompt_sidecar.v1.SidecarService/{method}"
        )
        for junk in (raw, b"\x12\x10" + raw, b"\xff" + raw):
            yield lambda call=call, junk=junk: call(junk)  # type: ignore[misc]
    stub = server.served.stub
    for sent in (
        SECRET,
        {"messages": SECRET},
        {"messages": [{"role": SECRET}]},
        {"messages": [{"role": "user", "content": [{"type": SECRET, SECRET: SECRET}]}]},
        {"messages": [{"role": "assistant", "tool_calls": SECRET}]},
        [{SECRET: SECRET}],
        {"messages": [{"role": "user", "content": SECRET}], "tools": SECRET, "max_tokens": SECRET},
    ):
        for format_ in trim_pb2.Format.values():
            asked = trim_pb2.TrimPromptRequest(
                run_id="run", json=trim_pb2.JsonPrompt(format=format_, body=json.dumps(sent).encode())
            )
            yield lambda asked=asked: stub.TrimPrompt(asked)  # type: ignore[misc]
    cut = json.dumps({"messages": [{"role": "user", "content": SECRET}]}).encode()[:-3]
    broken = trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=cut)
    yield lambda: stub.TrimPrompt(trim_pb2.TrimPromptRequest(run_id="run", json=broken))
    yield lambda: stub.CreateTasks(task_pb2.CreateTasksRequest(run_id="run", items=[SECRET * 50]))
    pattern = retrieve_pb2.PatternMatch(expression=f"({SECRET}")
    yield lambda: stub.RetrieveContent(
        retrieve_pb2.RetrieveContentRequest(run_id="run", stash_id="AAAAAAAAAA", pattern=pattern)
    )
    yield lambda: stub.ListTools(tool_pb2.ListToolsRequest(names=[SECRET]))


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_planted_text_is_nowhere(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """After good and bad calls of every method, with every call traced and everything logged."""
    texts: list[str] = []
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    configure(form, "debug", current_ids)
    try:
        with watched(genai=True) as server:
            succeeded = 0
            for call in (*_good(server), *_bad(server)):
                with contextlib.suppress(grpc.RpcError):
                    call()
                    succeeded += 1
                    continue
                texts.append(_refusal(call))
            server.served.gate.replace(lambda: 1 / 0)
            texts.append(_refusal(next(_good(server))))
            figures = server.scrape().text
            spans = [span.to_json() for each in server.spans().values() for span in each]
            events = [repr((record.event_name, record.body, record.attributes)) for record in server.events()]
    finally:
        root.handlers, root.level = handlers, level
    logged = capsys.readouterr().err
    assert succeeded > 30
    assert len(texts) > 50
    assert len(spans) > 100
    assert len(events) > 50
    assert "incident" in logged
    for text in (figures, logged, *spans, *events, *texts):
        assert SECRET not in text


def _refusal(call: Callable[[], object]) -> str:
    """All that an error tells its caller."""
    with contextlib.suppress(grpc.RpcError):
        call()
        return ""
    try:
        call()
    except grpc.RpcError as error:
        found: Any = error
        return f"{found.details()} {found.trailing_metadata()} {found.debug_error_string()}"
    return ""


def test_logs_within_a_call_name_their_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """So that a line of the log leads to the agent's trace; outside of calls there is none."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    configure("json", "info", current_ids)
    try:
        with watched() as server:
            server.served.gate.replace(lambda: 1 / 0)
            with contextlib.suppress(grpc.RpcError):
                server.served.stub.TrimPrompt(prompt_of([{"role": "user", "content": "hello"}]))
            (span,) = server.spans()["prompt_sidecar.v1.SidecarService/TrimPrompt"]
        logging.getLogger("prompt_sidecar").info("outside")
    finally:
        root.handlers, root.level = handlers, level
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    (failed,) = [line for line in lines if "incident" in line["message"]]
    assert span.context is not None
    assert (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}") == (failed["trace_id"], failed["span_id"])
    assert "trace_id" not in lines[-1]


def test_a_window_that_fills_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With a digest in place of the run's id, which is the agent's data."""
    caplog.set_level(logging.INFO, "prompt_sidecar.window")
    with watched() as server:
        for iterations in range(1, 25):
            server.served.stub.TrimPrompt(prompt_of(messages(iterations), run_id="agent@example.org"))
    assert 1 == sum("50 %" in record.getMessage() for record in caplog.records)
    assert "example.org" not in caplog.text


def test_a_server_without_telemetry_serves() -> None:
    """Whoever starts a server by itself need not watch it."""
    with serving() as served:
        assert served.stub.TrimPrompt(prompt_of(messages(2))).fits


def test_a_mistake_in_telling_costs_no_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, without its text."""
    with watched() as server:
        monkeypatch.setattr(Tallies, "add", lambda *_: 1 / 0)
        assert server.served.stub.TrimPrompt(prompt_of(messages(2))).fits
    assert [f"telemetry failed to report {what}: ZeroDivisionError" for what in ("received", "trimmed", "handled")] == [
        record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR
    ]
