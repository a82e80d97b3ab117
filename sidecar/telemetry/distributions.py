"""The histograms, as plain numbers that calls add to and that `/metrics` and pushes read.

OpenTelemetry's histogram takes 5 to 15 us for one record, and a prompt has five of them: half of what telemetry took.
Here a record is a bisection and some additions under one lock: about a microsecond. What is kept is what OpenTelemetry
itself would keep: the catalogue's buckets for Prometheus, exponential ones for OTLP if anything is pushed, and for each
bucket the newest value that was recorded in a trace.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2
from time import time_ns
from typing import Final

from sidecar.telemetry import catalog
from sidecar.telemetry.catalog import CATALOG, Kind, Metric
from sidecar.telemetry.tallies import Values

STATUSES: Final = ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "INTERNAL")
"""Statuses whose series of our own methods exist from the start: those that alerts look at. All of them together would
be three thousand series, most of them for what cannot happen."""
SCALE: Final = 3
"""Of exponential buckets: 2 ** SCALE to a doubling, each 9 % wide. OpenTelemetry's own choice for values that span 10
to 20 doublings, as times and tokens do; a fixed one needs no merging of buckets."""

HISTOGRAMS: Final = tuple(metric for metric in CATALOG if metric.kind is Kind.HISTOGRAM)

Ids = tuple[int, int]
"""Of a trace, and of a span in it."""
Record = tuple[Metric, float, Values]
"""A value, and the series that it goes into."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A value that was recorded in a trace, which it may lead to."""

    value: float
    at: int
    """Nanoseconds since the epoch."""
    ids: Ids


@dataclass(frozen=True, slots=True)
class Reading:
    """One series at one time, since its beginning."""

    values: Values
    since: int
    """Nanoseconds since the epoch."""
    counts: tuple[int, ...]
    """By bucket of the catalogue, and at the end those beyond the last boundary. Not cumulative."""
    total: float
    traced: Mapping[int, Traced]
    """The newest of each bucket."""
    fine: Mapping[int, int]
    """By exponential bucket; empty unless they are kept."""
    zeros: int
    least: float
    most: float


class _Series:
    """What is kept of a series."""

    __slots__ = ("counts", "fine", "least", "most", "since", "total", "traced", "zeros")

    def __init__(self, buckets: int) -> None:
        self.since = time_ns()
        self.counts = [0] * buckets
        self.total: float = 0
        self.traced: dict[int, Traced] = {}
        self.fine: dict[int, int] = {}
        self.zeros = 0
        self.least = inf
        self.most = -inf

    def add_fine(self, value: float) -> None:
        """Count a value in its exponential bucket. Of bucket n, 2 ** (n / 8) is the open lower end."""
        if value:
            index = ceil(log2(value) * 2**SCALE) - 1
            self.fine[index] = self.fine.get(index, 0) + 1
        else:
            self.zeros += 1
        self.least = min(self.least, value)
        self.most = max(self.most, value)


class Distributions:
    """The numbers of all histograms. Thread-safe."""

    def __init__(self, methods: Sequence[str] = (), *, fine: bool = False) -> None:
        """Begin at zero.

        Args:
            methods: whose calls are counted from the start.
            fine: whether exponential buckets are kept too.
        """
        self._lock = threading.Lock()
        self._fine = fine
        self._series: dict[str, dict[Values, _Series]] = {
            metric.name: {values: _Series(len(metric.boundaries) + 1) for values in _expected(metric, methods)}
            for metric in HISTOGRAMS
        }

    def record(self, records: Sequence[Record], ids: Ids | None = None) -> None:
        """Count values; `ids`: the trace in which they came up. What is no finite positive number is left out."""
        with self._lock:
            for metric, value, values in records:
                if not 0 <= value < inf:
                    continue
                of_metric = self._series[metric.name]
                series = of_metric.get(values)
                if series is None:
                    series = of_metric[values] = _Series(len(metric.boundaries) + 1)
                bucket = bisect_left(metric.boundaries, value)
                series.counts[bucket] += 1
                series.total += value
                if ids is not None:
                    series.traced[bucket] = Traced(value, time_ns(), ids)
                if self._fine:
                    series.add_fine(value)

    def read(self, metric: Metric, *, afresh: bool = False) -> list[Reading]:
        """Every series of a histogram; `afresh`: its least and most begin anew after this reading."""
        with self._lock:
            return [self._reading(values, series, afresh) for values, series in self._series[metric.name].items()]

    @staticmethod
    def _reading(values: Values, series: _Series, afresh: bool) -> Reading:
        found = Reading(
            values,
            series.since,
            tuple(series.counts),
            series.total,
            dict(series.traced),
            dict(series.fine),
            series.zeros,
            series.least,
            series.most,
        )
        if afresh:
            series.least, series.most = inf, -inf
        return found


def _expected(metric: Metric, methods: Sequence[str]) -> Iterable[Values]:
    """The series that exist from the start."""
    if metric is catalog.RPC_DURATION:
        return [("grpc", method, status) for method in methods for status in STATUSES]
    return [tuple(labels.values()) for labels in metric.series()]
