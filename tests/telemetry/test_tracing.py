"""Our tracer's spans are those that the SDK's tracer makes of the same calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, DEFAULT_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from prompt_sidecar.telemetry.spans import remote
from prompt_sidecar.telemetry.tracing import MOST_EVENTS, QuickTracer, Starter, starter

SCOPE = InstrumentationScope("prompt_sidecar", "1")
SAMPLERS: dict[str, Sampler] = {
    "default": DEFAULT_ON,
    "all": ALWAYS_ON,
    "none": ALWAYS_OFF,
    "some": ParentBased(TraceIdRatioBased(0.5)),
}
PARENTS = (
    "",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.lists(st.text(max_size=5), max_size=4),
)
ATTRIBUTES = st.dictionaries(st.text(st.characters(codec="ascii"), min_size=1, max_size=5), VALUES, max_size=5)
STEPS = st.one_of(
    st.tuples(st.just("set_attributes"), ATTRIBUTES),
    st.tuples(st.just("set_attribute"), st.sampled_from(["a", "b"]), VALUES),
    st.tuples(st.just("add_event"), st.sampled_from(["batch", "finding"]), ATTRIBUTES, st.integers(1, 2**60)),
    st.tuples(st.just("update_name"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("set_status"), st.sampled_from([Status(StatusCode.ERROR), Status(StatusCode.ERROR, "why")])),
)


class _Counted(IdGenerator):
    """The same ids each time."""

    def __init__(self) -> None:
        self.last = 0

    def generate_span_id(self) -> int:
        self.last += 1
        return self.last

    def generate_trace_id(self) -> int:
        self.last += 1
        return self.last << 60

    def is_trace_id_random(self) -> bool:
        return True


def _traced(sampler: Sampler, *, ours: bool) -> tuple[Starter, InMemorySpanExporter]:
    """A tracer, and where its spans go."""
    provider = TracerProvider(
        sampler,
        Resource({"service.name": "prompt-sidecar"}),
        shutdown_on_exit=False,
        id_generator=_Counted(),
        meter_provider=NoOpMeterProvider(),
    )
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    provider.add_span_processor(processor)
    if ours:
        return QuickTracer(provider, processor, SCOPE), exporter
    return provider.get_tracer(SCOPE.name, SCOPE.version), exporter


def _parent(traceparent: str) -> Context:
    carrier = {"traceparent": traceparent, "tracestate": "vendor=1"} if traceparent else {}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _written(span: Span, steps: Sequence[tuple[Any, ...]], end: int) -> Any:
    """Do these with a span; what can be seen of it before and after its end."""
    before = span.is_recording(), span.get_span_context()
    for name, *arguments in steps:
        getattr(span, name)(*arguments)
    span.end(end)
    return before, span.is_recording()


@given(
    sampler=st.sampled_from(sorted(SAMPLERS)),
    spans=st.lists(
        st.tuples(
            st.sampled_from(PARENTS),
            st.sampled_from(SpanKind),
            ATTRIBUTES,
            st.lists(STEPS, max_size=6),
            st.integers(1, 2**60),
            st.integers(1, 2**60),
        ),
        max_size=4,
    ),
)
def test_spans_are_the_sdks(sampler: str, spans: Sequence[tuple[Any, ...]]) -> None:
    """Ids, parents, flags, sampling, attributes, events and status are the same, as JSON and as objects."""
    found = []
    for ours in (True, False):
        tracer, exporter = _traced(SAMPLERS[sampler], ours=ours)
        seen = []
        for parent, kind, attributes, steps, began, ended in spans:
            span = tracer.start_span("call", _parent(parent), kind, attributes, start_time=began)
            seen.append(_written(span, steps, ended))
        found.append((seen, [_facts(span) for span in exporter.get_finished_spans()]))
    assert found[0] == found[1]


def _facts(span: ReadableSpan) -> Any:
    scope = span.instrumentation_scope
    assert scope is not None
    return json.loads(span.to_json()), span.parent, span.context, (scope.name, scope.version)


HEX = st.text("0123456789abcdefABCDEF", max_size=33)
HEADERS = st.one_of(
    st.builds(
        "{}-{}-{}-{}".format,
        st.sampled_from(["00", "01", "ff", "0"]),
        HEX | st.text("0123456789abcdef", min_size=32, max_size=32) | st.just("0" * 32),
        HEX | st.text("0123456789abcdef", min_size=16, max_size=16) | st.just("0" * 16),
        st.sampled_from(["00", "01", "02", "03", "ff", "1", "01-more"]),
    ),
    st.sampled_from(PARENTS),
    st.text(max_size=60),
)
METADATA = st.lists(
    st.tuples(st.just("traceparent"), HEADERS)
    | st.tuples(st.just("tracestate"), st.sampled_from(["vendor=1", "", "=", "a=1,b=2"]))
    | st.just(("user-agent", "agent"))
    | st.just(("traceparent", b"00")),
    max_size=3,
)


@given(METADATA)
def test_the_agents_trace_is_read_as_the_library_reads_it(metadata: list[tuple[str, Any]]) -> None:
    """Whatever the headers hold."""
    carrier = {key: value for key, value in metadata if key in {"traceparent", "tracestate"} and type(value) is str}
    expected = get_current_span(TraceContextTextMapPropagator().extract(carrier, Context())).get_span_context()
    found = get_current_span(remote(metadata)).get_span_context()
    assert (expected, expected.is_remote) == (found, found.is_remote)


def test_a_span_ends_once_and_after_it_began() -> None:
    """Its times are taken where none are given; a second end does nothing."""
    tracer, exporter = _traced(ALWAYS_ON, ours=True)
    span = tracer.start_span("call")
    span.end()
    span.end()
    (ended,) = exporter.get_finished_spans()
    assert ended.start_time is not None
    assert ended.end_time is not None
    assert ended.start_time <= ended.end_time


def test_an_exceptions_text_is_not_recorded() -> None:
    """It may hold what a prompt says."""
    tracer, exporter = _traced(ALWAYS_ON, ours=True)
    span = tracer.start_span("call")
    span.record_exception(ValueError("what the user said"))
    span.end()
    (ended,) = exporter.get_finished_spans()
    assert "user" not in ended.to_json()
    assert {"error.type": "ValueError"} == dict(ended.attributes or {})


def test_the_newest_events_are_kept() -> None:
    """As by default in the SDK."""
    for ours in (True, False):
        tracer, exporter = _traced(ALWAYS_ON, ours=ours)
        span = tracer.start_span("call")
        for number in range(MOST_EVENTS + 3):
            span.add_event("finding", {"number": number}, number)
        span.end()
        (ended,) = exporter.get_finished_spans()
        assert list(range(3, MOST_EVENTS + 3)) == [event.timestamp for event in ended.events]


@pytest.mark.parametrize(
    ("variable", "value", "quick"),
    [
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "256", True),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "8", False),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "12", False),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "12", False),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "1", False),
        ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "1", False),
    ],
)
def test_limits_of_the_environment(variable: str, value: str, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are any, the SDK's tracer keeps to them."""
    monkeypatch.setenv(variable, value)
    provider = TracerProvider(shutdown_on_exit=False, meter_provider=NoOpMeterProvider())
    processor = SimpleSpanProcessor(InMemorySpanExporter())
    assert quick is isinstance(starter(provider, processor, SCOPE), QuickTracer)
