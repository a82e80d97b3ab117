"""The names that the generator derives are those under which OpenTelemetry's own reader exposes the catalogue."""

from __future__ import annotations

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from dashboards.generate.names import FOREIGN, family, label, labels, series
from prompt_sidecar.telemetry.catalog import BUILD_INFO, CATALOG, InstrumentKind, Metric


def _exposed(metrics: tuple[Metric, ...]) -> dict[str, set[str]]:
    """Return each exposed sample's name with its labels, after one event on every metric."""
    registry = CollectorRegistry()
    provider = MeterProvider([PrometheusMetricReader(registry=registry, scope_info_enabled=False)])
    meter = provider.get_meter("test")
    for metric in metrics:
        attributes = {name: values[0] if values else "x" for name, values in metric.labels.items()}
        if metric.kind is InstrumentKind.COUNTER:
            meter.create_counter(metric.name, metric.unit, metric.description).add(1, attributes)
        elif metric.kind is InstrumentKind.GAUGE:
            meter.create_gauge(metric.name, metric.unit, metric.description).set(1, attributes)
        else:
            meter.create_histogram(
                metric.name,
                metric.unit,
                metric.description,
                explicit_bucket_boundaries_advisory=metric.boundaries,
            ).record(0.1, attributes)
    samples = [sample for found in registry.collect() for sample in found.samples if sample.name != "target_info"]
    return {sample.name: set(sample.labels) - {"le"} for sample in samples}


def test_every_series_is_named_as_the_reader_names_it() -> None:
    """No name more, no name less, and the same labels."""
    expected = {name: set(labels(metric)) for metric in CATALOG for name in series(metric)}

    assert expected == _exposed(CATALOG)


def test_no_histogram_is_of_values_below_zero() -> None:
    """OpenTelemetry's SDK drops them, with a warning each time."""
    assert [] == [metric.name for metric in CATALOG if metric.boundaries and metric.boundaries[0] < 0]


def test_a_metric_without_unit_keeps_its_name() -> None:
    """The empty unit of a gauge adds nothing."""
    assert "prompt_sidecar_build_info" == family(BUILD_INFO)


def test_dots_of_labels_become_underscores() -> None:
    """Prometheus allows none."""
    assert "rpc_response_status_code" == label("rpc.response.status_code")


def test_foreign_metrics_are_not_of_the_catalogue() -> None:
    """What we define ourselves has its row there."""
    assert set() == {family(metric) for metric in FOREIGN} & {family(metric) for metric in CATALOG}
