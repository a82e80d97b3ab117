"""All rows of the catalogue with their numbers: counted and recorded by calls, or read at each collection.

They are not instruments of OpenTelemetry's SDK. A prompt counts some thirty numbers and records seven values: 7 us
here, 220 us with the SDK, and 340 us if OTLP's reader is added, which is 12 and 19 % of the engine's time (1.8 ms); and
a scrape would take tens of milliseconds without a pause. `/metrics` and OTLP's reader take them from here, with the
names, units and kinds of the SDK; tests compare both with the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.facts.held_connections import HeldConnections
from prompt_sidecar.facts.totals import ProcessCpu, ProcessMemory, Totals
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import CATALOG, InstrumentKind, Metric
from prompt_sidecar.telemetry.distributions import Distribution, Distributions
from prompt_sidecar.telemetry.readings import Series, figures, held, process, processor
from prompt_sidecar.telemetry.tallies import Tallies, Values

_NONE: Final[Mapping[Values, Distribution]] = {}


@dataclass(frozen=True, slots=True)
class CollectedMetric:
    """A metric with its values at one collection."""

    metric: Metric
    numbers: Series = field(default_factory=dict)
    """Values of a counter or a gauge."""
    distributions: Mapping[Values, Distribution] = field(default_factory=lambda: _NONE)
    """Values of a histogram: the series that have any."""


class Instruments:
    """The numbers of all metrics. Thread-safe. The functions given to `watch` are called once per collection."""

    def __init__(self, tallies: Tallies, distributions: Distributions) -> None:
        self._tallies = tallies
        self._distributions = distributions
        self._totals: Callable[[], Totals] | None = None
        self._active: Callable[[], int] = int
        self._memory: Callable[[], ProcessMemory] | None = None
        self._buffers: Callable[[], Mapping[str, int]] | None = None
        self._cpu: Callable[[], ProcessCpu] | None = None
        self.held: Callable[[], HeldConnections] = lambda: HeldConnections(0, 0)
        """Returns the connections that wait for the HTTP door; called once per collection."""
        self.record = distributions.record
        """Record a value of a histogram."""
        self.record_all = distributions.record_all
        """Record several values of histograms."""

    def watch(
        self,
        totals: Callable[[], Totals],
        active: Callable[[], int],
        memory: Callable[[], ProcessMemory] | None = None,
        buffers: Callable[[], Mapping[str, int]] | None = None,
        cpu: Callable[[], ProcessCpu] | None = None,
    ) -> None:
        """Expose the results of these functions: the core's totals, calls in progress, memory of process and answers.

        `cpu`: processor time, as the process's control group limits it.
        """
        self._totals, self._active, self._memory, self._buffers, self._cpu = totals, active, memory, buffers, cpu

    def collect(self) -> Iterator[CollectedMetric]:
        """Yield every metric except the build's, in the catalogue's order. All of them are from the same totals."""
        readings = self._readings()
        for metric in CATALOG:
            if metric is catalog.BUILD_INFO:
                continue  # an instrument of the SDK, whose readers forward nothing without one
            if metric.kind is InstrumentKind.HISTOGRAM:
                yield CollectedMetric(metric, distributions=self._distributions.read(metric))
            else:
                yield CollectedMetric(metric, self._numbers(metric, readings.get(metric.name, {})))

    def _readings(self) -> dict[str, Series]:
        readings = figures(self._totals()) if self._totals is not None else {}
        readings[catalog.CALLS_ACTIVE.name] = {(): self._active()}
        readings[catalog.HTTP_HELD.name] = held(self.held())
        if self._memory is not None:
            readings[catalog.PROCESS_MEMORY.name] = process(self._memory())
        if self._cpu is not None:
            readings.update(processor(self._cpu()))
        if self._buffers is not None:
            core = readings.get(catalog.BUFFERS_SIZE.name, {})
            readings[catalog.BUFFERS_SIZE.name] = {**core, **{(name,): size for name, size in self._buffers().items()}}
        return readings

    def _numbers(self, metric: Metric, readings: Series) -> Series:
        """Return a counter's or gauge's series. Some are the sum of what calls and the core counted."""
        if metric.kind is InstrumentKind.GAUGE:
            return readings
        series = self._tallies.read(metric)
        for values, value in readings.items():
            series[values] = series.get(values, 0) + value
        return series
