"""Our metrics as OTLP data, added to those of OpenTelemetry's SDK, which have the resource.

OpenTelemetry calls this a metric producer; its SDK for Python has none. Histograms are exponential, which need no
boundaries. Both temporalities are supported: cumulative, and, if an exporter prefers it, the difference since the last
collection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import time_ns
from typing import Any, Final

from opentelemetry.sdk.metrics import Exemplar as DataExemplar
from opentelemetry.sdk.metrics import Histogram, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as Data

from prompt_sidecar.telemetry.catalog import InstrumentKind
from prompt_sidecar.telemetry.distributions import SCALE, Distribution
from prompt_sidecar.telemetry.instruments import CollectedMetric, Instruments
from prompt_sidecar.telemetry.slices import pause
from prompt_sidecar.telemetry.tallies import Values

MOST_BUCKETS: Final = 160
"""Exponential buckets of a series, as in OpenTelemetry: if values need more, the buckets are merged to a coarser scale.
"""
DELTA: Final = AggregationTemporality.DELTA

Temporalities = Mapping[Any, AggregationTemporality]
"""By class of the SDK's instruments, as in readers: their keys are subclasses of the public classes."""
Attributes = dict[str, str | int]


class Producer:
    """Makes the data of one reader, which collects one at a time."""

    def __init__(
        self,
        instruments: Instruments,
        scope: str,
        temporalities: Temporalities,
        clock: Callable[[], int] = time_ns,
    ) -> None:
        """`scope` names the SDK's scope that our metrics join; `clock` gives nanoseconds since the epoch."""
        self._instruments = instruments
        self._scope = scope
        self._counters = _temporality(ObservableCounter, temporalities)
        self._histograms = _temporality(Histogram, temporalities)
        self._clock = clock
        self._begun = self._last = clock()
        self._exported: dict[tuple[str, Values], float] = {}
        """Last exported value of each counter's series: kept for differences only."""
        self._shown: dict[tuple[str, Values], Distribution] = {}
        """The same for histograms."""

    def added_to(self, data: MetricsData) -> MetricsData:
        """Return the SDK's data with ours in its scope: providers have one resource, and exporters expect one scope."""
        return MetricsData(
            [
                replace(resource, scope_metrics=[self._joined(scope) for scope in resource.scope_metrics])
                for resource in data.resource_metrics
            ]
        )

    def _joined(self, found: ScopeMetrics) -> ScopeMetrics:
        if found.scope.name != self._scope:
            return found
        return replace(found, metrics=[*found.metrics, *self._metrics()])

    def _metrics(self) -> Iterator[Data]:
        now, last = self._clock(), self._last
        for collected in self._instruments.collect():
            pause()
            metric = collected.metric
            if metric.kind is InstrumentKind.HISTOGRAM:
                found: Sum | Gauge | ExponentialHistogram = self._histogram(collected, last, now)
            elif metric.kind is InstrumentKind.COUNTER:
                found = self._sum(collected, last, now)
            else:
                found = Gauge(
                    [
                        NumberDataPoint(_attributes(collected, values), self._begun, now, value)
                        for values, value in collected.numbers.items()
                    ]
                )
            yield Data(metric.name, metric.description, metric.unit, found)
        self._last = now

    def _sum(self, collected: CollectedMetric, last: int, now: int) -> Sum:
        points = []
        delta = self._counters is DELTA
        for values, value in collected.numbers.items():
            key = collected.metric.name, values
            new = value - self._exported.get(key, 0) if delta else value
            if delta:
                self._exported[key] = value
            points.append(NumberDataPoint(_attributes(collected, values), last if delta else self._begun, now, new))
        return Sum(points, self._counters, is_monotonic=True)

    def _histogram(self, collected: CollectedMetric, last: int, now: int) -> ExponentialHistogram:
        points = []
        delta = self._histograms is DELTA
        for values, found in collected.distributions.items():
            key = collected.metric.name, values
            shown = found
            if delta:
                shown = since(found, self._shown.get(key))
                self._shown[key] = found
                if not shown.count:
                    continue  # as in the SDK: a series without changes is left out
            newest = [each for each in shown.exemplars.values() if each.time > last]
            points.append(_point(shown, _attributes(collected, values), (last if delta else self._begun, now), newest))
        return ExponentialHistogram(points, self._histograms)


class WithOurs(MetricReader):
    """Makes a reader receive our metrics along with the SDK's; in a class's bases it is placed before the reader."""

    producer: Producer | None = None

    def feed(self, instruments: Instruments, scope: str) -> None:
        """Add these metrics to each collection from now on."""
        self.producer = Producer(instruments, scope, self._instrument_class_temporality)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        """Receive a collection's data: the abstract method of readers."""
        if self.producer is not None:
            metrics_data = self.producer.added_to(metrics_data)
        super()._receive_metrics(metrics_data, timeout_millis, **kwargs)  # type: ignore[safe-super]


class PushReader(WithOurs, PeriodicExportingMetricReader):
    """OpenTelemetry's reader that exports at intervals."""


def since(found: Distribution, before: Distribution | None) -> Distribution:
    """Return the values recorded after `before`; their minimum and maximum as far as buckets show."""
    if before is None:
        return found
    new = {index: count - before.exponential.get(index, 0) for index, count in found.exponential.items()}
    new = {index: count for index, count in new.items() if count}
    zeros = found.zeros - before.zeros
    edge = 2.0**-SCALE
    least = 0.0 if zeros or not new else max(found.least, 2 ** (min(new) * edge))
    return Distribution(
        [count - other for count, other in zip(found.counts, before.counts, strict=True)],
        found.sum - before.sum,
        least,
        min(found.most, 2 ** ((max(new) + 1) * edge)) if new else 0.0,
        zeros,
        new,
        found.exemplars,
    )


def coarser(exponential: Mapping[int, int]) -> tuple[int, int, Sequence[int]]:
    """Return the scale, the index of the first bucket, and the counts from there: at most `MOST_BUCKETS` of them."""
    scale, counts = SCALE, dict(exponential)
    while counts and max(counts) - min(counts) >= MOST_BUCKETS:
        scale -= 1
        halved: dict[int, int] = {}
        for index, count in counts.items():
            halved[index >> 1] = halved.get(index >> 1, 0) + count
        counts = halved
    if not counts:
        return scale, 0, []
    first = min(counts)
    return scale, first, [counts.get(index, 0) for index in range(first, max(counts) + 1)]


def _point(
    found: Distribution, attributes: Attributes, span: tuple[int, int], exemplars: Sequence[Any]
) -> ExponentialHistogramDataPoint:
    scale, offset, counts = coarser(found.exponential)
    begun, now = span
    return ExponentialHistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=begun,
        time_unix_nano=now,
        count=found.count,
        sum=found.sum,
        scale=scale,
        zero_count=found.zeros,
        positive=Buckets(offset, counts),
        negative=Buckets(0, []),
        flags=0,
        min=found.least if found.least < math.inf else 0.0,
        max=found.most,
        exemplars=[DataExemplar({}, each.value, each.time, each.span_id, each.trace_id) for each in exemplars],
    )


def _temporality(instrument: type, temporalities: Temporalities) -> AggregationTemporality:
    found = (preferred for kind, preferred in temporalities.items() if issubclass(kind, instrument))
    return next(found, AggregationTemporality.CUMULATIVE)


_NUMBERS: Final = frozenset({"http.response.status_code"})
"""Labels that are numbers by OpenTelemetry's conventions; in Prometheus's exposition every label is a text."""


def _attributes(collected: CollectedMetric, values: Values) -> Attributes:
    """Return a series' labels as attributes; an empty label is omitted, such as `error.type` after success."""
    pairs = zip(collected.metric.labels, values, strict=True)
    return {label: int(value) if label in _NUMBERS and value.isdecimal() else value for label, value in pairs if value}
