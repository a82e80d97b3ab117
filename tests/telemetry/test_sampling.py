"""Which calls have spans: what is not sampled costs next to nothing, and loses no figure."""

from __future__ import annotations

import time

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sidecar.telemetry import catalog, spans
from tests.telemetry.watched import prompt, watched

METHOD = "sidecar.v1.SidecarService/TrimPrompt"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    "carried",
    [
        {},
        {"traceparent": f"00-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{SPAN}-00"},
        {"traceparent": f"00-{TRACE}-{SPAN}-03", "tracestate": "a=b"},
        {"traceparent": f"01-{TRACE}-{SPAN}-01-more"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01\n"},
        {"traceparent": ""},
        {"tracestate": "a=b"},
    ],
)
def test_a_trace_is_read_as_the_library_reads_it(carried: dict[str, str]) -> None:
    """The usual form has a shorter way, which must lead to the same trace."""
    theirs = trace.get_current_span(TraceContextTextMapPropagator().extract(carried, Context())).get_span_context()
    ours = trace.get_current_span(spans.remote(carried.items())).get_span_context()
    assert (theirs, theirs.is_remote, theirs.trace_state) == (ours, ours.is_remote, ours.trace_state)


def test_what_the_agent_does_not_sample_has_no_spans() -> None:
    """By the default sampler; its lines in the log still tell its trace, and its figures count."""
    told: list[tuple[str, str] | None] = []
    with watched() as server:

        def clock() -> float:
            told.append(spans.current_ids())
            return time.monotonic()

        server.served.gate.replace(clock)
        server.served.stub.TrimPrompt(prompt(3), metadata=(("traceparent", f"00-{TRACE}-{SPAN}-00"),))
        assert {} == server.spans()
        assert 1 == server.scrape().of(catalog.PROMPTS)
    assert {(TRACE, SPAN)} == set(filter(None, told))


def test_another_sampler_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes every call takes those that the agent does not sample."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    with watched() as server:
        server.served.stub.TrimPrompt(prompt(3), metadata=(("traceparent", f"00-{TRACE}-{SPAN}-00"),))
        assert {METHOD, "trim"} == server.spans().keys()
