"""The rules as a PrometheusRule, for the Prometheus operator."""

from __future__ import annotations

import yaml

from dashboards.generate.render import ADMIN
from dashboards.generate.rules import HEADER, RUNBOOKS, alerts_file, recording_file


def prometheus_rule(runbooks: str = RUNBOOKS, admin: str = ADMIN) -> str:
    """Return the manifest, with the groups of both files of rules."""
    groups = [
        group for text in (recording_file(), alerts_file(runbooks, admin)) for group in yaml.safe_load(text)["groups"]
    ]
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "prompt-sidecar", "labels": {"app.kubernetes.io/name": "prompt-sidecar"}},
        "spec": {"groups": groups},
    }
    return HEADER + yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=1_000)
