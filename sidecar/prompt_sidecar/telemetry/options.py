"""What telemetry is configured with.

OpenTelemetry's own variables apply as well: where to push (OTEL_EXPORTER_OTLP_*), what to sample (OTEL_TRACES_SAMPLER),
what the service is called (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES), and whether there is any telemetry at all
(OTEL_SDK_DISABLED).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prompt_sidecar.values import HOUR, address, hosts, seconds, setting, texts, url, whole

MOST_MODELS: Final = 32
"""Models that have figures of their own: with four outcomes and eight formats a thousand series at the worst."""


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Addresses and names; an empty one means none."""

    metrics_listen: str = setting(
        "127.0.0.1:9464",
        address(),
        "TCP address of /metrics; empty: none; port 0: a free one. Any client reads all figures, but no text.",
        "Loopback, as the figures say how much is spent; 9464 is the port that OpenTelemetry gives to Prometheus "
        "exporters.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        hosts(16),
        "Names by which /metrics is asked for on loopback, besides localhost and IP addresses, without a port; beyond "
        "loopback any name may be used.",
        "A page of another site could have its own name lead here and read what is answered.",
        advanced=True,
    )
    scrapes: int = setting(
        8,
        whole(1, 1_000, "connections"),
        "Connections to /metrics at a time, each with a thread; beyond it one that has not sent its request is closed.",
        "Prometheus opens one; two of them for high availability and a person are four.",
        advanced=True,
    )
    scrape_timeout: float = setting(
        10.0,
        seconds(0.1, HOUR),
        "Time that a connection to /metrics has in all.",
        "Prometheus's own timeout of a scrape.",
        advanced=True,
    )
    otlp_endpoint: str = setting(
        "",
        url(),
        "Collector that metrics, traces and events are pushed to; empty: what OTEL_EXPORTER_OTLP_ENDPOINT says, if "
        "anything.",
    )
    tools: tuple[str, ...] = setting(
        (),
        texts(MOST_MODELS, 64),
        "Tools of agents with figures of their own; any other counts as other. Empty: the largest of those that agents "
        "define, 32 at the most; a name that no tool has, such as none, turns that off.",
    )
    models: tuple[str, ...] = setting(
        (),
        texts(MOST_MODELS, 128),
        "Models with figures of their own, besides the known ones, such as a deployment's names; any other counts as "
        "other.",
    )
