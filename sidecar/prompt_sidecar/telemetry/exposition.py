"""`/metrics`: the output of OpenTelemetry's Prometheus reader, completed.

Two things are added. A histogram without recorded values is not exposed at all, so that a rate over it would miss its
first event: its series are added at zero. And the reader drops exemplars, which link a bucket to a trace: they are
added to the buckets, as in OpenMetrics, from the data of the same collection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import Histogram, MetricsData
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import CATALOG, Kind, Metric

STATUSES: Final = ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "INTERNAL")
"""Statuses whose series exist from the start for our own methods: those that alerts use. All statuses would be three
thousand series, most of which never occur."""

_INFINITY: Final = "+Inf"
_Key = tuple[str, frozenset[tuple[str, str]]]
"""A family's name, and the labels of one of its series or buckets."""


class Reader(PrometheusMetricReader):
    """OpenTelemetry's reader, which also keeps the data of the last collection."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(scope_info_enabled=False, registry=registry)
        self.last: MetricsData | None = None

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        """Receive a collection's data: the abstract method of readers."""
        self.last = metrics_data
        super()._receive_metrics(metrics_data, timeout_millis, **kwargs)


class Completed(Collector):
    """The metrics of a registry's reader, completed. Thread-safe: scrapes collect one after another."""

    def __init__(self, registry: CollectorRegistry, reader: Reader, methods: Sequence[str]) -> None:
        """`methods` are the names of the methods whose calls are counted from the start."""
        self._registry = registry
        self._reader = reader
        self._lock = threading.Lock()
        self._empty = {family(metric): list(_expected(metric, methods)) for metric in _histograms()}
        self._metrics = {family(metric): metric for metric in _histograms()}

    def collect(self) -> Iterable[Family]:
        """Collect once."""
        with self._lock:
            found = {each.name: each for each in self._registry.collect()}
            exemplars = dict(_exemplars(self._reader.last))
        for name, metric in self._metrics.items():
            if name not in found:
                found[name] = HistogramMetricFamily(name, metric.description)
            _fill(found[name], metric, self._empty[name])
            if exemplars:
                found[name].samples = [_with_exemplar(sample, exemplars) for sample in found[name].samples]
        return found.values()


def registry(reader_registry: CollectorRegistry, reader: Reader, methods: Sequence[str]) -> CollectorRegistry:
    """Everything that `/metrics` exposes: our metrics, and those of the process and the interpreter."""
    made = CollectorRegistry()
    made.register(Completed(reader_registry, reader, methods))
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=made)
    return made


def family(metric: Metric) -> str:
    """Prometheus's name of a histogram of the catalogue."""
    return metric.name.replace(".", "_") + {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")


def _histograms() -> list[Metric]:
    return [metric for metric in CATALOG if metric.kind is Kind.HISTOGRAM]


def _expected(metric: Metric, methods: Sequence[str]) -> Iterator[dict[str, str]]:
    """The series that exist from the start, with Prometheus's label names."""
    if metric is catalog.RPC_DURATION:
        for method in methods:
            for status in STATUSES:
                yield {"rpc_system_name": "grpc", "rpc_method": method, "rpc_response_status_code": status}
        return
    for labels in metric.series():
        yield {name.replace(".", "_"): value for name, value in labels.items()}


def _fill(found: Family, metric: Metric, expected: Sequence[Mapping[str, str]]) -> None:
    """Add missing series at zero."""
    infinite = [sample.labels for sample in found.samples if sample.labels.get("le") == _INFINITY]
    known = {frozenset(labels.items()) for labels in infinite}
    for labels in expected:
        if frozenset({**labels, "le": _INFINITY}.items()) in known:
            continue
        for bound in (*map(str, metric.boundaries), _INFINITY):
            found.add_sample(f"{found.name}_bucket", {**labels, "le": bound}, 0)
        if metric.boundaries[0] >= 0:  # as the library does: a sum that can decrease is not a counter
            found.add_sample(f"{found.name}_count", dict(labels), 0)
            found.add_sample(f"{found.name}_sum", dict(labels), 0)


def _exemplars(data: MetricsData | None) -> Iterator[tuple[_Key, Exemplar]]:
    """The newest exemplar of each bucket."""
    for of_resource in data.resource_metrics if data is not None else ():
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                if isinstance(metric.data, Histogram):
                    yield from _of_points(metric.name, metric.unit or "", metric.data)


def _of_points(name: str, unit: str, data: Histogram) -> Iterator[tuple[_Key, Exemplar]]:
    name = family(Metric(name, Kind.HISTOGRAM, unit, "")) + "_bucket"
    for point in data.data_points:
        labels = {key.replace(".", "_"): str(value) for key, value in (point.attributes or {}).items()}
        for found in sorted(point.exemplars, key=lambda exemplar: exemplar.time_unix_nano):
            if not found.trace_id:
                continue
            bound = next((str(bound) for bound in point.explicit_bounds if found.value <= bound), _INFINITY)
            ids = {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}
            key = name, frozenset({**labels, "le": bound}.items())
            yield key, Exemplar(ids, found.value, found.time_unix_nano / 1e9)


def _with_exemplar(sample: Sample, exemplars: Mapping[_Key, Exemplar]) -> Sample:
    found = exemplars.get((sample.name, frozenset(sample.labels.items())))
    return sample if found is None else sample._replace(exemplar=found)
