"""The options of telemetry, each with its default and the reason for it.

OpenTelemetry's own variables apply too: where to push (OTEL_EXPORTER_OTLP_*), what to sample (OTEL_TRACES_SAMPLER), the
name of the service (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), and whether telemetry is on (OTEL_SDK_DISABLED).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_MODELS: Final = 32
"""Most values of the model label: with four outcomes and eight formats at most a thousand series. Fleets use a few."""


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Addresses and names; an empty one is unset."""

    metrics_listen: str = "127.0.0.1:9464"
    """TCP address of `/metrics`; port 0: a free one. Loopback, as metrics reveal how much is spent; other
    addresses only if configured. No prompt text is in them, so they need no authentication of their own. 9464 is the
    port that OpenTelemetry gives to Prometheus exporters."""
    scrapes: int = 8
    """Connections to `/metrics` at a time, each with a thread; past it one that has not sent its request is closed.
    Prometheus opens one, and two of them for high availability and a person at a browser are four."""
    scrape_timeout: float = 10.0
    """Seconds that a connection to `/metrics` has in all; Prometheus's own timeout for a scrape."""
    otlp_endpoint: str = ""
    """URL of a collector that metrics and traces are pushed to; empty: what OTEL_EXPORTER_OTLP_ENDPOINT says, if
    anything."""
    models: tuple[str, ...] = ()
    """Names of models with a label value of their own in addition to known families, such as a deployment's names."""
