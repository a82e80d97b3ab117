"""The counters, as plain numbers that calls add to and collections read.

OpenTelemetry's synchronous instruments take 7 to 20 us for one record, and a prompt has some thirty things to count. So
a call adds all of them here in one go, under one lock, in a few microseconds; the instruments are observable ones that
read these numbers when somebody asks. Every series of a closed label set is there from the start, at zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from prompt_sidecar.telemetry.catalog import Kind, Metric

Values = tuple[str, ...]
"""A series: the values of its labels, in the order of the metric's."""
Change = tuple[Metric, Values, float]
"""Something to add to a series."""


class Tallies:
    """The numbers of all counters. Thread-safe."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._lock = threading.Lock()
        self._series: dict[str, dict[Values, float]] = {
            metric.name: {tuple(labels.values()): 0 for labels in metric.series()}
            for metric in metrics
            if metric.kind is Kind.COUNTER
        }

    def add(self, changes: Sequence[Change]) -> None:
        """Count. A label value outside a closed set is a mistake of ours, and must not cost the caller its answer."""
        with self._lock:
            for metric, values, amount in changes:
                series = self._series[metric.name]
                series[values] = series.get(values, 0) + amount

    def read(self, metric: Metric) -> dict[Values, float]:
        """Every series of a counter."""
        with self._lock:
            return dict(self._series[metric.name])
