"""A dashboard as data: rows of panels, each with what it takes to be understood by someone who never read our code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

WIDTH: Final = 24
"""Columns of Grafana's grid."""
GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"
BLUE: Final = "blue"


class Look(StrEnum):
    """How a panel draws its figures."""

    STAT = "stat"
    LINES = "lines"
    STACKED = "stacked"
    BARS = "bars"
    FUNNEL = "funnel"
    """One bar a query, in their order."""


class Unit(StrEnum):
    """Units, by Grafana's ids."""

    COUNT = "short"
    WHOLE = "locale"
    """As COUNT, to the last one: for large figures that stand alone."""
    PER_MINUTE = "cpm"
    """For what an agent does now and then: by the second it would be hundredths."""
    CALLS_PER_SECOND = "reqps"
    SHARE = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    CORES = "suffix: cores"
    TOKENS = "si:tok"
    """`si:` puts Grafana's own prefixes before a word of ours: 1.2 Mtok."""
    TOKENS_PER_SECOND = "si:tok/s"
    AGO = "dateTimeFromNow"


@dataclass(frozen=True, slots=True)
class Query:
    """One query and what its series are called."""

    expression: str
    legend: str
    instant: bool = False
    """One figure for the whole time shown, rather than a line."""
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. What it shows, what to do and what no data means become its description."""

    title: str
    look: Look
    unit: Unit
    queries: tuple[Query, ...]
    shows: str
    bad: str
    """What to do when it looks bad."""
    empty: str
    """What no data means."""
    width: int = 8
    height: int = 8
    thresholds: tuple[tuple[float, str], ...] = ()
    """From which value on which colour; below the first it is the colour of `base`."""
    base: str = GREEN
    decimals: int | None = None
    least: float | None = None
    most: float | None = None
    no_value: str = "idle"
    """What stands where a figure would, if there is none."""
    runs: str = ""
    """How the pages of runs are sorted that a click leads to; by caller or model: those of the series."""
    traces: bool = False
    """Whether a click leads to the slow traces of the same time."""

    def description(self) -> str:
        """Return the text behind the panel's i."""
        return f"{self.shows}\n\n**If it looks bad:** {self.bad}\n\n**No data:** {self.empty}"


@dataclass(frozen=True, slots=True)
class Row:
    """A titled stretch of panels; they fill lines of the grid from left to right, without gaps."""

    title: str
    panels: tuple[Panel, ...]

    def lines(self) -> list[tuple[Panel, ...]]:
        """Return the panels line by line.

        Raises:
            ValueError: If a line is not filled, or its panels differ in height: Grafana would show a gap.
        """
        lines: list[tuple[Panel, ...]] = []
        line: tuple[Panel, ...] = ()
        for panel in self.panels:
            line = (*line, panel)
            width = sum(each.width for each in line)
            if width > WIDTH or {each.height for each in line} != {panel.height}:
                raise ValueError(f"row {self.title!r}: panel {panel.title!r} does not fit its line")
            if width == WIDTH:
                lines.append(line)
                line = ()
        if line:
            raise ValueError(f"row {self.title!r}: the last line ends at column {sum(each.width for each in line)}")
        return lines


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    prices: bool = False
    """Whether it has the prices of cached and rewritten tokens as variables."""
    grouped: bool = False
    """Whether it has a variable that chooses the attribute by which sidecars are grouped."""
    name: str = ""
    """Of the file, without `.json`."""

    def panels(self) -> list[Panel]:
        """Return all panels."""
        return [panel for row in self.rows for panel in row.panels]
