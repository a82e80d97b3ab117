"""The place that a collector forwards spans to: a gRPC server in the test that keeps what it gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

PATIENCE = 30.0
"""Seconds after which a test that waits for a span has failed."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it arrived."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    status: str
    """UNSET, OK or ERROR."""
    message: str
    events: tuple[str, ...]
    service: str
    """`service.name` of its resource."""


@dataclass(frozen=True, slots=True)
class Event:
    """A log record as it arrived."""

    name: str
    trace_id: str
    span_id: str
    severity: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a histogram as it arrived."""

    name: str
    unit: str
    service: str
    attributes: Mapping[str, Any]


class Sink:
    """Keeps spans, the names of metrics, points of histograms, and every byte that came."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.spans: list[Span] = []
        self.metrics: set[str] = set()
        self.points: list[Point] = []
        self.events: list[Event] = []
        self.raw: list[bytes] = []

    def take(
        self,
        spans: list[Span],
        metrics: set[str],
        raw: bytes,
        events: Sequence[Event] = (),
        points: Sequence[Point] = (),
    ) -> None:
        """Keep what an export brought."""
        with self._changed:
            self.points += points
            self.events += events
            self.spans += spans
            self.metrics |= metrics
            self.raw.append(raw)
            self._changed.notify_all()

    def wait_for(self, ready: Callable[[list[Span]], bool]) -> list[Span]:
        """Wait until what arrived is enough; return all of it."""
        with self._changed:
            enough = self._changed.wait_for(lambda: ready(self.spans), PATIENCE)
            names = [span.name for span in self.spans]
            assert enough, f"the spans that were waited for have not arrived, only {names}"
            return list(self.spans)

    def trace(self, trace_id: str, count: int) -> list[Span]:
        """Wait for so many spans of one trace."""
        arrived = self.wait_for(lambda spans: count <= len([span for span in spans if span.trace_id == trace_id]))
        return [span for span in arrived if span.trace_id == trace_id]

    def wait_for_event(self, trace_id: str) -> Event:
        """Wait for the first event of a trace."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(event.trace_id == trace_id for event in self.events), PATIENCE), (
                "no event of the trace has arrived"
            )
            return next(event for event in self.events if event.trace_id == trace_id)

    def wait_for_points(self, ready: Callable[[list[Point]], bool]) -> list[Point]:
        """Wait until the points that arrived are enough; return all of them."""
        with self._changed:
            enough = self._changed.wait_for(lambda: ready(self.points), PATIENCE)
            assert enough, f"not all has arrived, only {sorted({point.name for point in self.points})}"
            return list(self.points)

    def wait_for_metrics(self) -> set[str]:
        """Wait until some metrics have arrived; return their names."""
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.metrics), PATIENCE), "no metric has arrived"
            return set(self.metrics)


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    """The service of spans."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - OTLP's name
        """Take spans."""
        del context
        found = [
            _span(span, _service(resource))
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        self._sink.take(found, set(), request.SerializeToString())
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    """The service of metrics."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - OTLP's name
        """Take metrics."""
        del context
        names = {
            metric.name
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        points = [
            Point(
                metric.name,
                metric.unit,
                _service(resource),
                {pair.key: _value(pair.value) for pair in point.attributes},
            )
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in (*metric.histogram.data_points, *metric.exponential_histogram.data_points)
        ]
        self._sink.take([], names, request.SerializeToString(), points=points)
        return metrics_service_pb2.ExportMetricsServiceResponse()


class _Logs(logs_service_pb2_grpc.LogsServiceServicer):
    """The service of logs."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - OTLP's name
        """Take log records."""
        del context
        found = [
            Event(
                record.event_name,
                record.trace_id.hex(),
                record.span_id.hex(),
                record.severity_text,
                {pair.key: _value(pair.value) for pair in record.attributes},
            )
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]
        self._sink.take([], set(), request.SerializeToString(), found)
        return logs_service_pb2.ExportLogsServiceResponse()


@contextmanager
def sink() -> Iterator[tuple[Sink, int]]:
    """Serve on a free port of loopback; give the sink and the port."""
    kept = Sink()
    server = grpc.server(ThreadPoolExecutor(4, "sink"), options=[("grpc.max_receive_message_length", -1)])
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(kept), server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Metrics(kept), server)  # type: ignore[no-untyped-call]
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(_Logs(kept), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield kept, port
    finally:
        server.stop(0).wait()


def _span(span: trace_pb2.Span, service: str) -> Span:
    return Span(
        span.name,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        {pair.key: _value(pair.value) for pair in span.attributes},
        trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        span.status.message,
        tuple(event.name for event in span.events),
        service,
    )


def _service(resource: Any) -> str:
    named = (pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name")
    return str(next(named, ""))


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(each) for each in value.array_value.values)
    return getattr(value, kind) if kind else None
