"""Dashboards as Grafana reads them: their panels, their variables, and each query as it is sent to Prometheus.

What is written here is what Grafana does between a dashboard's JSON and a query: variables have values, `$name`,
`${name}` and `${name:regex}` stand for them, and `$__rate_interval` and its kin come from the time range.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.harness.components import ROOT
from tests.lab.observe.stack import Prometheus

FOLDER = ROOT / "dashboards"
_LABEL_VALUES = re.compile(r"label_values\((?:(?P<selector>.+),\s*)?(?P<label>\w+)\)")
_REFERENCE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)|\[\[(\w+)\]\]")


@dataclass(frozen=True, slots=True)
class Moment:
    """The time range that a dashboard shows, and how dense its points are. Seconds."""

    start: float
    end: float
    step: float
    scrape_interval: float

    def builtins(self) -> dict[str, str]:
        """What Grafana's own variables say."""
        span = math.ceil(self.end - self.start)
        # Four scrapes, or a point and the scrape before it: https://grafana.com/docs/grafana/latest/datasources/prometheus/
        rate = max(self.step + self.scrape_interval, 4 * self.scrape_interval)
        return {
            "__interval": _duration(self.step),
            "__interval_ms": str(round(self.step * 1000)),
            "__rate_interval": _duration(rate),
            "__range": f"{span}s",
            "__range_s": str(span),
            "__range_ms": str(span * 1000),
        }


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel."""

    ref_id: str
    expression: str
    legend: str
    instant: bool
    format: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its JSON, and its queries."""

    raw: Mapping[str, Any]

    @property
    def title(self) -> str:
        """What stands above it."""
        return str(self.raw.get("title", ""))

    @property
    def targets(self) -> list[Target]:
        """Its queries, without those that are hidden."""
        return [
            Target(
                str(target.get("refId", "A")),
                target["expr"],
                target.get("legendFormat", ""),
                bool(target.get("instant")) and not target.get("range"),
                target.get("format", "time_series"),
            )
            for target in self.raw.get("targets", ())
            if not target.get("hide")
        ]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard."""

    name: str
    """Of its file, without the ending."""
    raw: Mapping[str, Any]

    def panels(self) -> Iterator[Panel]:
        """Its panels and rows; those that a collapsed row holds follow it."""
        for panel in self.raw.get("panels", ()):
            yield Panel(panel)
            for inner in panel.get("panels", ()):
                yield Panel(inner)

    def values(self, prometheus: Prometheus, moment: Moment) -> dict[str, str]:
        """What each variable says when everything is chosen, as Grafana puts it into a query."""
        found = moment.builtins()
        for variable in self.raw.get("templating", {}).get("list", ()):
            found[variable["name"]] = _chosen(variable, found, prometheus, moment)
        return found


def all_dashboards(folder: Path = FOLDER) -> list[Dashboard]:
    """Every dashboard of a folder, by name."""
    return [
        Dashboard(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))
    ]


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Put values for variables; a name that no variable has stays as it is."""
    return _REFERENCE.sub(lambda found: values.get(found[1] or found[2] or found[3], found[0]), text)


def step_for(seconds: float, points: int, scrape_interval: float) -> float:
    """The distance of points over a time range: no more of them than fit, none denser than the scrapes."""
    return max(math.ceil(seconds / points), scrape_interval)


def _chosen(variable: Mapping[str, Any], found: Mapping[str, str], prometheus: Prometheus, moment: Moment) -> str:
    kind = variable["type"]
    if kind == "query":
        if variable.get("includeAll") and variable.get("allValue"):
            return str(variable["allValue"])
        options = _options(variable, found, prometheus, moment)
        several = variable.get("includeAll") or variable.get("multi")
        return f"({'|'.join(map(re.escape, options))})" if several else next(iter(options), "")
    current = variable.get("current", {}).get("value") or variable.get("query", "")
    if isinstance(current, list):
        current = current[0] if current else ""
    return str(current)


def _options(
    variable: Mapping[str, Any], found: Mapping[str, str], prometheus: Prometheus, moment: Moment
) -> list[str]:
    query = variable.get("query") or variable.get("definition", "")
    text = substitute(query["query"] if isinstance(query, Mapping) else query, found)
    asked = _LABEL_VALUES.fullmatch(text.strip())
    if asked is None:
        raise ValueError(f"variable {variable['name']}: only label_values() is understood here, not {text}")
    matching = {"match[]": asked["selector"]} if asked["selector"] else {}
    values: list[str] = prometheus.api(f"label/{asked['label']}/values", start=moment.start, end=moment.end, **matching)
    return values


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms" if seconds % 1 else f"{round(seconds)}s"
