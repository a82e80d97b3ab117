"""What telemetry is told from outside: each option with its default and the reason for it.

What OpenTelemetry's own variables say holds as well: where to push (OTEL_EXPORTER_OTLP_*), what to sample
(OTEL_TRACES_SAMPLER), what the service is called (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), and whether there is
any telemetry at all (OTEL_SDK_DISABLED).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_MODELS: Final = 32
"""Models that are told apart: with four outcomes and eight formats a thousand series at the worst. Fleets use some."""


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Addresses and names; one that is empty is none."""

    metrics_listen: str = "127.0.0.1:9464"
    """TCP address of `/metrics`; port 0: a free one. Loopback, as whoever reads figures learns how much is spent;
    beyond it only when said so. No prompt text is in them, so they need no authentication of their own. 9464 is the
    port that OpenTelemetry gives to Prometheus exporters."""
    scrapes: int = 8
    """Connections to `/metrics` at a time, each with a thread; past it one that has not sent its request is closed.
    Prometheus opens one, and two of them for high availability with a person beside them are four."""
    scrape_timeout: float = 10.0
    """Seconds that a connection to `/metrics` has in all; Prometheus's own timeout for a scrape."""
    otlp_endpoint: str = ""
    """URL of a collector that metrics and traces are pushed to; empty: what OTEL_EXPORTER_OTLP_ENDPOINT says, if
    anything."""
    models: tuple[str, ...] = ()
    """Names of models that figures are told apart by, beside the known ones; a deployment's own names, say."""
