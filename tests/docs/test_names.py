"""Paths, settings and metrics that documents and panels name are there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from dashboards.generate.__main__ import BOARDS
from prompt_sidecar.telemetry.catalog import BOUNDS, CATALOG
from tests.docs.pages import PAGES, ROOT
from tests.telemetry.watched import scraped_name

SECTIONS = (
    "admin",
    "ceilings",
    "envoy",
    "guard",
    "http",
    "limits",
    "log",
    "policy",
    "recall",
    "search",
    "server",
    "store",
    "telemetry",
    "tokens",
)
PACKAGE = ROOT / "sidecar" / "prompt_sidecar"
HISTORY = "CHANGELOG.md"
"""It names what was."""
MADE = {".venv", ".cache", "dist"}
"""Folders that make makes."""
FILE = re.compile(r"(?:[\w.-]+/)+(?:[\w.-]+\.(?:py|proto|md|toml|yaml|json|cc|go|ts|java))?|\w+\.py")
SETTING = re.compile(rf"(?:{'|'.join(sorted(SECTIONS))})\.[a-z_]+")
METRIC = re.compile(r"\bprompt_sidecar_[a-z_]+\b")
NO_SETTINGS = {
    "tokens.ceiling",
    "tokens.window_assumed",
    "search.outcome",
    "guard.calls",
    "server.address",
    "server.port",
}
"""Fields of the answer, and attributes of spans."""
SUFFIXES = ("_bucket", "_count", "_sum")


@cache
def settings() -> set[str]:
    """Every setting, as section and name: what `check-config` prints."""
    command = [sys.executable, "-m", "prompt_sidecar", "check-config"]
    printed = tomllib.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert set() == {name for name, value in printed.items() if isinstance(value, dict)} - set(SECTIONS)
    return {f"{section}.{name}" for section in SECTIONS for name in printed[section]}


pages = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != HISTORY], ids=lambda page: page.relative_to(ROOT).as_posix()
)


def spans(page: Path) -> list[str]:
    """What stands between backticks in a page, blocks of code left out."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8")))


@pages
def test_paths_exist(page: Path) -> None:
    """In the repository or, as ARCHITECTURE.md names them, in the package; a lone file's name anywhere in it."""
    named = {span for span in spans(page) if FILE.fullmatch(span) and span.split("/")[0] not in MADE}
    known = {path.name for path in [*PACKAGE.rglob("*.py"), *(ROOT / "deploy").rglob("*.py")]}
    assert set() == {
        name
        for name in named
        if not any((base / name).exists() for base in (ROOT, PACKAGE, page.parent))
        and not ("/" not in name and name in known)
    }


@pages
def test_settings_exist(page: Path) -> None:
    """As section and name; a bound of the metric's label may be no setting."""
    named = {span.split("=")[0].strip() for span in spans(page) if SETTING.fullmatch(span.split("=")[0].strip())}
    assert set() == named - settings() - set(BOUNDS) - NO_SETTINGS


@pages
def test_metrics_exist(page: Path) -> None:
    """With the suffixes that Prometheus adds to histograms."""
    scraped = {scraped_name(metric) for metric in CATALOG}
    known = scraped | {name + suffix for name in scraped for suffix in SUFFIXES} | {"prompt_sidecar_data"}
    named = set(METRIC.findall(" ".join(spans(page))))
    assert set() == {name for name in named if name.rstrip("_") not in known}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_panels_name_settings_that_exist(board: object) -> None:
    """A panel that says what to raise says it by the setting's name."""
    dotted = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", repr(board)))
    assert set() == dotted - settings() - set(BOUNDS)
