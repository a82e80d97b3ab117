"""The rules as the files that Prometheus loads."""

from __future__ import annotations

from typing import Any, Final

import yaml

from dashboards.generate.alerts import ALERTS, Alert
from dashboards.generate.recorded import RECORDED
from dashboards.generate.render import ADMIN

HEADER: Final = "# Made by `make dashboards` from dashboards/generate; changes here are lost.\n"
RUNBOOKS: Final = "docs/runbooks/"
"""Where the pages are, seen from the repository's root; `--runbooks` puts another address in its place."""


def _alert(alert: Alert, runbooks: str, admin: str) -> dict[str, Any]:
    runs = {"runs_url": f"{admin}/runs?sort={alert.runs}"} if alert.runs else {}
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description.replace("{value}", alert.value),
            "runbook_url": f"{runbooks}{alert.name}.md",
            **runs,
        },
    }


def _file(name: str, rules: list[dict[str, Any]]) -> str:
    group = {"name": name, "rules": rules}
    return HEADER + yaml.safe_dump({"groups": [group]}, sort_keys=False, allow_unicode=True, width=1_000)


def recording_file() -> str:
    """Return the file of the recording rules."""
    return _file("prompt-sidecar-recorded", [{"record": rule.name, "expr": rule.expression} for rule in RECORDED])


def alerts_file(runbooks: str = RUNBOOKS, admin: str = ADMIN) -> str:
    """Return the file of the alerts."""
    return _file("prompt-sidecar-alerts", [_alert(alert, runbooks, admin) for alert in ALERTS])
