"""`/metrics`: the catalogue's numbers, and the SDK's own metrics if OpenTelemetry pushes to a collector.

Every series is named as OpenTelemetry's own Prometheus reader would name it, and tests compare both. In addition a
histogram without recorded values has its series at zero, so that a rate over it does not miss its first event, and
buckets have exemplars, which link to a trace. The text is made in slices: a concurrent prompt waits for one slice, not
for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from prompt_sidecar.providers.table import APIS
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import InstrumentKind, Metric
from prompt_sidecar.telemetry.distributions import Distribution
from prompt_sidecar.telemetry.instruments import CollectedMetric, Instruments
from prompt_sidecar.telemetry.readings import Series
from prompt_sidecar.telemetry.slices import Sliced, pause
from prompt_sidecar.telemetry.tallies import Values

if TYPE_CHECKING:  # the SDK's metrics take memory, and are imported only where there is a collector
    from opentelemetry.sdk.metrics.export import MetricReader

STATUSES: Final = ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "INTERNAL")
"""Statuses whose series exist from the start for our own methods: those that alerts use. All statuses would be three
thousand series, most of which never occur."""

_UNITS: Final = {"s": "_seconds", "By": "_bytes"}
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
ERROR: Final = "error.type"
_INFINITY: Final = "+Inf"
_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9]+")
"""Characters that become an underscore in a label, as in OpenTelemetry's own Prometheus reader."""


class ExposedMetrics(Collector):
    """The resource, the SDK's metrics if it is used, and, once there are instruments, ours. Thread-safe."""

    def __init__(self, methods: Sequence[str] = ()) -> None:
        """`methods` are the names of the methods whose calls are counted from the start."""
        self._inner = CollectorRegistry()
        self._lock = Lock()
        self._methods = methods
        self._instruments: Instruments | None = None
        self._own: Sequence[Family] = ()

    def reader(self) -> MetricReader:
        """Return OpenTelemetry's own reader, through which the SDK's metrics and the resource are exposed."""
        from opentelemetry.exporter.prometheus import PrometheusMetricReader

        return PrometheusMetricReader(scope_info_enabled=False, registry=self._inner)

    def show_resource(self, resource: Mapping[str, object], build: Series) -> None:
        """Expose the attributes of a resource and the running versions, as `reader` does: for use without the SDK."""
        labels = {
            _label(key): value if isinstance(value, str) else json.dumps(value, default=str)
            for key, value in resource.items()
        }
        info = InfoMetricFamily("target", "Target metadata", labels=[*labels])
        info.add_metric([*labels], labels)
        self._own = [info, family_of(CollectedMetric(catalog.BUILD_INFO, build), ())]

    def show(self, instruments: Instruments) -> None:
        """Expose these from now on."""
        self._instruments = instruments

    def collect(self) -> Iterable[Family]:
        """Collect once."""
        with self._lock:  # the SDK's collector caches what it has read
            found = list(self._inner.collect())
        yield from found
        yield from self._own
        if self._instruments is None:
            return
        for collected in self._instruments.collect():
            pause()
            yield family_of(collected, self._methods)

    def registry(self) -> CollectorRegistry:
        """Return a registry of all of these, and the metrics of the process and the interpreter."""
        made = CollectorRegistry()
        made.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=made)
        return made


def family_of(collected: CollectedMetric, methods: Sequence[str]) -> Family:
    """Convert a metric to the Prometheus client's form."""
    metric = collected.metric
    name, labels = family(metric), tuple(label.replace(".", "_") for label in metric.labels)
    made: Family
    if metric.kind is InstrumentKind.HISTOGRAM:
        made = HistogramMetricFamily(name, metric.description)
        samples: Iterable[Sample] = _histogram(name, metric, labels, _started(collected, methods))
    else:
        counter = metric.kind is InstrumentKind.COUNTER
        made = (CounterMetricFamily if counter else GaugeMetricFamily)(name, metric.description)
        name += "_total" if counter else ""
        samples = (
            Sample(name, dict(zip(labels, values, strict=True)), value) for values, value in collected.numbers.items()
        )
    made.samples = Sliced(samples)
    return made


def family(metric: Metric) -> str:
    """Return Prometheus's name of a metric of the catalogue, without the suffixes of its series."""
    return metric.name.replace(".", "_") + _UNITS.get(metric.unit, "")


def _label(key: str) -> str:
    """Return a resource's key as a label name, which does not begin with a digit."""
    return _NO_LABEL.sub("_", f"_{key[1:]}" if key[:1].isdigit() else key)


def _started(collected: CollectedMetric, methods: Sequence[str]) -> Mapping[Values, Distribution]:
    """Return the series of a histogram, including those without a value."""
    metric = collected.metric
    empty = Distribution([0] * (len(metric.boundaries) + 1))
    return dict.fromkeys(_expected(metric, methods), empty) | dict(collected.distributions)


def _expected(metric: Metric, methods: Sequence[str]) -> Iterator[Values]:
    """Yield the series that exist from the start."""
    if metric is catalog.RPC_DURATION:
        for method in methods:
            for status in STATUSES:
                yield "grpc", method, status
        return
    if metric in catalog.GENAI:
        for api in {(each.operation, each.provider.telemetry): each for each in APIS.values()}.values():
            known = {OPERATION: api.operation, PROVIDER: api.provider.telemetry, ERROR: ""}
            for labels in metric.series():
                yield tuple(known.get(label, value) for label, value in labels.items())
        return
    if metric is catalog.HTTP_SERVER_DURATION:
        for route in catalog.HTTP_ROUTES:
            yield "POST", "http", "200", "", route
        return
    for labels in metric.series():
        yield tuple(labels.values())


def _histogram(
    name: str, metric: Metric, labels: Sequence[str], series: Mapping[Values, Distribution]
) -> Iterator[Sample]:
    bounds = (*map(str, metric.boundaries), _INFINITY)
    for values, found in series.items():
        own = dict(zip(labels, values, strict=True))
        total = 0
        for bucket, (bound, total) in enumerate(zip(bounds, accumulate(found.counts), strict=True)):
            yield Sample(f"{name}_bucket", {**own, "le": bound}, total, None, _exemplar(found, bucket))
        yield Sample(f"{name}_count", own, total)
        yield Sample(f"{name}_sum", own, found.sum)


def _exemplar(found: Distribution, bucket: int) -> Exemplar | None:
    exemplar = found.exemplars.get(bucket)
    if exemplar is None:
        return None
    ids = {"trace_id": f"{exemplar.trace_id:032x}", "span_id": f"{exemplar.span_id:016x}"}
    return Exemplar(ids, exemplar.value, exemplar.time / 1e9)
