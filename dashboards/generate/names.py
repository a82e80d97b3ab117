"""What Prometheus calls a row of the catalogue, and the few metrics that others than we define.

The rules are those of OpenTelemetry's Prometheus reader: dots become underscores, the unit joins the name where it is
one that Prometheus knows, `{token}` and `1` vanish, and counters end in `_total`. `tests/dashboards/test_names.py`
holds this against the reader itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.telemetry.catalog import InstrumentKind, Metric

UNITS: Final = {"s": "_seconds", "By": "_bytes"}
"""UCUM → what Prometheus writes. Other units of the catalogue leave no trace in a name."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A metric that Prometheus or a library defines, by the name under which it is scraped."""

    name: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """As in the catalogue; job and instance, which every series has, are not named."""
    of_any_program: bool = False
    """Whether programs that are no sidecar have it too, under any job."""


UP: Final = Foreign("up")
"""Prometheus itself: whether the last scrape of a target went well."""
ALERTS: Final = Foreign("ALERTS", {"alertname": (), "alertstate": ("pending", "firing"), "severity": ()})
"""Prometheus itself: alerts that are pending or firing."""
PROCESS_CPU: Final = Foreign("process_cpu_seconds_total", of_any_program=True)
PROCESS_MEMORY: Final = Foreign("process_resident_memory_bytes", of_any_program=True)
PROCESS_START: Final = Foreign("process_start_time_seconds", of_any_program=True)
PROCESS_FILES: Final = Foreign("process_open_fds", of_any_program=True)
PROCESS_MAX_FILES: Final = Foreign("process_max_fds", of_any_program=True)
SPANS_PROCESSED: Final = Foreign("otel_sdk_processor_span_processed_total", {"error_type": ()}, of_any_program=True)
"""OpenTelemetry's SDK: finished spans; with an `error_type` those that found the queue full."""
SPANS_EXPORTED: Final = Foreign("otel_sdk_exporter_span_exported_total", {"error_type": ()}, of_any_program=True)
"""OpenTelemetry's SDK: spans handed to the collector; with an `error_type` those that it did not take."""

RECORDS_PROCESSED: Final = Foreign("otel_sdk_processor_log_processed_total", {"error_type": ()}, of_any_program=True)
"""As SPANS_PROCESSED, of log records, which are the sidecar's events."""
RECORDS_EXPORTED: Final = Foreign("otel_sdk_exporter_log_exported_total", {"error_type": ()}, of_any_program=True)
TARGET_INFO: Final = Foreign(
    "target_info",
    dict.fromkeys(
        (
            "k8s_namespace_name",
            "k8s_deployment_name",
            "k8s_pod_name",
            "k8s_node_name",
            "service_version",
            "namespace",
            "pod",
        ),
        (),
    ),
    of_any_program=True,
)
"""OpenTelemetry's SDK: 1, with the resource's attributes as labels; and those that a PodMonitor gives every series."""
CLIENT_PROMPTS: Final = Foreign(
    "prompt_sidecar_client_prompts_total", {"sent": ("trimmed", "last_prompt", "left_out", "as_given"), "code": ()}
)
"""Our own client in an agent's program, which exports it with its own metrics; `prompt_sidecar/client/metrics.py`."""

FOREIGN: Final = (
    UP,
    ALERTS,
    PROCESS_CPU,
    PROCESS_MEMORY,
    PROCESS_START,
    PROCESS_FILES,
    PROCESS_MAX_FILES,
    SPANS_PROCESSED,
    SPANS_EXPORTED,
    RECORDS_PROCESSED,
    RECORDS_EXPORTED,
    TARGET_INFO,
    CLIENT_PROMPTS,
)


def label(name: str) -> str:
    """Return what Prometheus calls a label."""
    return name.replace(".", "_")


def family(metric: Metric | Foreign) -> str:
    """Return the name of a metric; a histogram's series add `_bucket`, `_sum` and `_count` to it."""
    if isinstance(metric, Foreign):
        return metric.name
    name = metric.name.replace(".", "_") + UNITS.get(metric.unit, "")
    return f"{name}_total" if metric.kind is InstrumentKind.COUNTER else name


def series(metric: Metric | Foreign) -> tuple[str, ...]:
    """Return the names under which a metric's samples are stored."""
    name = family(metric)
    if isinstance(metric, Foreign) or metric.kind is not InstrumentKind.HISTOGRAM:
        return (name,)
    return f"{name}_bucket", f"{name}_sum", f"{name}_count"


def labels(metric: Metric | Foreign) -> dict[str, tuple[str, ...]]:
    """Return each label of a metric as Prometheus calls it, with the values that it may have; none: an open set."""
    return {label(name): values for name, values in metric.labels.items()}
