"""A tracer whose spans cost half of the SDK's, as they are put together when they end.

The SDK checks and copies each attribute when it is set, under a lock, as any thread may set anything. Our spans are
written by one thread, with attributes of the right types only (`spans.py`). So an open span is a dictionary and a list,
and its end makes the SDK's `ReadableSpan` of them. Sampling, ids, the queue and the export are the SDK's own.
`tests/telemetry/test_tracing.py` compares the spans with those that the SDK's tracer makes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
)
from opentelemetry.util.types import AnyValue, Attributes

MOST_EVENTS: Final = 128
"""Most events of a span, as by default in the SDK; the newest are kept."""
_UNSET: Final = Status(StatusCode.UNSET)


class Starter(Protocol):
    """What starts spans: a part of OpenTelemetry's `Tracer`."""

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        *,
        start_time: int | None = None,
    ) -> Span:
        """Start a span in the context's trace, or in one of its own. `start_time`: nanoseconds since the epoch."""


def starter(provider: TracerProvider, processor: SpanProcessor, scope: InstrumentationScope) -> Starter:
    """What starts the provider's spans; each goes to the processor when it ends.

    Where the environment limits the size of spans, it is the SDK's own tracer, which keeps to that.
    """
    limits = SpanLimits()
    lengths = limits.max_attribute_length, limits.max_span_attribute_length
    counts = limits.max_span_attributes, limits.max_event_attributes, limits.max_events
    if lengths != (None, None) or any(count is not None and count < MOST_EVENTS for count in counts):
        return provider.get_tracer(scope.name, scope.version)
    return QuickTracer(provider, processor, scope)


class QuickTracer:
    """Starts spans that cost little. Thread-safe."""

    def __init__(self, provider: TracerProvider, processor: SpanProcessor, scope: InstrumentationScope) -> None:
        """Take what decides, where spans go, and in whose name."""
        self._ids = provider.id_generator
        self._sampler = provider.sampler
        self._made = _Made(provider.resource, scope, processor)

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        *,
        start_time: int | None = None,
    ) -> Span:
        """See `Starter`."""
        parent: SpanContext | None = get_current_span(context).get_span_context()
        if parent is not None and parent.is_valid:
            trace_id, random = parent.trace_id, parent.trace_flags.random_trace_id
        else:
            parent, trace_id, random = None, self._ids.generate_trace_id(), self._ids.is_trace_id_random()
        sampled = self._sampler.should_sample(context, trace_id, name, kind, attributes, ())
        flags = TraceFlags.SAMPLED if sampled.decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT
        own = SpanContext(
            trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=TraceFlags(flags | TraceFlags.RANDOM_TRACE_ID if random else flags),
            trace_state=sampled.trace_state,
        )
        if sampled.decision is Decision.DROP:
            return NonRecordingSpan(own)
        began = time.time_ns() if start_time is None else start_time
        return QuickSpan(self._made, (name, kind, began), own, parent, sampled.attributes)


class _Made:
    """What all spans of a tracer have in common, and where they go."""

    __slots__ = ("processor", "resource", "scope")

    def __init__(self, resource: Resource, scope: InstrumentationScope, processor: SpanProcessor) -> None:
        self.resource, self.scope, self.processor = resource, scope, processor


class QuickSpan(Span):
    """An open span, for one thread."""

    __slots__ = ("_attributes", "_began", "_ended", "_events", "_kind", "_made", "_name", "_own", "_parent", "_status")

    def __init__(
        self,
        made: _Made,
        named: tuple[str, SpanKind, int],
        own: SpanContext,
        parent: SpanContext | None,
        attributes: Mapping[str, AnyValue] | None,
    ) -> None:
        """`named`: its name, its kind, and when it began in nanoseconds since the epoch."""
        self._made = made
        self._name, self._kind, self._began = named
        self._own, self._parent = own, parent
        self._attributes: dict[str, AnyValue] = dict(attributes or {})
        self._events: list[Event] = []
        self._status = _UNSET
        self._ended = False

    def end(self, end_time: int | None = None) -> None:
        """Hand the span over; a second end does nothing."""
        if self._ended:
            return
        self._ended = True
        made = self._made
        made.processor.on_end(
            ReadableSpan(
                self._name,
                self._own,
                self._parent,
                made.resource,
                self._attributes,
                self._events[-MOST_EVENTS:],
                kind=self._kind,
                status=self._status,
                start_time=self._began,
                end_time=time.time_ns() if end_time is None else end_time,
                instrumentation_scope=made.scope,
            )
        )

    def get_span_context(self) -> SpanContext:
        """Its ids."""
        return self._own

    def set_attributes(self, attributes: Mapping[str, AnyValue]) -> None:
        """Set attributes, whose values must be of OpenTelemetry's types: that is not checked."""
        self._attributes.update(attributes)

    def set_attribute(self, key: str, value: AnyValue) -> None:
        """Set one attribute."""
        self._attributes[key] = value

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event, which has happened now if no time is given."""
        self._events.append(Event(name, attributes, timestamp))

    def update_name(self, name: str) -> None:
        """Give it another name."""
        self._name = name

    def is_recording(self) -> bool:
        """Whether it has yet to end."""
        return not self._ended

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Say how it went."""
        self._status = status if isinstance(status, Status) else Status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,  # noqa: ARG002 - it records none
        timestamp: int | None = None,  # noqa: ARG002 - as above
        escaped: bool = False,  # noqa: ARG002 - as above
    ) -> None:
        """Record nothing but the exception's type: its text may hold what a prompt says."""
        self._attributes["error.type"] = type(exception).__qualname__
