"""From options to running telemetry, and its shutdown. OpenTelemetry's SDK is used if there is a collector.

    calls ──► Telemetry ──► instruments ──► exposition ──► /metrics
                       │               └──► OTLP's reader ─────┐
                       ├──► spans ──► batch processor ─────────┼──► collector
                       └──► events ──► batch processor ────────┘

Nothing here is global, so that several servers in one process do not share metrics. The cost of an unreachable
collector is bounded: an export may take two seconds, calls never wait for one, and the shutdown waits for all of them
only a little longer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.telemetry.catalog import BUILD_INFO, CATALOG
from prompt_sidecar.telemetry.collector import Collector, exporters_heard, watched
from prompt_sidecar.telemetry.distributions import Distributions
from prompt_sidecar.telemetry.events import EventLog
from prompt_sidecar.telemetry.exposition import ExposedMetrics
from prompt_sidecar.telemetry.instruments import Instruments
from prompt_sidecar.telemetry.labels import CallerLabels, ModelNames
from prompt_sidecar.telemetry.observer import Observer, Telemetry, counters
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.readings import build_info, version
from prompt_sidecar.telemetry.scrapes import Exposition
from prompt_sidecar.telemetry.spans import GENAI_OPT_IN, SCHEMA, Spans

if TYPE_CHECKING:  # the SDK takes memory and time, and is imported only where there is a collector
    from opentelemetry._logs import Logger
    from opentelemetry.sdk._logs import LogRecordProcessor
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

    from prompt_sidecar.telemetry.pushed import WithOurs

EXPORT_SECONDS: Final = 2.0
"""Timeout of an export, unless OTEL_EXPORTER_OTLP_TIMEOUT is set: with OpenTelemetry's 10 seconds a shutdown took 30 s.
"""
END_SECONDS: Final = 2.25
"""Seconds that the shutdown waits for the last exports: for one that has just begun, and a little more."""
SCOPE: Final = "prompt_sidecar"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Running:
    """Running telemetry. The server reports its events to `observer`."""

    observer: Observer = field(default_factory=Observer)
    notices: Sequence[str] = ()
    """Sentences for the operator, logged at the start."""
    exposition: Exposition | None = None
    held: ExitStack = field(default_factory=ExitStack)
    """Resources that are closed last."""
    _ends: Sequence[Callable[[], object]] = ()

    def stop(self) -> None:
        """Flush and shut down. Takes at most `END_SECONDS`, whatever the collector does."""
        threads = [threading.Thread(target=end, name="telemetry-end", daemon=True) for end in self._ends]
        for thread in threads:
            thread.start()
        last = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(0.0, last - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.warning("the collector did not take the last figures and spans in time; they are lost")
        self.held.close()


ExporterMaker = Callable[["MeterProvider"], "SpanExporter"]
"""Makes an exporter that counts accepted and dropped spans with the meter provider."""
ProcessorMaker = Callable[["MeterProvider"], "SpanProcessor"]
LogExporterMaker = Callable[["MeterProvider"], "LogRecordExporter"]
LogProcessorMaker = Callable[["MeterProvider"], "LogRecordProcessor"]


@dataclass(frozen=True, slots=True)
class Push:
    """Exporters that push to a collector."""

    metrics: MetricExporter | None = None
    spans: ExporterMaker | None = None
    logs: LogExporterMaker | None = None

    @property
    def any(self) -> bool:
        """Whether there is any exporter."""
        return self.metrics is not None or self.spans is not None or self.logs is not None


def start(
    options: TelemetryOptions,
    environment: Mapping[str, str],
    *,
    methods: Sequence[str] = (),
    address: tuple[str, int] | None = None,
    models: Models | None = None,
    callers: Sequence[str] = (),
) -> Running:
    """Start telemetry.

    Args:
        options: the configured options.
        environment: the process's variables.
        methods: names of the methods whose calls are counted from the start.
        address: where `/metrics` listens; None: nowhere.
        models: the known models; those in the settings have a label of their own.
        callers: names of callers in the settings, which have a label of their own.

    Raises:
        OSError: the address of `/metrics` is not available.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Running(notices=["telemetry is off: OTEL_SDK_DISABLED is true"])
    os.environ.setdefault("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")  # to count what queues drop
    collector = Collector()
    push = exporters(options, environment, collector)
    exposition = None if address is None else Exposition(address, ExposedMetrics(methods), options)
    readers = [] if push.metrics is None else [_push_reader(push.metrics)]
    if exposition is None and not push.any:
        return Running(notices=["telemetry is off: neither /metrics nor a collector is configured"])
    running = assemble(
        options,
        resource=resource(environment),
        readers=readers,
        processor=None if push.spans is None else partial_processor(push.spans),
        log_processor=None if push.logs is None else _log_processor(push.logs),
        genai=GENAI_OPT_IN in map(str.strip, environment.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")),
        exposition=exposition,
        notices=_notices(options, push, exposition),
        models=models,
        callers=callers,
    )
    if push.any:
        running.held.enter_context(exporters_heard(collector))
    return running


def partial_processor(make: ExporterMaker) -> ProcessorMaker:
    """Return a maker of processors that export in batches, and count dropped spans with the meter provider."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return lambda meters: BatchSpanProcessor(make(meters), meter_provider=meters)


def _push_reader(exporter: MetricExporter) -> MetricReader:
    from prompt_sidecar.telemetry.pushed import PushReader

    return PushReader(exporter)


def _log_processor(make: LogExporterMaker) -> LogProcessorMaker:
    """As `partial_processor`, for events."""
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    return lambda meters: BatchLogRecordProcessor(make(meters), meter_provider=meters)


def assemble(
    options: TelemetryOptions,
    *,
    resource: Resource,
    readers: Sequence[MetricReader] = (),
    processor: ProcessorMaker | None = None,
    log_processor: LogProcessorMaker | None = None,
    genai: bool = False,
    exposition: Exposition | None = None,
    notices: Sequence[str] = (),
    models: Models | None = None,
    callers: Sequence[str] = (),
) -> Running:
    """Connect readers, processors and instruments. Readers that are `WithOurs` receive all metrics."""
    tallies = counters()
    ends: list[Callable[[], object]] = []
    tracer, logger = None, None
    if readers or processor is not None or log_processor is not None:
        meters = _meters(exposition, readers, resource)
        ends.append(meters.shutdown)
        if processor is not None:
            tracer = _tracer(processor, meters, resource, ends)
        if log_processor is not None:
            logger = _logger(log_processor, meters, resource, ends)
    elif exposition is not None:
        exposition.exposed.show_resource(resource.attributes, build_info())
    fed = _fed(readers)
    instruments = Instruments(tallies, Distributions(CATALOG, exponential=bool(fed)))
    for reader in fed:
        reader.feed(instruments, SCOPE)
    observer = Telemetry(
        instruments,
        tallies,
        spans=Spans(tracer, genai=genai),
        events=EventLog(logger),
        models=ModelNames(options.models, models),
        agent_tools=options.tools,
        callers=CallerLabels(callers),
    )
    if exposition is not None:
        exposition.exposed.show(instruments)
        exposition.report_to(observer.reached, observer.foreign)
        ends.append(exposition.close)
    return Running(observer, notices, exposition, _ends=[observer.lag.end, *ends])


def _meters(exposition: Exposition | None, readers: Sequence[MetricReader], resource: Resource) -> MeterProvider:
    """Return the SDK's provider, with the SDK's own metrics and the running versions."""
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider

    own = [] if exposition is None else [exposition.exposed.reader()]
    meters = MeterProvider(
        [*own, *readers], resource, shutdown_on_exit=False, exemplar_filter=AlwaysOffExemplarFilter()
    )
    made = build_info()
    meters.get_meter(SCOPE, version(), SCHEMA).create_observable_gauge(
        BUILD_INFO.name,
        [
            lambda _: [
                Observation(value, dict(zip(BUILD_INFO.labels, values, strict=True))) for values, value in made.items()
            ]
        ],
        BUILD_INFO.unit,
        BUILD_INFO.description,
    )
    return meters


def _tracer(
    processor: ProcessorMaker, meters: MeterProvider, resource: Resource, ends: list[Callable[[], object]]
) -> Tracer:
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    # The provider's own metrics cost more than the spans; only the processor's counts of drops are needed.
    traces = TracerProvider(resource=resource, shutdown_on_exit=False, meter_provider=NoOpMeterProvider())
    traces.add_span_processor(processor(meters))
    ends.append(traces.shutdown)
    return traces.get_tracer(SCOPE, version(), SCHEMA)


def _logger(
    processor: LogProcessorMaker, meters: MeterProvider, resource: Resource, ends: list[Callable[[], object]]
) -> Logger:
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.sdk._logs import LoggerProvider

    logs = LoggerProvider(resource, shutdown_on_exit=False, meter_provider=NoOpMeterProvider())
    logs.add_log_record_processor(processor(meters))
    ends.append(logs.shutdown)
    return logs.get_logger(SCOPE, version(), SCHEMA)


def _fed(readers: Sequence[MetricReader]) -> Sequence[WithOurs]:
    """Return the readers that receive all metrics."""
    if not readers:
        return ()
    from prompt_sidecar.telemetry.pushed import WithOurs

    return [reader for reader in readers if isinstance(reader, WithOurs)]


def resource(environment: Mapping[str, str]) -> Resource:
    """Return the resource: from the variables, else this service, its version, and an id of this process."""
    ours = {
        "service.name": "prompt-sidecar",
        "service.version": version(),
        "service.instance.id": str(uuid.uuid4()),
    }
    given = set(OTELResourceDetector().detect().attributes)
    if environment.get("OTEL_SERVICE_NAME"):
        given.add("service.name")
    return Resource.create({name: value for name, value in ours.items() if name not in given}, SCHEMA)


def exporters(options: TelemetryOptions, environment: Mapping[str, str], collector: Collector | None = None) -> Push:
    """Return exporters by options and variables, one for each signal with an endpoint that is not turned off.

    `collector` receives the results of their exports.
    """
    collector = collector or Collector()
    metrics, spans, logs = (_exporter(signal, options, environment, collector) for signal in _SIGNALS)
    return Push(
        metrics=None if metrics is None else metrics(),
        spans=None if spans is None else lambda meters: spans(meter_provider=meters),
        logs=None if logs is None else lambda meters: logs(meter_provider=meters),
    )


@dataclass(frozen=True, slots=True)
class _Signal:
    """A signal that is pushed, and the OpenTelemetry exporters for it."""

    variable: str
    words: str
    module: str
    exporter: str


_SIGNALS: Final = (
    _Signal("METRICS", "metrics", "metric_exporter", "OTLPMetricExporter"),
    _Signal("TRACES", "traces", "trace_exporter", "OTLPSpanExporter"),
    _Signal("LOGS", "events", "_log_exporter", "OTLPLogExporter"),
)


def _exporter(
    signal: _Signal, options: TelemetryOptions, environment: Mapping[str, str], collector: Collector
) -> Callable[..., Any] | None:
    """Return what makes a signal's exporter, or None if it is not pushed."""

    def variable_of(variable: str) -> str:
        own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.variable}_{variable}", "").strip()
        return own or environment.get(f"OTEL_EXPORTER_OTLP_{variable}", "").strip()

    if environment.get(f"OTEL_{signal.variable}_EXPORTER", "otlp").strip() == "none":
        return None
    if not options.otlp_endpoint and not variable_of("ENDPOINT"):
        return None
    http = variable_of("PROTOCOL").startswith("http")
    # None leaves these to the exporter, which reads the variables.
    endpoint = options.otlp_endpoint or None
    if endpoint and http:
        endpoint = f"{endpoint.rstrip('/')}/v1/{signal.variable.lower()}"
    timeout = None if variable_of("TIMEOUT") else EXPORT_SECONDS
    # Imported only where there is a collector: exporters take 5 MB and a tenth of a second at the start.
    module = import_module(f"opentelemetry.exporter.otlp.proto.{'http' if http else 'grpc'}.{signal.module}")
    exporter: Callable[..., Any] = watched(getattr(module, signal.exporter), signal.words, collector)
    return partial(exporter, endpoint, timeout=timeout)


def _notices(options: TelemetryOptions, push: Push, exposition: Exposition | None) -> list[str]:
    notices = []
    if exposition is not None:
        host = options.metrics_listen.rpartition(":")[0]
        notices.append(f"metrics at http://{host}:{exposition.port}/metrics")
    signals = (("metrics", push.metrics), ("traces", push.spans), ("events", push.logs))
    pushed = [name for name, exporter in signals if exporter is not None]
    if pushed:
        notices.append(f"{', '.join(pushed[:-1])}{' and ' if pushed[1:] else ''}{pushed[-1]} are pushed by OTLP")
    return notices
