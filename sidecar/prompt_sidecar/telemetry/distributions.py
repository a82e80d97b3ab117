"""The histograms, as plain numbers that calls add to and collections read.

OpenTelemetry's histograms take 6 us for one value, 10 us with OTLP's reader, and a prompt has seven. Here a value is
counted in its bucket, and if figures are pushed by OTLP, in an exponential one too.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import time_ns
from typing import Final

from prompt_sidecar.telemetry.catalog import InstrumentKind, Metric
from prompt_sidecar.telemetry.tallies import Values

SCALE: Final = 4
"""The scale of exponential buckets: 16 for each power of two, so that a value is known within 4.5 %."""
MOST_NOTED: Final = 256
"""Recorded values that are not counted yet: some forty prompts' worth, counted in half a millisecond."""
_TO_BUCKETS: Final = 2.0**SCALE

Ids = tuple[int, int]
"""The ids of a trace, and of a span in it."""
_Noted = tuple[Metric, float, Values, tuple[int, int, int] | None]


@dataclass(frozen=True, slots=True)
class Exemplar:
    """A value, and the span in which it was recorded."""

    value: float
    time: int
    """Nanoseconds since the epoch."""
    trace_id: int
    span_id: int


@dataclass(slots=True)
class Distribution:
    """The values of one series."""

    counts: list[int]
    """Counts by bucket, the last one without an upper bound; a value on a boundary is in the bucket below."""
    sum: float = 0
    least: float = math.inf
    most: float = 0
    zeros: int = 0
    exponential: dict[int, int] = field(default_factory=dict)
    """Counts by index at `SCALE`: bucket i holds values above 2^(i / 2^SCALE), up to the next one. Without zeros."""
    exemplars: dict[int, Exemplar] = field(default_factory=dict)
    """The newest exemplar of each bucket."""

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def copy(self) -> Distribution:
        """Return a copy that does not change."""
        return Distribution(
            list(self.counts),
            self.sum,
            self.least,
            self.most,
            self.zeros,
            dict(self.exponential),
            dict(self.exemplars),
        )


class Distributions:
    """The values of all histograms. Thread-safe.

    During a call a value is only noted, which takes a microsecond. Values are counted at the next collection, or once
    there are `MOST_NOTED`: counting many at once takes a fifth of the time for each value.
    """

    def __init__(self, metrics: Iterable[Metric], *, exponential: bool = False) -> None:
        """`exponential`: count in exponential buckets too."""
        self._exponential = exponential
        self._lock = threading.Lock()
        self._noted: list[_Noted] = []
        self._series: dict[str, dict[Values, Distribution]] = {
            metric.name: {} for metric in metrics if metric.kind is InstrumentKind.HISTOGRAM
        }

    @property
    def noted(self) -> int:
        """Number of values that are not counted yet."""
        return len(self._noted)

    def record(self, metric: Metric, value: float, values: Values = (), trace: Ids | None = None) -> None:
        """Count a value; `trace` has the ids of the span in which it was recorded, if that is exported.

        Negative values and NaN are ignored, as in OpenTelemetry.
        """
        with self._lock:
            self._noted.append((metric, value, values, trace and (*trace, time_ns())))
            if len(self._noted) >= MOST_NOTED:
                self._count()

    def record_all(self, noted: Iterable[tuple[Metric, float, Values]], trace: Ids | None = None) -> None:
        """Count several values of one moment: as `record` of each, but with one lock and one read of the clock."""
        exemplar = trace and (*trace, time_ns())
        values = [(*each, exemplar) for each in noted]
        with self._lock:
            self._noted += values
            if len(self._noted) >= MOST_NOTED:
                self._count()

    def read(self, metric: Metric) -> dict[Values, Distribution]:
        """Return every series of a histogram that has a value."""
        with self._lock:
            self._count()
            return {values: found.copy() for values, found in self._series[metric.name].items()}

    def _count(self) -> None:
        noted, self._noted = self._noted, []
        newest: dict[tuple[str, Values, int], tuple[Distribution, float, tuple[int, int, int]]] = {}
        for metric, value, values, exemplar in noted:
            if not 0 <= value < math.inf:
                continue
            series = self._series[metric.name]
            found = series.get(values)
            if found is None:
                found = series[values] = Distribution([0] * (len(metric.boundaries) + 1))
            bucket = bisect_left(metric.boundaries, value)
            found.counts[bucket] += 1
            found.sum += value
            found.least = min(found.least, value)
            found.most = max(found.most, value)
            if exemplar is not None:
                newest[metric.name, values, bucket] = found, value, exemplar
            if self._exponential and value:
                index = math.ceil(math.log2(value) * _TO_BUCKETS) - 1
                found.exponential[index] = found.exponential.get(index, 0) + 1
            elif self._exponential:
                found.zeros += 1
        for (_, _, bucket), (found, value, (trace_id, span_id, time)) in newest.items():
            found.exemplars[bucket] = Exemplar(value, time, trace_id, span_id)
