"""The time of a prompt is known whichever door it came through: agents over HTTP make no calls over gRPC."""

from __future__ import annotations

import json
import urllib.request

from opentelemetry.sdk.resources import Resource

from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.exposition import ExposedMetrics
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import assemble
from prompt_sidecar.telemetry.scrapes import Exposition
from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import proxied
from tests.doors.http.upstream import scripted
from tests.telemetry.watched import OPENMETRICS, scraped_name


def test_prompts_over_http_are_timed() -> None:
    """Each prompt is one observation."""
    exposition = Exposition(("127.0.0.1", 0), ExposedMetrics([]), TelemetryOptions())
    running = assemble(TelemetryOptions(), resource=Resource({}), exposition=exposition)
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "Hello."}]}).encode()
    try:
        with proxied(scripted(Says("Hello."), Says("Hello.")), observer=running.observer) as here:
            for _ in range(2):
                request = urllib.request.Request(
                    f"{here.url}/v1/chat/completions", body, {"Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    assert 200 == answer.status
            scrape = urllib.request.Request(
                f"http://127.0.0.1:{exposition.port}/metrics", headers={"Accept": OPENMETRICS}
            )
            with urllib.request.urlopen(scrape, timeout=PATIENCE) as figures:
                text = figures.read().decode()
    finally:
        running.stop()
    assert f"{scraped_name(catalog.TRIM_DURATION)}_count 2.0" in text.splitlines()
