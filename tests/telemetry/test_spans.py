"""Spans of a real server: their names, parents, attributes and status in every way that a call can end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.facts.guard_calls import RestoredArguments
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.tool_calls import RECALL
from prompt_sidecar.telemetry.spans import Spans
from prompt_sidecar.v1 import policy_pb2, retrieve_pb2, run_pb2, search_pb2, tool_pb2
from tests.doors.grpc.serving import LATE, PATIENCE, failure, outlasted
from tests.telemetry.watched import Watched, prompt, watched

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
PARENT = 0xB7AD6B7169203331
METADATA = (("traceparent", f"00-{TRACE:032x}-{PARENT:016x}-01"), ("tracestate", "vendor=1"))
METHOD = "prompt_sidecar.v1.SidecarService/TrimPrompt"


def _ended(server: Watched, name: str) -> ReadableSpan:
    """The one span of that name."""
    (span,) = server.spans()[name]
    return span


def _golden(span: ReadableSpan) -> dict[str, Any]:
    """All of a span but its ids and times."""
    return {
        "name": span.name,
        "kind": span.kind,
        "status": (span.status.status_code, span.status.description),
        "attributes": dict(span.attributes or {}),
        "events": [(event.name, dict(event.attributes or {})) for event in span.events],
        "links": list(span.links),
    }


def test_a_prompt_within_its_agents_trace() -> None:
    """The span of the call has the agent's span as its parent, and tells the outcome of the prompt."""
    with watched() as server:
        answer = server.served.stub.TrimPrompt(prompt(3, model="gpt-4o"), metadata=METADATA)
        span = _ended(server, METHOD)
        assert [METHOD] == list(server.spans())
    assert {
        "name": METHOD,
        "kind": SpanKind.SERVER,
        "status": (StatusCode.UNSET, None),
        "attributes": {
            "rpc.system.name": "grpc",
            "rpc.method": METHOD,
            "rpc.response.status_code": "OK",
            "prompt_sidecar.run.id": "run",
            "prompt_sidecar.caller": "local",
            "prompt_sidecar.prompt.format": "openai_chat",
            "prompt_sidecar.prompt.outcome": "untouched",
            "prompt_sidecar.prompt.iteration": 4,
            "prompt_sidecar.prompt.tokens.before": answer.tokens.before,
            "prompt_sidecar.prompt.tokens.after": answer.tokens.after,
            "prompt_sidecar.prompt.tokens.limit": 8_000,
            "prompt_sidecar.own_text.tokens": answer.tokens.own_text,
            "prompt_sidecar.prefix.tokens.kept": 0,
            "prompt_sidecar.prefix.tokens.rewritten": answer.tokens.after,
            "prompt_sidecar.trims": 0,
            "prompt_sidecar.trims.new": 0,
            "prompt_sidecar.prompt.model": "gpt-4o",
        },
        "events": [],
        "links": [],
    } == _golden(span)
    assert span.parent is not None
    assert span.context is not None
    assert (TRACE, PARENT, True) == (span.parent.trace_id, span.parent.span_id, span.parent.is_remote)
    assert "1" == span.context.trace_state["vendor"]
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time


def test_a_ceiling_below_the_limit_is_reported() -> None:
    """So that it shows that this, and not the window, is what prompts are trimmed to."""
    with watched() as server:
        policy = policy_pb2.Policy(ceiling_tokens=2_000)
        answer = server.served.stub.TrimPrompt(prompt(3, model="gpt-4o", policy=policy), metadata=METADATA)
        figures = server.served.stub.GetRun(run_pb2.GetRunRequest(run_id="run")).run
        attributes = _ended(server, METHOD).attributes
    assert attributes is not None
    assert (8_000, 2_000) == (answer.tokens.limit, answer.tokens.ceiling)
    assert 2_000 == attributes["prompt_sidecar.prompt.tokens.ceiling"] == figures.tokens.ceiling
    assert 0 == figures.ceiling_cuts


def test_a_call_that_is_not_sampled_has_no_spans() -> None:
    """As its agent decides; the call after it has its own."""
    with watched() as server:
        unsampled = ("traceparent", f"00-{TRACE:032x}-{PARENT:016x}-00")
        server.served.stub.TrimPrompt(prompt(3), metadata=(unsampled,))
        assert {} == server.spans()
        server.served.stub.TrimPrompt(prompt(4), metadata=METADATA)
        span = _ended(server, METHOD)
    assert span.attributes is not None
    assert 5 == span.attributes["prompt_sidecar.prompt.iteration"]


def test_a_prompt_without_a_call_has_a_span_of_its_own() -> None:
    """Through the doors that are no gRPC."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    written = Spans(provider.get_tracer("test"))
    written.restored("run", [RestoredArguments(b"{}", restored=2, not_allowed=1)], 5)
    (span,) = exporter.get_finished_spans()
    assert ("restore", 5) == (span.name, span.start_time)
    assert {
        "prompt_sidecar.run.id": "run",
        "prompt_sidecar.guard.calls": 1,
        "prompt_sidecar.guard.restored": 2,
        "prompt_sidecar.guard.not_allowed": 1,
        "prompt_sidecar.guard.unknown": 0,
    } == dict(span.attributes or {})


def test_a_batch_of_trims_is_an_event() -> None:
    """It tells how much went and why, and under which ids."""
    with watched() as server:
        answers = [server.served.stub.TrimPrompt(prompt(iterations)) for iterations in range(1, 16)]
        events = [event for span in server.spans()[METHOD] for event in span.events]
    (first,) = [answer for answer in answers if answer.cache.batch_point][:1]
    event = events[0]
    assert "prompt_sidecar.batch" == event.name
    assert {
        "prompt_sidecar.batch.items": len(first.trims),
        "prompt_sidecar.batch.tokens": sum(trim.tokens_saved for trim in first.trims),
        "prompt_sidecar.batch.batch_point": True,
        "prompt_sidecar.batch.reasons": ("fit",),
        "prompt_sidecar.stash.ids": tuple(trim.stash_id for trim in first.trims),
    } == dict(event.attributes or {})


def test_spans_of_recall_hold_no_foreign_id() -> None:
    """The spans of calls say what came of retrievals and searches; an id that was never ours stays out of them."""
    with watched() as server:
        stub = server.served.stub
        for iterations in range(1, 20):
            answer = stub.TrimPrompt(prompt(iterations))
        known = answer.trims[0].stash_id
        stub.RetrieveContent(retrieve_pb2.RetrieveContentRequest(run_id="run", stash_id=known))
        stub.RetrieveContent(retrieve_pb2.RetrieveContentRequest(run_id="run", stash_id="a secret"))
        stub.CallTool(tool_pb2.CallToolRequest(run_id="run", name=RECALL, arguments_json=f'{{"id": "{known}"}}'))
        stub.SearchHistory(search_pb2.SearchHistoryRequest(run_id="run", query="module_3"))
        spans = server.spans()
    calls = [dict(span.attributes or {}) for of_name in spans.values() for span in of_name]
    retrievals = [each for each in calls if "prompt_sidecar.retrieval.outcome" in each]
    attributes = [
        (each["prompt_sidecar.retrieval.outcome"], each["prompt_sidecar.via"], each.get("prompt_sidecar.stash.id"))
        for each in retrievals
    ]
    assert [("hit", "rpc", known), ("not_found", "rpc", None), ("hit", "tool", None)] == attributes
    (search,) = [each for each in calls if "prompt_sidecar.search.outcome" in each]
    assert "found" == search["prompt_sidecar.search.outcome"]
    assert search["prompt_sidecar.stash.ids"]


@pytest.mark.parametrize(
    ("call", "code", "status"),
    [
        (lambda stub: stub.TrimPrompt(prompt(1, run_id="")), "INVALID_ARGUMENT", StatusCode.UNSET),
        (lambda stub: stub.GetRun(run_pb2.GetRunRequest(run_id="none")), "NOT_FOUND", StatusCode.UNSET),
        (lambda stub: stub.TrimPrompt(prompt(30)), "RESOURCE_EXHAUSTED", StatusCode.UNSET),
    ],
)
def test_a_callers_fault_is_no_error_of_the_server(
    call: Callable[[Any], object], code: str, status: StatusCode
) -> None:
    """As the conventions have it: the status code stands there, and the span is not marked."""
    with watched(limits=Limits(run_messages=20)) as server:
        failure(lambda: call(server.served.stub))
        spans = [span for spans in server.spans().values() for span in spans]
    (span,) = spans
    assert span.attributes is not None
    assert (code, code) == (span.attributes["rpc.response.status_code"], span.attributes["error.type"])
    assert status is span.status.status_code


def test_a_method_that_is_not_served() -> None:
    """It is named after the system, since anybody can make up names; the trace goes on all the same."""
    with watched() as server:
        made_up: grpc.UnaryUnaryMultiCallable[bytes, bytes] = server.served.channel.unary_unary(
            "/prompt_sidecar.v1.SidecarService/SecretName"
        )
        with pytest.raises(grpc.RpcError) as caught:
            made_up(b"", metadata=METADATA, timeout=PATIENCE)
        span = _ended(server, "grpc")
    assert grpc.StatusCode.UNIMPLEMENTED is caught.value.code()
    expected = {
        "rpc.system.name": "grpc",
        "rpc.method": "_OTHER",
        "rpc.response.status_code": "UNIMPLEMENTED",
        "error.type": "UNIMPLEMENTED",
    }
    assert (expected, StatusCode.ERROR) == (dict(span.attributes or {}), span.status.status_code)
    assert span.parent is not None
    assert PARENT == span.parent.span_id


def test_a_deadline_and_a_cancellation() -> None:
    """A call that ends while it is held has the status that its caller saw."""
    with watched() as server:
        gate = server.served.gate
        late = partial(server.served.stub.TrimPrompt.future, prompt(1), timeout=LATE)
        assert "DEADLINE_EXCEEDED" == outlasted(gate, late).code
        _wait_for_spans(server, 1)
        gate.shut()
        gone = server.served.stub.TrimPrompt.future(prompt(1), timeout=PATIENCE)
        gate.wait_reached()
        gone.cancel()
        _check_health(server)  # on the same connection, so that the server knows of the cancellation after it
        gate.open()
        _wait_for_spans(server, 2)
        first, second = server.spans()[METHOD]
    statuses = [
        ((span.attributes or {})["rpc.response.status_code"], span.status.status_code) for span in (first, second)
    ]
    assert [("DEADLINE_EXCEEDED", StatusCode.ERROR), ("CANCELLED", StatusCode.UNSET)] == statuses


def _check_health(server: Watched) -> None:
    health: grpc.UnaryUnaryMultiCallable[bytes, bytes] = server.served.channel.unary_unary(
        "/grpc.health.v1.Health/Check"
    )
    health(b"", timeout=PATIENCE)


def _wait_for_spans(server: Watched, calls: int) -> None:
    """Until so many calls have ended: scrapes take turns with them."""
    for _ in range(10_000):
        if len(server.spans().get(METHOD, ())) >= calls:
            return
        server.scrape()
    raise AssertionError("the call never ended")


def test_a_refused_call() -> None:
    """A call past the bound on calls has a span too, so that a trace shows why its agent waited."""
    with watched(server=ServerOptions(listen="127.0.0.1:0", workers=1, max_calls=1)) as server:
        gate = server.served.gate
        gate.shut()
        held = server.served.stub.TrimPrompt.future(prompt(1))
        gate.wait_reached()
        assert "RESOURCE_EXHAUSTED" == failure(lambda: server.served.stub.TrimPrompt(prompt(1))).code
        span = _ended(server, METHOD)
        gate.open()
        held.result()
    assert span.attributes is not None
    assert "RESOURCE_EXHAUSTED" == span.attributes["rpc.response.status_code"]


def test_an_internal_error_tells_nothing_of_itself() -> None:
    """The span is an error, without the exception: its text may quote a prompt."""

    def fails() -> float:
        raise ValueError("secret text")

    with watched() as server:
        server.served.gate.replace(fails)
        assert "INTERNAL" == failure(lambda: server.served.stub.TrimPrompt(prompt(1))).code
        span = _ended(server, METHOD)
    assert (StatusCode.ERROR, None) == (span.status.status_code, span.status.description)
    assert () == tuple(span.events)
    assert "secret" not in span.to_json()


def test_health_checks_are_not_traced() -> None:
    """They come every few seconds and tell nothing."""
    with watched() as server:
        _check_health(server)
        assert {} == server.spans()
        figures = server.scrape()
    assert "grpc.health.v1.Health/Check" in figures.text
