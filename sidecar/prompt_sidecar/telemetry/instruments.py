"""The catalogue's rows as OpenTelemetry instruments.

Counters and gauges are observable: they read numbers that exist anyway. Histograms are recorded during calls, a few for
each. All instruments of one collection read the same totals, which are fetched when the first of them is observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.util.types import AttributeValue

from prompt_sidecar.facts.totals import ProcessCpu, ProcessMemory, Totals
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import CATALOG, Kind, Metric
from prompt_sidecar.telemetry.readings import Series, build_info, figures, process, processor
from prompt_sidecar.telemetry.tallies import Tallies, Values

Attributes = Mapping[str, AttributeValue]

FIRST: Final = catalog.BUILD_INFO
"""The instrument that is made, and so asked, before all others: it fetches what they tell."""


class Instruments:
    """All instruments. The functions given to `watch` are called once per collection."""

    def __init__(self, meter: Meter, tallies: Tallies) -> None:
        self._tallies = tallies
        self._totals: Callable[[], Totals] | None = None
        self._active: Callable[[], int] = int
        self._memory: Callable[[], ProcessMemory] | None = None
        self._buffers: Callable[[], Mapping[str, int]] | None = None
        self._cpu: Callable[[], ProcessCpu] | None = None
        self._readings: dict[str, Series] = {}
        self._attributes: dict[tuple[str, Values], Attributes] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in sorted(CATALOG, key=lambda metric: metric is not FIRST):
            self._make(meter, metric)

    def watch(
        self,
        totals: Callable[[], Totals],
        active: Callable[[], int],
        memory: Callable[[], ProcessMemory] | None = None,
        buffers: Callable[[], Mapping[str, int]] | None = None,
        cpu: Callable[[], ProcessCpu] | None = None,
    ) -> None:
        """Expose the results of these: the core's totals, calls in progress, memory of the process and of answers.

        And processor time, as the process's control group limits it.
        """
        self._totals, self._active, self._memory, self._buffers, self._cpu = totals, active, memory, buffers, cpu

    def record(self, metric: Metric, value: float, values: Values = ()) -> None:
        """Record into a histogram."""
        self._histograms[metric.name].record(value, self._named(metric, values))

    def _make(self, meter: Meter, metric: Metric) -> None:
        if metric.kind is Kind.HISTOGRAM:
            self._histograms[metric.name] = meter.create_histogram(
                metric.name,
                metric.unit,
                metric.description,
                explicit_bucket_boundaries_advisory=metric.boundaries,
            )
            return
        make = meter.create_observable_counter if metric.kind is Kind.COUNTER else meter.create_observable_gauge

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            if metric is FIRST:
                self._fetch()
            return [Observation(value, self._named(metric, values)) for values, value in self._read(metric).items()]

        make(metric.name, [observe], metric.unit, metric.description)

    def _fetch(self) -> None:
        readings = figures(self._totals()) if self._totals is not None else {}
        readings[catalog.CALLS_ACTIVE.name] = {(): self._active()}
        if self._memory is not None:
            readings[catalog.PROCESS_MEMORY.name] = process(self._memory())
        if self._cpu is not None:
            readings.update(processor(self._cpu()))
        if self._buffers is not None:
            core = readings.get(catalog.BUFFERS_SIZE.name, {})
            readings[catalog.BUFFERS_SIZE.name] = {**core, **{(name,): size for name, size in self._buffers().items()}}
        readings[FIRST.name] = build_info()
        self._readings = readings

    def _read(self, metric: Metric) -> Series:
        """A counter's or gauge's series. Some are the sum of what calls and the core counted."""
        readings = self._readings.get(metric.name, {})
        if metric.kind is Kind.GAUGE:
            return readings
        series = self._tallies.read(metric)
        for values, value in readings.items():
            series[values] = series.get(values, 0) + value
        return series

    def _named(self, metric: Metric, values: Values) -> Attributes:
        """A series' labels as attributes, cached: there are few series and many readings."""
        known = self._attributes.get((metric.name, values))
        if known is None:
            known = dict(zip(metric.labels, values, strict=True))
            self._attributes[metric.name, values] = known
        return known
