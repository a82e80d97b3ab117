"""Spans that go through a real collector: within the agent's trace, with the right status, and without any text."""

from __future__ import annotations

import json
import secrets
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.telemetry import pipeline
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.v1 import (
    retrieve_pb2,
    run_pb2,
    search_pb2,
    service_pb2_grpc,
    task_pb2,
    tool_pb2,
    trim_pb2,
    usage_pb2,
)
from tests.doors.grpc.serving import LATE, Gate, Server, failure, outlasted, runs
from tests.lab.harness import components
from tests.lab.harness.processes import Programs
from tests.lab.observe import stack
from tests.real.needing import need
from tests.real.otlp import Sink, Span, sink

SERVICE = "prompt_sidecar.v1.SidecarService"
SECRET = "s3cr3t" + "-zanzibar-" + "8412"
HELLO = b'[{"role":"user","content":"hello"}]'


@dataclass(frozen=True, slots=True)
class Watched:
    """A sidecar whose spans come out of a real collector."""

    sidecar: stack.Sidecar
    channel: grpc.Channel
    stub: service_pb2_grpc.SidecarServiceStub
    sink: Sink


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One for all tests of this file: each looks at a trace of its own."""
    rotel = need(components.rotel)
    folder = tmp_path_factory.mktemp("spans")
    with sink() as (kept, port), Programs(folder) as programs:
        _, collector = stack.collector(programs, rotel, forward_to=port)
        settings = {"log.level": "debug", "log.format": "json", "policy.fit_high": "0.9"}
        more = {
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_BLRP_SCHEDULE_DELAY": "200",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        sidecar = stack.sidecar(programs, "sidecar", settings, collector, **more)
        with sidecar.channel() as channel:
            yield Watched(sidecar, channel, service_pb2_grpc.SidecarServiceStub(channel), kept)


@dataclass(frozen=True, slots=True)
class Held:
    """A server in this process whose calls can be held, as its core's clock can; its spans come out of a collector."""

    stub: service_pb2_grpc.SidecarServiceStub
    gate: Gate
    sink: Sink


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """One for all tests of this file."""
    rotel, gate = need(components.rotel), Gate()
    with sink() as (kept, port), Programs(tmp_path_factory.mktemp("held")) as programs:
        _, collector = stack.collector(programs, rotel, forward_to=port)
        options = TelemetryOptions(metrics_listen="", otlp_endpoint=f"http://127.0.0.1:{collector}")
        with pytest.MonkeyPatch.context() as variables:
            # OpenTelemetry's own processor reads it from the process: spans need not wait five seconds for a batch.
            variables.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
            telemetry = pipeline.start(options, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
        server = Server(ServerOptions(listen="127.0.0.1:0", sweep_interval=3_600), telemetry.observer)
        server.start(runs(gate))
        try:
            with grpc.insecure_channel(server.addresses[0]) as channel:
                yield Held(service_pb2_grpc.SidecarServiceStub(channel), gate, kept)
        finally:
            gate.open()
            server.stop(0)
            telemetry.stop()


class Trace:
    """An agent's own span, and what it sends along."""

    def __init__(self) -> None:
        self.trace_id = secrets.token_hex(16)
        self.span_id = secrets.token_hex(8)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """W3C's header, sampled."""
        return (("traceparent", f"00-{self.trace_id}-{self.span_id}-01"),)


def prompt(run_id: str, body: bytes, **more: Any) -> trim_pb2.TrimPromptRequest:
    """A prompt in OpenAI's format."""
    return trim_pb2.TrimPromptRequest(
        run_id=run_id, json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body), **more
    )


def only(kept: Sink, trace: Trace) -> Span:
    """The one span of a trace."""
    (span,) = kept.trace(trace.trace_id, 1)
    return span


def facts_of(span: Span) -> tuple[str, str, str, str, object, object]:
    """What every server span must say."""
    attributes = span.attributes
    return (
        span.name,
        span.kind,
        span.status,
        span.message,
        attributes.get("rpc.response.status_code"),
        attributes.get("error.type"),
    )


def test_a_prompt_is_a_span_within_the_agents_trace(watched: Watched) -> None:
    """The server's span is the child of the agent's, and tells the answer's figures."""
    trace = Trace()
    answer = watched.stub.TrimPrompt(prompt("spans", HELLO), metadata=trace.metadata)
    (span,) = watched.sink.trace(trace.trace_id, 1)

    assert trace.span_id == span.parent_id
    assert (f"{SERVICE}/TrimPrompt", "SERVER", "UNSET", "", "OK", None) == facts_of(span)
    assert ("grpc", f"{SERVICE}/TrimPrompt") == (span.attributes["rpc.system.name"], span.attributes["rpc.method"])
    assert (answer.tokens.before, answer.tokens.after, answer.tokens.limit, answer.iteration) == tuple(
        span.attributes[f"prompt_sidecar.prompt.{name}"]
        for name in ("tokens.before", "tokens.after", "tokens.limit", "iteration")
    )


def test_recall_and_search_are_reported_by_spans(watched: Watched) -> None:
    """Of the tool's call as of the call of its own, with the outcome."""
    run, trace = "recall-spans", Trace()
    watched.stub.TrimPrompt(prompt(run, b'[{"role":"user","content":"the needle is here"}]'))
    search = search_pb2.SearchHistoryRequest(run_id=run, query="needle")
    retrieve = retrieve_pb2.RetrieveContentRequest(run_id=run, stash_id="madeupid00")
    tool = tool_pb2.CallToolRequest(
        run_id=run, name="search_conversation_history", arguments_json='{"query": "needle"}'
    )
    watched.stub.SearchHistory(search, metadata=trace.metadata)
    watched.stub.RetrieveContent(retrieve, metadata=trace.metadata)
    watched.stub.CallTool(tool, metadata=trace.metadata)
    outcomes = sorted(
        (span.name, value)
        for span in watched.sink.trace(trace.trace_id, 3)
        for name, value in span.attributes.items()
        if name in ("prompt_sidecar.search.outcome", "prompt_sidecar.retrieval.outcome")
    )

    assert [
        (f"{SERVICE}/CallTool", "found"),
        (f"{SERVICE}/RetrieveContent", "not_found"),
        (f"{SERVICE}/SearchHistory", "found"),
    ] == outcomes


def test_a_bad_request_is_the_callers_fault(watched: Watched) -> None:
    """The span has the status code, and is no error of the server."""
    trace = Trace()
    failure(lambda: watched.stub.TrimPrompt(prompt("bad", b"no prompt"), metadata=trace.metadata))

    expected = (f"{SERVICE}/TrimPrompt", "SERVER", "UNSET", "", "INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert expected == facts_of(only(watched.sink, trace))


def test_a_refused_prompt_is_an_event_of_its_span(watched: Watched) -> None:
    """As a log record through the collector, with the trace and the span of the call, and its reason."""
    trace = Trace()
    failure(lambda: watched.stub.TrimPrompt(prompt("bad", b"no prompt"), metadata=trace.metadata))
    event = watched.sink.wait_for_event(trace.trace_id)

    assert ("prompt_sidecar.refusal", "WARN") == (event.name, event.severity)
    assert only(watched.sink, trace).span_id == event.span_id
    assert ("bad", "INVALID_JSON") == tuple(event.attributes[name] for name in ("prompt_sidecar.run.id", "error.type"))


def test_a_deadline_is_an_error(held: Held) -> None:
    """A call that its caller's deadline cut off is told as that."""
    trace = Trace()
    late = partial(held.stub.TrimPrompt.future, prompt("late", HELLO), metadata=trace.metadata, timeout=LATE)

    assert "DEADLINE_EXCEEDED" == outlasted(held.gate, late).code
    expected = (f"{SERVICE}/TrimPrompt", "SERVER", "ERROR", "", "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
    assert expected == facts_of(only(held.sink, trace))


def test_a_cancelled_call_is_reported_as_cancelled(held: Held) -> None:
    """A caller that goes away is no error of the server."""
    trace = Trace()
    held.gate.shut()
    call = held.stub.TrimPrompt.future(prompt("gone", HELLO), metadata=trace.metadata)
    held.gate.wait_reached()
    call.cancel()
    # The server hears of it on the connection: once a call that was sent later is at work, it has.
    later = held.stub.TrimPrompt.future(prompt("later", HELLO))
    held.gate.wait_reached()
    held.gate.open()
    later.result()

    expected = (f"{SERVICE}/TrimPrompt", "SERVER", "UNSET", "", "CANCELLED", "CANCELLED")
    assert expected == facts_of(only(held.sink, trace))


def test_a_method_that_is_not_served(watched: Watched) -> None:
    """It has a span, whose name is not the caller's."""
    trace = Trace()
    call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = watched.channel.unary_unary(f"/{SERVICE}/{SECRET}")
    refused = failure(lambda: call(b"", metadata=trace.metadata))

    assert "UNIMPLEMENTED" == refused.code
    expected = ("grpc", "SERVER", "ERROR", "", "UNIMPLEMENTED", "UNIMPLEMENTED")
    assert expected == facts_of(only(watched.sink, trace))


def test_an_internal_error_tells_nothing_of_itself(held: Held) -> None:
    """When the sidecar itself fails, the span is an error, and what the failure said is in neither span nor answer.

    Nothing that a caller can send is known to do that; so the clock, which the core is given, fails.
    """
    trace = Trace()

    def broken() -> float:
        raise RuntimeError(SECRET)

    held.gate.replace(broken)
    try:
        refused = failure(lambda: held.stub.TrimPrompt(prompt("broken", HELLO), metadata=trace.metadata))
    finally:
        held.gate.replace(time.time)
    span = only(held.sink, trace)

    assert ("INTERNAL", False) == (refused.code, SECRET in refused.message)
    assert (f"{SERVICE}/TrimPrompt", "SERVER", "ERROR", "", "INTERNAL", "INTERNAL") == facts_of(span)
    assert () == span.events
    assert not any(SECRET.encode() in raw for raw in held.sink.raw)


def test_metrics_are_pushed_too(watched: Watched) -> None:
    """What /metrics shows goes to the collector as well."""
    assert {"prompt_sidecar.prompts", "prompt_sidecar.build.info"} <= watched.sink.wait_for_metrics()


def test_no_text_gets_out(watched: Watched) -> None:
    """A secret that is planted wherever text can stand is in no metric, span, log line or error."""
    run, trace = "planted", Trace()
    text = json.dumps(planted())
    requests = (
        (prompt(run, text.encode(), model=SECRET), "TrimPrompt"),
        (prompt(run, text.encode()[:-1], model=SECRET), "TrimPrompt"),
        (prompt(run, SECRET.encode()), "TrimPrompt"),
        (search_pb2.SearchHistoryRequest(run_id=run, query=SECRET, tools=[SECRET]), "SearchHistory"),
        (search_pb2.SearchHistoryRequest(run_id=run, query=SECRET, stash_ids=[SECRET]), "SearchHistory"),
        (retrieve_pb2.RetrieveContentRequest(run_id=run, stash_id=SECRET), "RetrieveContent"),
        (task_pb2.CreateTasksRequest(run_id=run, items=[SECRET], request_id=SECRET), "CreateTasks"),
        (tool_pb2.CallToolRequest(run_id=run, name=SECRET, arguments_json=SECRET), "CallTool"),
        (tool_pb2.CallToolRequest(run_id=run, name="create_tasks", arguments_json=SECRET), "CallTool"),
        (usage_pb2.ReportUsageRequest(run_id=run, model=SECRET, refusal=refusal()), "ReportUsage"),
        (run_pb2.EndRunRequest(run_id=run), "EndRun"),
    )
    errors = [error for request, method in requests if (error := error_of(watched, method, request, trace))]
    watched.sink.trace(trace.trace_id, len(requests))
    log = watched.sidecar.running.output()

    assert {"metrics": False, "spans": False, "log": False, "errors": False} == {
        "metrics": SECRET in scrape(watched),
        "spans": any(SECRET.encode() in raw for raw in watched.sink.raw),
        "log": SECRET in log,
        "errors": any(SECRET in error for error in errors),
    }
    assert 2 <= len(errors)


def planted() -> list[dict[str, Any]]:
    """A history with a secret wherever text can stand, and a result that is trimmed."""
    function = {"name": SECRET, "arguments": json.dumps({SECRET: SECRET})}
    return [
        {"role": "system", "content": SECRET},
        {"role": "user", "content": SECRET, "name": SECRET},
        {
            "role": "assistant",
            "content": SECRET,
            "tool_calls": [{"id": SECRET, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": SECRET, "content": f"{SECRET} is here\n" * 10_000},
    ]


def refusal() -> usage_pb2.PromptRefusal:
    """What a provider said, with a secret in it."""
    return usage_pb2.PromptRefusal(message=f"prompt is too long: 10 tokens > 9 maximum {SECRET}")


def error_of(watched: Watched, method: str, request: Any, trace: Trace) -> str:
    """Make a call; return all that its error says, empty if there was none."""
    try:
        getattr(watched.stub, method)(request, metadata=(*trace.metadata, ("x-note", SECRET)))
    except grpc.RpcError as error:
        # All that gRPC shows of it, and the details that travel beside.
        seen: Any = error
        return f"{error} {error.args} {rpc_status.from_call(seen)}"
    return ""


def scrape(watched: Watched) -> str:
    """What /metrics says."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError), opener.open(f"http://{watched.sidecar.metrics}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text
    return ""
