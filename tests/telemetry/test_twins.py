"""What we expose and push is what OpenTelemetry's SDK would, given the same values in instruments of its own."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.catalog import CATALOG, InstrumentKind, Metric
from prompt_sidecar.telemetry.distributions import MOST_NOTED, SCALE, Distribution, Distributions
from prompt_sidecar.telemetry.exposition import ExposedMetrics
from prompt_sidecar.telemetry.instruments import Instruments
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import SCOPE, assemble, resource
from prompt_sidecar.telemetry.pushed import MOST_BUCKETS, WithOurs, coarser
from prompt_sidecar.telemetry.scrapes import Exposition
from prompt_sidecar.telemetry.slices import SLICE, Sliced
from prompt_sidecar.telemetry.tallies import Tallies, Values

DELTA: Final = AggregationTemporality.DELTA
COUNTERS: Final = [metric for metric in CATALOG if metric.kind is InstrumentKind.COUNTER]
HISTOGRAMS: Final = [metric for metric in CATALOG if metric.kind is InstrumentKind.HISTOGRAM]
MADE_BY_SDK: Final = "otel_sdk", "otel.sdk", "target"

amounts = st.one_of(st.integers(0, 10**9), st.floats(1e-9, 1e9), st.just(0))
"""Whole and broken, from a nanosecond on."""
counted = st.lists(
    st.one_of(
        st.tuples(st.integers(0, len(COUNTERS) - 1).map(COUNTERS.__getitem__), st.integers(0, 9), amounts),
        st.tuples(st.integers(0, len(HISTOGRAMS) - 1).map(HISTOGRAMS.__getitem__), st.integers(0, 9), amounts),
    ),
    max_size=60,
)
"""A metric, which of its series, and an amount or a value."""
few = settings(max_examples=6, deadline=None)
"""An example makes and reads three thousand series, twice."""


class _Pushed(WithOurs, InMemoryMetricReader):
    """Receives what is pushed."""


class _Ours:
    """Our numbers, without a server."""

    def __init__(self) -> None:
        self.tallies = Tallies(CATALOG)
        self.distributions = Distributions(CATALOG, exponential=True)
        self.instruments = Instruments(self.tallies, self.distributions)

    def take(self, events: Iterable[tuple[Metric, int, float]]) -> None:
        for metric, which, amount in events:
            if metric.kind is InstrumentKind.COUNTER:
                self.tallies.add([(metric, _series(metric, which), amount)])
            else:
                self.distributions.record(metric, amount, _series(metric, which))


class _Sdk:
    """The SDK's instruments of the same names, told the same."""

    def __init__(self, *readers: Any) -> None:
        self._meter = MeterProvider(readers, exemplar_filter=AlwaysOffExemplarFilter()).get_meter(SCOPE)
        self._sums: dict[str, dict[Values, float]] = {
            metric.name: {tuple(labels.values()): 0 for labels in metric.series()} for metric in COUNTERS
        }
        self._histograms = {
            metric.name: self._meter.create_histogram(
                metric.name,
                metric.unit,
                metric.description,
                explicit_bucket_boundaries_advisory=metric.boundaries,
            )
            for metric in HISTOGRAMS
        }
        for metric in COUNTERS:
            self._observe(metric)

    def _observe(self, metric: Metric) -> None:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, _named(metric, values)) for values, value in self._sums[metric.name].items()]

        self._meter.create_observable_counter(metric.name, [observe], metric.unit, metric.description)

    def take(self, events: Iterable[tuple[Metric, int, float]]) -> None:
        for metric, which, amount in events:
            values = _series(metric, which)
            if metric.kind is InstrumentKind.COUNTER:
                series = self._sums[metric.name]
                series[values] = series.get(values, 0) + amount
            else:
                self._histograms[metric.name].record(amount, _named(metric, values))


def _fed(reader: _Pushed, ours: _Ours) -> None:
    """Have a reader receive ours along with a gauge of the SDK."""
    meter = MeterProvider([reader]).get_meter(SCOPE)
    meter.create_observable_gauge("gauge", [lambda _: [Observation(1)]])
    reader.feed(ours.instruments, SCOPE)


def _series(metric: Metric, which: int) -> Values:
    """One of a metric's series, by any number."""
    known = metric.series()
    return tuple(known[which % len(known)].values())


def _named(metric: Metric, values: Values) -> dict[str, str]:
    return dict(zip(metric.labels, values, strict=True))


@few
@given(counted)
def test_metrics_are_exposed_as_the_sdk_exposes_them(events: list[tuple[Metric, int, float]]) -> None:
    """Names, types, labels, values; series of histograms without a value are ours alone, and at zero."""
    ours, theirs = _Ours(), CollectorRegistry()
    sdk = _Sdk(PrometheusMetricReader(registry=theirs, scope_info_enabled=False))
    for each in (ours, sdk):
        each.take(events)
    exposed = ExposedMetrics()
    exposed.show(ours.instruments)
    mine = CollectorRegistry()
    mine.register(exposed)
    found, wanted = _scraped(mine), _scraped(theirs)
    assert wanted.items() <= found.items()
    extra = {key: value for key, value in found.items() if key not in wanted}
    assert not any(
        value[1] for key, value in extra.items() if _of_catalog(key, {InstrumentKind.HISTOGRAM, InstrumentKind.COUNTER})
    )


Key = tuple[str, frozenset[tuple[str, str]]]


def _scraped(registry: CollectorRegistry) -> dict[Key, tuple[str, float]]:
    """Type and value of each sample, by name and labels."""
    found: dict[Key, tuple[str, float]] = {}
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            if not family.name.startswith(MADE_BY_SDK):
                key = sample.name, frozenset(sample.labels.items())
                assert key not in found
                found[key] = family.type, sample.value
    return found


def _of_catalog(key: Key, kinds: set[InstrumentKind]) -> bool:
    names = tuple(metric.name.replace(".", "_") for metric in CATALOG if metric.kind in kinds)
    return key[0].startswith(names)


@pytest.mark.parametrize("temporality", list(AggregationTemporality)[1:], ids=lambda each: each.name)
@few
@given(st.lists(counted, min_size=1, max_size=4))
def test_metrics_are_pushed_as_the_sdk_pushes_them(
    temporality: AggregationTemporality, rounds: list[list[tuple[Metric, int, float]]]
) -> None:
    """Cumulative, or what is new since the last collection: sums, counts, and buckets of the same scale."""
    preferred: Any = {ObservableCounter: temporality, Histogram: temporality}
    aggregation: Any = {Histogram: ExponentialBucketHistogramAggregation()}
    reader = InMemoryMetricReader(preferred, aggregation)
    ours, sdk = _Ours(), _Sdk(reader)
    pushed = _Pushed(preferred, aggregation)
    _fed(pushed, ours)
    for events in rounds:
        for each in (ours, sdk):
            each.take(events)
        found, wanted = _received(pushed), _received(reader)
        assert wanted.keys() <= found.keys()
        for key, point in wanted.items():
            _compare(found[key], point, cumulative=temporality is not DELTA)
        for key in found.keys() - wanted.keys():  # a series without news, which the SDK leaves out
            assert not getattr(found[key], "count", 0)


def _received(reader: Any) -> dict[Key, Any]:
    """The points of a collection's counters and histograms, by name and attributes."""
    known = {metric.name for metric in (*COUNTERS, *HISTOGRAMS)}
    data = reader.get_metrics_data()
    return {
        (metric.name, frozenset(point.attributes.items())): point
        for of_resource in data.resource_metrics
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
        if metric.name in known
        for point in metric.data.data_points
    }


def _compare(found: Any, wanted: Any, *, cumulative: bool) -> None:
    if not hasattr(wanted, "count"):
        assert wanted.value == pytest.approx(found.value)
        return
    assert (wanted.count, wanted.zero_count) == (found.count, found.zero_count)
    assert wanted.sum == pytest.approx(found.sum)
    if cumulative:
        assert (wanted.min, wanted.max) == (found.min, found.max)
    elif wanted.count:  # known within a bucket only
        assert wanted.min == pytest.approx(found.min, rel=0.05)
        assert wanted.max == pytest.approx(found.max, rel=0.05)
    scale = min(wanted.scale, found.scale)
    assert _buckets(wanted, scale) == _buckets(found, scale)


def _buckets(point: Any, scale: int) -> dict[int, int]:
    """The counts at a coarser scale."""
    made: dict[int, int] = {}
    for number, count in enumerate(point.positive.bucket_counts):
        if count:
            index = (point.positive.offset + number) >> (point.scale - scale)
            made[index] = made.get(index, 0) + count
    return made


@given(st.dictionaries(st.integers(-20_000, 20_000), st.integers(1, 9), max_size=300))
def test_no_more_buckets_than_a_collector_takes(counts: Mapping[int, int]) -> None:
    """However far apart the values are: nothing is lost, and the scale is the finest that does."""
    scale, first, found = coarser(counts)
    assert len(found) <= MOST_BUCKETS
    assert sum(counts.values()) == sum(found)
    merged = {index >> (SCALE - scale) for index in counts}
    assert merged == {first + number for number, count in enumerate(found) if count}
    finer = {index >> (SCALE - scale - 1) for index in counts} if scale < SCALE else set()
    assert not finer or max(finer) - min(finer) >= MOST_BUCKETS


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, -math.inf])
def test_what_is_no_measurement_is_left_out(value: float) -> None:
    """As by the SDK."""
    ours = _Ours()
    ours.distributions.record(catalog.QUEUE_WAIT, value)
    assert {} == ours.distributions.read(catalog.QUEUE_WAIT)


def test_values_are_counted_before_they_are_many() -> None:
    """Also where nobody collects."""
    found = Distributions(CATALOG)
    for _ in range(3 * MOST_NOTED + 1):
        found.record(catalog.QUEUE_WAIT, 0.001)
        assert found.noted < MOST_NOTED
    assert 3 * MOST_NOTED + 1 == found.read(catalog.QUEUE_WAIT)[()].count


histogram_values = st.tuples(
    st.sampled_from(HISTOGRAMS[:3] + [metric for metric in HISTOGRAMS if metric.labels][:3]),
    st.integers(0, 2),
    st.sampled_from((0, 0.001, 0.5, 1, 700, 700.5)),
)
"""A histogram, which of its series, and a value: of few, so that several are in one bucket."""


@given(st.lists(st.lists(histogram_values, max_size=8), max_size=12))
def test_values_recorded_together_are_as_each_by_itself(calls: list[list[tuple[Metric, int, float]]]) -> None:
    """Each of them, and the exemplars, of which every second call has one; only the time of these may differ."""
    single, together = (Distributions(CATALOG, exponential=True) for _ in range(2))
    for number, call in enumerate(calls):
        trace = (number + 1, 7) if number % 2 else None
        for metric, which, value in call:
            single.record(metric, value, _series(metric, which), trace)
            single.read(metric)  # so that it is counted by itself
        together.record_all([(metric, value, _series(metric, which)) for metric, which, value in call], trace)

    for metric in HISTOGRAMS:
        one, other = ({of: _timeless(each) for of, each in found.read(metric).items()} for found in (single, together))
        assert one == other
        for found in other.values():
            assert all(bisect_left(metric.boundaries, each.value) == at for at, each in found.exemplars.items())


def _timeless(found: Distribution) -> Distribution:
    found.exemplars = {bucket: replace(exemplar, time=0) for bucket, exemplar in found.exemplars.items()}
    return found


def test_values_recorded_together_are_counted_when_they_are_many() -> None:
    """So that a prompt with ten thousand results leaves nothing behind."""
    found = Distributions(CATALOG)
    found.record_all([(catalog.QUEUE_WAIT, 0.001, ())] * (MOST_NOTED + 1))

    assert 0 == found.noted
    assert MOST_NOTED + 1 == found.read(catalog.QUEUE_WAIT)[()].count


def test_the_newest_exemplar_of_a_bucket_is_kept() -> None:
    """It is pushed once, with the collection that follows; `/metrics` shows it until there is a newer one."""
    ours, pushed = _Ours(), _Pushed()
    _fed(pushed, ours)
    ours.distributions.record(catalog.QUEUE_WAIT, 0.001, (), (1, 2))
    ours.distributions.record(catalog.QUEUE_WAIT, 0.001, (), (3, 4))
    shown = [_received(pushed)[catalog.QUEUE_WAIT.name, frozenset()].exemplars for _ in range(2)]
    assert [[(3, 4)], []] == [[(each.trace_id, each.span_id) for each in exemplars] for exemplars in shown]
    (kept,) = ours.distributions.read(catalog.QUEUE_WAIT)[()].exemplars.values()
    assert (3, 4) == (kept.trace_id, kept.span_id)


def test_the_resource_and_the_scope_are_the_sdks() -> None:
    """One resource, and one scope of ours, which a collector would otherwise take for two."""
    pushed = _Pushed()
    running = assemble(TelemetryOptions(), resource=resource({}), readers=[pushed])
    data: Any = pushed.get_metrics_data()
    running.stop()
    (of_resource,) = data.resource_metrics
    (scope,) = [each for each in of_resource.scope_metrics if each.scope.name == SCOPE]
    assert "prompt-sidecar" == of_resource.resource.attributes["service.name"]
    names = [metric.name for metric in scope.metrics]
    assert sorted(metric.name for metric in CATALOG) == sorted(names)


def test_an_iteration_in_slices_is_whole() -> None:
    """In order, and as often as it is asked for."""
    made = Sliced(range(5 * SLICE + 3))
    assert list(range(5 * SLICE + 3)) == list(made) == list(iter(made))


def test_a_copy_does_not_change() -> None:
    """What a collection reads stays as it was."""
    found = Distributions(CATALOG, exponential=True)
    found.record(catalog.QUEUE_WAIT, 1.0, (), (1, 2))
    before = found.read(catalog.QUEUE_WAIT)[()]
    shown: Distribution = before.copy()
    found.record(catalog.QUEUE_WAIT, 1.0, (), (3, 4))
    assert shown == before
    assert shown != found.read(catalog.QUEUE_WAIT)[()]


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"service.name": "a", "k8s.pod-name": 'b "c"', "1st": "d"},
        {"service.name": "a", "os.ports": (1, 2), "on": True},
    ],
    ids=["none", "odd names", "odd values"],
)
def test_the_resource_is_shown_as_the_sdk_shows_it(attributes: dict[str, Any]) -> None:
    """Without a collector the SDK is not there to do it."""
    pages = []
    for readers in ([], [_Pushed()]):
        exposed = ExposedMetrics()
        exposition = Exposition(("127.0.0.1", 0), exposed, TelemetryOptions())
        running = assemble(TelemetryOptions(), resource=Resource(attributes), readers=readers, exposition=exposition)
        page = generate_latest(exposed.registry()).decode()
        running.stop()
        pages.append([line for line in page.splitlines() if re.search("target|build_info", line)])
    assert pages[0] == pages[1]
    assert any("prompt_sidecar_build_info{" in line for line in pages[0])


def test_the_sdks_metrics_are_not_imported_without_a_collector() -> None:
    """They take memory, and 30 ms of each start."""
    code = """
import sys
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import start
start(TelemetryOptions(), {}, address=("127.0.0.1", 0)).stop()
print(*(name for name in sys.modules if name.startswith(("opentelemetry.sdk.metrics", "opentelemetry.sdk.trace"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
