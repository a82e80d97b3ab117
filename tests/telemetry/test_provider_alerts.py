"""Alerts on providers, fired by Prometheus's own runner from what a real HTTP door shows before and after its calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from prompt_sidecar.telemetry import catalog
from tests.client.provider import Says
from tests.dashboards.tools import HOME, promtool
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.telemetry.test_provider_calls import ask
from tests.telemetry.watched import Figures, scraped_name, telling
from tests.waiting import until

CALLS = 12
"""More than the alerts leave alone."""
HOUR = 60
"""Minutes over which the test spreads the calls."""


def scraped(status: int) -> Figures:
    """Figures of a door whose provider has answered all calls so."""
    with (
        telling() as telemetry,
        proxied(scripted(*[Says("no", status=status)] * CALLS), observer=telemetry.observer) as here,
    ):
        _call(here)
        until(lambda: telemetry.scrape().of(catalog.PROVIDER_CALLS) == CALLS)
        return telemetry.scrape()


def _call(here: Proxied) -> None:
    for _ in range(CALLS):
        ask(here)


def series(figures: Figures) -> list[dict[str, str]]:
    """The door's series of providers as promtool's input: from 0 to what they are, in a minute each."""
    name = scraped_name(catalog.PROVIDER_CALLS)
    made = []
    for sample in figures.samples:
        if sample.name == name:
            labels = {**sample.labels, "job": "prompt-sidecar", "instance": "a:9464"}
            inner = ", ".join(f'{key}="{value}"' for key, value in labels.items())
            made.append({"series": f"{name}{{{inner}}}", "values": f"0+{sample.value / CALLS:g}x{HOUR}"})
    return made


@pytest.mark.parametrize(("status", "fires"), [(503, True), (429, True), (400, False), (200, False)])
def test_a_provider_that_fails_fires_its_alert(tmp_path: Path, status: int, *, fires: bool) -> None:
    """By its errors and by limits on the rate; not by what the agent got wrong."""
    fired: list[dict[str, Any]] = [
        {
            "exp_labels": {
                "severity": "ticket",
                "job": "prompt-sidecar",
                "instance": "a:9464",
                "route": "chat_completions",
            },
            "exp_annotations": {
                "summary": "A provider fails",
                "description": "100% of the calls of a provider by a:9464 (chat_completions) get an error of its own, "
                "a limit on their rate, half an answer, or none.",
                "runbook_url": "docs/runbooks/PromptSidecarProviderFails.md",
            },
        }
    ]
    test = {
        "interval": "1m",
        "input_series": series(scraped(status)),
        "alert_rule_test": [
            {
                "eval_time": "30m",
                "alertname": "PromptSidecarProviderFails",
                "exp_alerts": fired if fires else [],
            }
        ],
    }
    path = tmp_path / "door.yaml"
    rules = [str(HOME / "rules" / "alerts.yaml")]
    path.write_text(yaml.safe_dump({"rule_files": rules, "tests": [test]}), encoding="utf-8")
    done = promtool("test", "rules", path)
    assert 0 == done.returncode, done.stdout + done.stderr
