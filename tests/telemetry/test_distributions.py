"""The histograms of our own against those that they stand for: the library's text, and OpenTelemetry's data."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogramDataPoint,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from prometheus_client import CollectorRegistry
from prometheus_client import generate_latest as classic
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from sidecar.telemetry.catalog import ESTIMATE_RATIO, PROMPT_SIZE, QUEUE_WAIT, RPC_DURATION, Metric
from sidecar.telemetry.distributions import HISTOGRAMS, SCALE, Distributions
from sidecar.telemetry.histogram_points import Points, PushReader
from sidecar.telemetry.histogram_text import HistogramText, family

METHODS = ("a.B/C", "a.B/D")
IDS = (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)


class _Twin(Collector):
    """The same series as the library's own families."""

    def __init__(self, distributions: Distributions) -> None:
        self._distributions = distributions

    def collect(self) -> list[HistogramMetricFamily]:
        """Every histogram."""
        return [self._family(metric) for metric in HISTOGRAMS]

    def _family(self, metric: Metric) -> HistogramMetricFamily:
        name = family(metric)
        unit = "seconds" if metric.unit == "s" else ""
        labels = [label.replace(".", "_") for label in metric.labels]
        found = HistogramMetricFamily(name, metric.description, labels=labels, unit=unit)
        for reading in self._distributions.read(metric):
            buckets: list[Any] = []
            up_to = 0
            for index, bound in enumerate((*map(str, metric.boundaries), "+Inf")):
                up_to += reading.counts[index]
                traced = reading.traced.get(index)
                if traced is None:
                    buckets.append((bound, up_to))
                else:
                    ids = {"trace_id": f"{traced.ids[0]:032x}", "span_id": f"{traced.ids[1]:016x}"}
                    buckets.append((bound, up_to, Exemplar(ids, traced.value, traced.at / 1e9)))
            found.add_metric(reading.values, buckets, reading.total)
        return found


def _filled(*, fine: bool = False) -> tuple[Distributions, dict[str, list[float]]]:
    """Distributions with some hundred values in each, of all sizes, boundaries and zero among them."""
    dice = random.Random(5)
    made = Distributions(METHODS, fine=fine)
    told: dict[str, list[float]] = {}
    for metric in HISTOGRAMS:
        values = [0, *metric.boundaries, *(10 ** dice.uniform(-5, 6) for _ in range(300))]
        told[metric.name] = values
        for value in values:
            labels = tuple(known[0] if known else 'other "\\\n' for known in metric.labels.values())
            made.record([(metric, value, labels)], IDS if dice.random() < 0.1 else None)
    return made, told


@pytest.mark.parametrize("form", [openmetrics, classic], ids=["openmetrics", "classic"])
@pytest.mark.parametrize("fill", [lambda: Distributions(METHODS), lambda: _filled()[0]], ids=["at zero", "filled"])
def test_the_text_is_the_librarys(
    form: Callable[[CollectorRegistry], bytes], fill: Callable[[], Distributions]
) -> None:
    """Byte for byte, units, exemplars and the escaping of labels included."""
    distributions = fill()
    registry = CollectorRegistry()
    registry.register(_Twin(distributions))
    text = HistogramText(distributions).text(openmetrics=form is openmetrics)
    for _ in range(2):  # the second time from what is kept of the first
        assert form(registry).decode().removesuffix("# EOF\n") == text


def test_what_is_no_measure_is_left_out() -> None:
    """A sum that falls, or is no number, would break every rate."""
    distributions = Distributions()
    distributions.record([(QUEUE_WAIT, value, ()) for value in (-1.0, float("nan"), float("inf"), 0.25)])
    (reading,) = distributions.read(QUEUE_WAIT)
    assert (1, 0.25) == (sum(reading.counts), reading.total)


def test_a_value_on_a_boundary_lies_within_it() -> None:
    """As `le` has it."""
    distributions = Distributions()
    distributions.record([(PROMPT_SIZE, 1e3, ("before",)), (PROMPT_SIZE, 1e3 + 1, ("before",))])
    before, after = distributions.read(PROMPT_SIZE)
    assert ((1, 1), 0) == (before.counts[:2], sum(after.counts))


class _Kept(MetricExporter):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__(
            preferred_temporality={Histogram: AggregationTemporality.CUMULATIVE},
            preferred_aggregation={Histogram: ExponentialBucketHistogramAggregation()},
        )
        self.data: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **more: Any) -> MetricExportResult:  # noqa: ARG002
        """Keep."""
        self.data.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:  # noqa: ARG002 - nothing waits
        """Nothing to do."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **more: Any) -> None:
        """Nothing to do."""


def _points(data: MetricsData | None) -> dict[str, Any]:
    assert data is not None
    ((scope,),) = [of_resource.scope_metrics for of_resource in data.resource_metrics]
    return {metric.name: metric for metric in scope.metrics}


def test_points_are_opentelemetrys() -> None:
    """Where its own instrument, told the same values, comes to the same width of buckets: the same buckets."""
    values = [0, 1, 2, 3.5, 4, 1e3, 1024, 1025.5, 77]
    distributions = Distributions(fine=True)
    kept = _Kept()
    pushed = MeterProvider([PushReader(kept, Points(distributions, delta=False), "ours")], shutdown_on_exit=False)
    pushed.get_meter("ours").create_observable_gauge("any", [lambda _: []])
    pushed.get_meter("ours").create_counter("counted").add(1)
    aggregation = ExponentialBucketHistogramAggregation(max_size=160, max_scale=SCALE)
    reader = InMemoryMetricReader(preferred_aggregation={Histogram: aggregation})
    twin = MeterProvider([reader], shutdown_on_exit=False)
    instrument = twin.get_meter("twin").create_histogram(ESTIMATE_RATIO.name)
    for value in values:
        distributions.record([(ESTIMATE_RATIO, value, ("other",))])
        instrument.record(value, {"model": "other"})
    pushed.force_flush()
    (ours,) = _points(kept.data[-1])[ESTIMATE_RATIO.name].data.data_points
    (theirs,) = _points(reader.get_metrics_data())[ESTIMATE_RATIO.name].data.data_points
    assert "counted" in _points(kept.data[-1])
    assert _shape(theirs) == _shape(ours)
    pushed.shutdown()
    twin.shutdown()


def _shape(point: ExponentialHistogramDataPoint) -> tuple[object, ...]:
    """A point without its times; its buckets without the empty ones."""
    buckets = {point.positive.offset + at: count for at, count in enumerate(point.positive.bucket_counts) if count}
    return (
        dict(point.attributes or {}),
        point.scale,
        buckets,
        point.zero_count,
        point.count,
        point.sum,
        point.min,
        point.max,
    )


def test_points_hold_every_value() -> None:
    """Each in a bucket whose ends it lies between; a value that was recorded in a trace leads there, once."""
    distributions, told = _filled(fine=True)
    points = Points(distributions, delta=False)
    found = {metric.name: metric.data for metric in points.collect()}
    assert {metric.name for metric in HISTOGRAMS} == found.keys()
    for name, values in told.items():
        (point,) = found[name].data_points
        assert isinstance(point, ExponentialHistogramDataPoint)
        assert (len(values), min(values), max(values)) == (point.count, point.min, point.max)
        for index, count in enumerate(point.positive.bucket_counts, point.positive.offset):
            low, high = 2 ** (index / 2**SCALE), 2 ** ((index + 1) / 2**SCALE)
            near = [value for value in values if low * (1 - 1e-12) < value <= high * (1 + 1e-12)]
            assert count <= len(near)
        assert sum(point.positive.bucket_counts) + point.zero_count == point.count
        assert {IDS} == {(each.trace_id, each.span_id) for each in point.exemplars}
    assert not any(point.exemplars for metric in points.collect() for point in metric.data.data_points)


def test_points_since_the_last_ones() -> None:
    """Asked for differences, each push tells what came since, and nothing where nothing came."""
    distributions = Distributions(METHODS, fine=True)
    points = Points(distributions, delta=True)
    told: list[tuple[int, float, float, float]] = []
    for values in ([0.5, 2.0], [], [4.0], [0.0, 1.0]):
        distributions.record([(RPC_DURATION, value, ("grpc", METHODS[0], "OK")) for value in values])
        for metric in points.collect():
            assert AggregationTemporality.DELTA is metric.data.aggregation_temporality  # type: ignore[union-attr]
            (point,) = metric.data.data_points
            assert isinstance(point, ExponentialHistogramDataPoint)
            assert point.count == sum(point.positive.bucket_counts) + point.zero_count
            told.append((point.count, point.sum, point.min, point.max))
    assert [(2, 2.5, 0.5, 2.0), (1, 4.0, 4.0, 4.0), (2, 1.0, 0.0, 1.0)] == told
