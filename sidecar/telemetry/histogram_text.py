"""The histograms as text for `/metrics`.

They are three quarters of all series, and the library takes 10 us for each line, most of it for labels that are the
same in every scrape. Here what stands before the number is written once for each line. The text is the library's own,
byte for byte; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import utils

from sidecar.telemetry.catalog import Metric
from sidecar.telemetry.distributions import HISTOGRAMS, Distributions, Reading, Traced
from sidecar.telemetry.tallies import Values

_INFINITY: Final = "+Inf"
_UNITS: Final = {"s": "seconds", "By": "bytes"}
_number: Final[Callable[[float], str]] = utils.floatToGoString
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class HistogramText:
    """Writes what the distributions hold. Thread-safe: two that write a line's beginning write the same."""

    def __init__(self, distributions: Distributions) -> None:
        self._distributions = distributions
        self._beginnings: dict[tuple[str, Values], tuple[str, ...]] = {}

    def text(self, *, openmetrics: bool) -> str:
        """All families, without an end mark. OpenMetrics has units and exemplars, the older text has neither."""
        return "".join(line for metric in HISTOGRAMS for line in self._family(metric, openmetrics=openmetrics))

    def _family(self, metric: Metric, *, openmetrics: bool) -> Iterator[str]:
        name = family(metric)
        yield f"# HELP {name} {metric.description}\n# TYPE {name} histogram\n"
        if openmetrics and metric.unit in _UNITS:
            yield f"# UNIT {name} {_UNITS[metric.unit]}\n"
        for reading in self._distributions.read(metric):
            yield from self._series(metric, reading, openmetrics=openmetrics)

    def _series(self, metric: Metric, reading: Reading, *, openmetrics: bool) -> Iterator[str]:
        key = metric.name, reading.values
        beginnings = self._beginnings.get(key)
        if beginnings is None:
            beginnings = self._beginnings[key] = _beginnings(metric, reading.values)
        traced = reading.traced if openmetrics else {}
        number, count = "0.0", 0
        for bucket, up_to in enumerate(accumulate(reading.counts)):
            if up_to != count:  # buckets share their number with the one before more often than not
                number, count = _number(up_to), up_to
            yield f"{beginnings[bucket]}{number}{_exemplar(traced[bucket]) if bucket in traced else ''}\n"
        yield f"{beginnings[-2]}{number}\n{beginnings[-1]}{_number(reading.total)}\n"


def family(metric: Metric) -> str:
    """What Prometheus calls a histogram of the catalogue."""
    return metric.name.replace(".", "_") + {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")


def _beginnings(metric: Metric, values: Values) -> tuple[str, ...]:
    """Of each line of a series: its buckets, its count, its sum."""
    name = family(metric)
    labels = {label.replace(".", "_"): value for label, value in zip(metric.labels, values, strict=True)}
    bounds = (*map(str, metric.boundaries), _INFINITY)
    buckets = [f"{name}_bucket{_labels({**labels, 'le': bound})} " for bound in bounds]
    return (*buckets, f"{name}_count{_labels(labels)} ", f"{name}_sum{_labels(labels)} ")


def _labels(labels: dict[str, str]) -> str:
    pairs = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in sorted(labels.items()))
    return f"{{{pairs}}}" if pairs else ""


def _exemplar(traced: Traced) -> str:
    trace, span = traced.ids
    return f' # {{span_id="{span:016x}",trace_id="{trace:032x}"}} {_number(traced.value)} {traced.at / 1e9}'
