"""The counters, as plain numbers that calls add to and collections read.

OpenTelemetry's synchronous instruments take 6 to 9 us for one number, and a prompt has some thirty (`instruments.py`).
So a call adds all of them here at once, under one lock, in a few microseconds; the instruments are observable ones that
read these numbers at each collection. Every series of a closed label set exists from the start, at zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from prompt_sidecar.telemetry.catalog import InstrumentKind, Metric

Values = tuple[str, ...]
"""A series: the values of its labels, in the order of the metric's labels."""
Change = tuple[Metric, Values, float]
"""A metric, the series, and the amount to add."""


class Tallies:
    """The numbers of all counters. Thread-safe."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._lock = threading.RLock()  # log lines of a finalizer may be counted, and a finalizer may run within `add`
        self._series: dict[str, dict[Values, float]] = {
            metric.name: {tuple(labels.values()): 0 for labels in metric.series()}
            for metric in metrics
            if metric.kind is InstrumentKind.COUNTER
        }

    def add(self, changes: Sequence[Change]) -> None:
        """Add changes.

        Unknown label values, which are our own errors, are counted too, so that the caller gets the answer.
        """
        with self._lock:
            for metric, values, amount in changes:
                series = self._series[metric.name]
                series[values] = series.get(values, 0) + amount

    def read(self, metric: Metric) -> dict[Values, float]:
        """Return every series of a counter."""
        with self._lock:
            return dict(self._series[metric.name])
