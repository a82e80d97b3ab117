"""From options to running telemetry: one meter provider with two readers, one tracer provider, and their ends.

    calls ──► Telemetry ──► instruments ──► Prometheus's reader ──► /metrics
                       │               └──► OTLP's reader ─────┐
                       └──► spans ──► batch processor ─────────┴──► collector

Nothing here is global, so that several servers in one process do not share figures. What a collector that is down can
cost is bounded: an export may take two seconds, calls never wait for one, and the end waits for all together only a
little longer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import Aggregation, ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from prometheus_client import CollectorRegistry

from prompt_sidecar.telemetry.exposition import Reader, registry
from prompt_sidecar.telemetry.instruments import Instruments
from prompt_sidecar.telemetry.model_names import ModelNames
from prompt_sidecar.telemetry.observer import Observer, Telemetry, counters
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.readings import version
from prompt_sidecar.telemetry.scrapes import Exposition
from prompt_sidecar.telemetry.spans import Spans

EXPORT_SECONDS: Final = 2.0
"""Of one export, unless OTEL_EXPORTER_OTLP_TIMEOUT says otherwise: with OpenTelemetry's 10 an end took 30 s."""
END_SECONDS: Final = 2.25
"""That the end waits for the last exports: one that has just begun, and a little."""
SCOPE: Final = "prompt_sidecar"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Running:
    """Telemetry that runs. `observer` is whom the server tells."""

    observer: Observer = field(default_factory=Observer)
    told: Sequence[str] = ()
    """What an operator should know about it, a sentence each."""
    exposition: Exposition | None = None
    _ends: Sequence[Callable[[], object]] = ()

    def stop(self) -> None:
        """Send what is left and end. Takes at most `END_SECONDS`, whatever the collector does."""
        threads = [threading.Thread(target=end, name="telemetry-end", daemon=True) for end in self._ends]
        for thread in threads:
            thread.start()
        last = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(0.0, last - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.warning("the collector did not take the last figures and spans in time; they are lost")


ExporterMaker = Callable[[MeterProvider], SpanExporter]
"""Makes an exporter that tells the meter provider what the collector took and what it did not."""
ProcessorMaker = Callable[[MeterProvider], SpanProcessor]


@dataclass(frozen=True, slots=True)
class Push:
    """What is pushed to a collector."""

    metrics: MetricExporter | None = None
    spans: ExporterMaker | None = None


def start(
    options: TelemetryOptions,
    environment: Mapping[str, str],
    *,
    methods: Sequence[str] = (),
    address: tuple[str, int] | None = None,
) -> Running:
    """Begin.

    Args:
        options: what the settings say.
        environment: the process's variables.
        methods: names of the methods whose calls are counted from the start.
        address: where `/metrics` listens; None: nowhere.

    Raises:
        OSError: the address of `/metrics` cannot be had.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Running(told=["telemetry is off: OTEL_SDK_DISABLED is true"])
    os.environ.setdefault("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")  # else nobody sees what queues drop
    push = exporters(options, environment)
    readers: list[MetricReader] = []
    exposition = None
    if address is not None:
        inner = CollectorRegistry()
        reader = Reader(inner)
        exposition = Exposition(address, registry(inner, reader, methods), options)
        readers.append(reader)
    if push.metrics is not None:
        readers.append(PeriodicExportingMetricReader(push.metrics))
    if not readers and push.spans is None:
        return Running(told=["telemetry is off: nobody asks for it"])
    return assemble(
        options,
        resource=resource(environment),
        readers=readers,
        processor=None if push.spans is None else partial_processor(push.spans),
        exposition=exposition,
        told=list(_told(options, push, exposition)),
    )


def partial_processor(make: ExporterMaker) -> ProcessorMaker:
    """A processor that exports in batches, and tells the meter provider what it drops."""
    return lambda meters: BatchSpanProcessor(make(meters), meter_provider=meters)


def assemble(
    options: TelemetryOptions,
    *,
    resource: Resource,
    readers: Sequence[MetricReader],
    processor: ProcessorMaker | None = None,
    exposition: Exposition | None = None,
    told: Sequence[str] = (),
) -> Running:
    """Put readers, processor and instruments together."""
    # Without spans there is nothing that an exemplar could lead to, so none are looked for.
    exemplars = AlwaysOffExemplarFilter() if processor is None else None
    meters = MeterProvider(readers, resource, shutdown_on_exit=False, exemplar_filter=exemplars)
    ends: list[Callable[[], object]] = [meters.shutdown]
    tracer = None
    if processor is not None:
        # Its own figures cost more than the spans; of interest is what the processor drops.
        traces = TracerProvider(resource=resource, shutdown_on_exit=False, meter_provider=NoOpMeterProvider())
        traces.add_span_processor(processor(meters))
        tracer = traces.get_tracer(SCOPE, version())
        ends.append(traces.shutdown)
    tallies = counters()
    instruments = Instruments(meters.get_meter(SCOPE, version()), tallies)
    observer = Telemetry(instruments, tallies, Spans(tracer), ModelNames(options.models))
    if exposition is not None:
        exposition.tell(observer.reached)
        ends.append(exposition.close)
    return Running(observer, told, exposition, [observer.lag.end, *ends])


def resource(environment: Mapping[str, str]) -> Resource:
    """Who tells: what the variables say, else this service, its version, and an id of this process."""
    ours = {
        "service.name": "prompt-sidecar",
        "service.version": version(),
        "service.instance.id": str(uuid.uuid4()),
    }
    said = set(OTELResourceDetector().detect().attributes)
    if environment.get("OTEL_SERVICE_NAME"):
        said.add("service.name")
    return Resource.create({name: value for name, value in ours.items() if name not in said})


def exporters(options: TelemetryOptions, environment: Mapping[str, str]) -> Push:
    """What options and variables ask to push, each signal if there is an endpoint for it and it is not turned off."""
    metrics = _signal("METRICS", options, environment)
    traces = _signal("TRACES", options, environment)
    return Push(
        metrics=None if metrics is None else _metric_exporter(metrics),
        spans=None if traces is None else partial(_span_exporter, traces),
    )


@dataclass(frozen=True, slots=True)
class _Signal:
    """How one signal is pushed. None leaves it to the exporter, which reads the variables."""

    http: bool
    endpoint: str | None
    timeout: float | None


def _signal(name: str, options: TelemetryOptions, environment: Mapping[str, str]) -> _Signal | None:
    def said(variable: str) -> str:
        own = environment.get(f"OTEL_EXPORTER_OTLP_{name}_{variable}", "").strip()
        return own or environment.get(f"OTEL_EXPORTER_OTLP_{variable}", "").strip()

    if environment.get(f"OTEL_{name}_EXPORTER", "otlp").strip() == "none":
        return None
    if not options.otlp_endpoint and not said("ENDPOINT"):
        return None
    http = said("PROTOCOL").startswith("http")
    endpoint = options.otlp_endpoint or None
    if endpoint and http:
        endpoint = f"{endpoint.rstrip('/')}/v1/{name.lower()}"
    return _Signal(http, endpoint, None if said("TIMEOUT") else EXPORT_SECONDS)


# Exporters are imported only where there is a collector: they take 5 MB and a tenth of a second at the start.


def _metric_exporter(signal: _Signal) -> MetricExporter:
    # Exponential histograms need no boundaries, but Prometheus's reader cannot take them: so here, and not in a view.
    aggregation: dict[type, Aggregation] = {Histogram: ExponentialBucketHistogramAggregation()}
    if signal.http:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics

        return HttpMetrics(signal.endpoint, timeout=signal.timeout, preferred_aggregation=aggregation)
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics

    return GrpcMetrics(signal.endpoint, timeout=signal.timeout, preferred_aggregation=aggregation)


def _span_exporter(signal: _Signal, meters: MeterProvider) -> SpanExporter:
    if signal.http:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans

        return HttpSpans(signal.endpoint, timeout=signal.timeout, meter_provider=meters)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans

    return GrpcSpans(signal.endpoint, timeout=signal.timeout, meter_provider=meters)


def _told(options: TelemetryOptions, push: Push, exposition: Exposition | None) -> list[str]:
    told = []
    if exposition is not None:
        host = options.metrics_listen.rpartition(":")[0]
        told.append(f"metrics at http://{host}:{exposition.port}/metrics")
    pushed = [name for name, exporter in (("metrics", push.metrics), ("traces", push.spans)) if exporter is not None]
    if pushed:
        told.append(f"{' and '.join(pushed)} are pushed by OTLP")
    return told
