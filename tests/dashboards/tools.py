"""Prometheus's own checker, found or fetched; and the files that stand in the repository."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOME = ROOT / "dashboards"
RULES = tuple(sorted((HOME / "rules").glob("*.yaml")))
RULE_TESTS = tuple(sorted((HOME / "rules" / "tests").glob("*.yaml")))


@cache
def _found() -> tuple[str, str]:
    """Return promtool's path, or nothing and the reason."""
    try:
        done = subprocess.run([ROOT / ".ci" / "promtool"], capture_output=True, text=True, check=False)
    except OSError as error:
        return "", str(error)
    return done.stdout.strip(), done.stderr.strip()


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool; skip the test where it cannot be had. In CI that is a failure."""
    path, reason = _found()
    if not path and os.environ.get("CI"):
        pytest.fail(reason)
    if not path:
        pytest.skip(reason)
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)


def boards() -> dict[str, dict[str, Any]]:
    """Return every dashboard of the repository, by the name of its file."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(HOME.glob("*.json"))}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a dashboard's panels, without its rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    """Return every rule of the repository."""
    files = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULES)
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]
