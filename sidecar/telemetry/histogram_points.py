"""The histograms as OpenTelemetry's data, added to each collection that is pushed.

OpenTelemetry collects counters and gauges. The histograms, which for the sake of speed are not its instruments, are put
beside them as its own would be: exponential, within the same scope and resource, cumulative or since the last push,
whichever the variables ask for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    MetricExporter,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.export import Metric as Collected

from sidecar.telemetry.catalog import Metric
from sidecar.telemetry.distributions import HISTOGRAMS, SCALE, Distributions, Reading
from sidecar.telemetry.tallies import Values


class Points:
    """What the distributions hold, as data points; each call tells what has changed since the one before."""

    def __init__(self, distributions: Distributions, *, delta: bool) -> None:
        """`delta`: points tell what came since the last ones, not since the beginning."""
        self._distributions = distributions
        self._delta = delta
        self._last: dict[tuple[str, Values], Reading] = {}
        self._told = 0

    def collect(self) -> list[Collected]:
        """Every histogram that anything was recorded into."""
        now = time.time_ns()
        kind = AggregationTemporality.DELTA if self._delta else AggregationTemporality.CUMULATIVE
        found = []
        for metric in HISTOGRAMS:
            points = list(self._points(metric, now))
            if points:
                data = ExponentialHistogram(points, kind)
                found.append(Collected(metric.name, metric.description, metric.unit, data))
        self._told = now
        return found

    def _points(self, metric: Metric, now: int) -> Iterator[ExponentialHistogramDataPoint]:
        for reading in self._distributions.read(metric, afresh=self._delta):
            if not any(reading.counts):
                continue
            key = metric.name, reading.values
            told = reading
            if self._delta:
                last = self._last.get(key)
                self._last[key] = reading
                told = reading if last is None else _since(last, reading, self._told)
            if told.zeros or told.fine:
                yield self._point(metric, told, now)

    def _point(self, metric: Metric, reading: Reading, now: int) -> ExponentialHistogramDataPoint:
        count = sum(reading.counts)
        return ExponentialHistogramDataPoint(
            attributes=dict(zip(metric.labels, reading.values, strict=True)),
            start_time_unix_nano=reading.since,
            time_unix_nano=now,
            count=count,
            sum=reading.total,
            scale=SCALE,
            zero_count=reading.zeros,
            positive=_buckets(reading.fine),
            negative=Buckets(0, []),
            flags=0,
            min=reading.least,
            max=reading.most,
            exemplars=[
                Exemplar({}, traced.value, traced.at, span_id=traced.ids[1], trace_id=traced.ids[0])
                for traced in reading.traced.values()
                if traced.at > self._told
            ],
        )


class PushReader(PeriodicExportingMetricReader):
    """OpenTelemetry's reader that pushes, which pushes the histograms too."""

    def __init__(self, exporter: MetricExporter, points: Points, scope: str) -> None:
        """`scope` is the name of the instruments' own, among which they are put."""
        self._points = points
        self._scope = scope
        super().__init__(exporter)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        """Take a collection's data: the one method that every reader has to have."""
        super()._receive_metrics(self._completed(metrics_data), timeout_millis, **kwargs)

    def _completed(self, data: MetricsData) -> MetricsData:
        found = self._points.collect()
        resources = []
        for of_resource in data.resource_metrics:
            scopes = [
                replace(of_scope, metrics=[*of_scope.metrics, *found])
                if of_scope.scope.name == self._scope
                else of_scope
                for of_scope in of_resource.scope_metrics
            ]
            resources.append(replace(of_resource, scope_metrics=scopes))
        return replace(data, resource_metrics=resources)


def _since(last: Reading, now: Reading, told: int) -> Reading:
    """What came between two readings of a series; least and most are of that time already."""
    return replace(
        now,
        since=told,
        counts=tuple(new - old for old, new in zip(last.counts, now.counts, strict=True)),
        total=now.total - last.total,
        fine={
            index: count - last.fine.get(index, 0)
            for index, count in now.fine.items()
            if count != last.fine.get(index, 0)
        },
        zeros=now.zeros - last.zeros,
    )


def _buckets(fine: Mapping[int, int]) -> Buckets:
    if not fine:
        return Buckets(0, [])
    first, last = min(fine), max(fine)
    return Buckets(first, [fine.get(index, 0) for index in range(first, last + 1)])
