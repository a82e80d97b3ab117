"""What condensing saves and hides, on recorded runs: `python -m tests.lab.condensing`.

Half of the runs are there to choose parameters on (every other one, by name), half to report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from statistics import mean, median

from rich.console import Console
from rich.table import Table

from prompt_sidecar.trim.condense import condensing
from prompt_sidecar.trim.condense.calls import SourceCall
from prompt_sidecar.trim.condense.condensing import REDUCTIONS, Level, condensed
from tests.lab.condensing.measuring import Condense, Figures, Material
from tests.lab.evidence.core import weigh_text
from tests.lab.evidence.recordings import paths, recorded
from tests.oracle.data import ENVIRONMENT

WIDTH = 180
FETCH_TOOLS = ("WebFetch", "web_fetch")
HALVES = {"choose": slice(0, None, 2), "report": slice(1, None, 2), "all": slice(None)}
PUBLISHED: Mapping[str, tuple[float, float]] = {
    "codes": (3.1, 0),
    "overwritten": (1.7, 0),
    "identical_lines": (0.04, 0),
    "rows": (0.4, 0),
    "grep": (2.2, 0.01),
    "prefix": (1.0, 0),
    "passed_tests": (2.3, 0.1),
    "padding": (1.7, 0),
    "long_output": (1.6, 0.04),
    "page": (2.7, 0),
    "safe": (10.3, 0.11),
    "full": (13.6, 0.14),
}
"""Saved and hidden, in per cent, by the first program for this, on 27 runs, 18 of which are not among the recorded."""

PROTOTYPE: Mapping[str, tuple[float, float, float]] = {
    "codes": (4.29, 0.0, 0.0),
    "overwritten": (0.05, 0.0, 0.0),
    "rows": (1.11, 0.0, 0.0),
    "grep": (1.79, 0.0, 0.018),
    "identical_lines": (0.0, 0.0, 0.0),
    "passed_tests": (0.47, 0.0, 0.028),
    "prefix": (0.42, 0.0, 0.0),
    "padding": (0.67, 0.0, 0.0),
    "long_output": (4.39, 0.0, 0.381),
    "safe": (8.08, 3.04, 0.046),
    "full": (10.32, 6.67, 0.412),
}
"""Saved, mean and median, and hidden by the same program on the eleven recorded runs, in per cent, by this measure."""
RECORDED = frozenset(
    {
        *("cc-entire-cli", "cc-entire-graph", "claude-code-large", "codex-agentv3", "codex-external-agents"),
        *("codex-git-sync", "erdos-formalization", "pi-large", "swe-pandas-53652", "swe-pandas-53856"),
        "tau-airline-0",
    }
)
"""The eleven runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; the exit code judges no figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.condensing", description=__doc__)
    parser.add_argument("--half", choices=HALVES, default="report", help="which runs (default: report)")
    parser.add_argument("--runs", action="store_true", help="print what each run saves too")
    asked = parser.parse_args(arguments)
    names = sorted(paths())[HALVES[asked.half]]
    if not names:
        print(f"no recorded runs found; {ENVIRONMENT} names the folder that holds them", file=sys.stderr)
        return 2
    materials = [Material(recorded(paths()[name])) for name in names]
    found = {name: [material.measure(way) for material in materials] for name, way in ways().items()}
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(table(found))
    if asked.runs:
        console.print(run_table(found))
    return 0


def ways() -> Mapping[str, Condense]:
    """Each reduction alone, then the levels."""
    alone = {reduction.name: _alone(reduction) for reduction in REDUCTIONS}
    return alone | {level.name.lower(): _level(level) for level in Level}


def _level(level: Level) -> Condense:
    def condense(text: str, call: SourceCall) -> str | None:
        made = condensed(text, call, level, weigh_text, fetch_tools=FETCH_TOOLS)
        return made.text if made else None

    return condense


def _alone(reduction: condensing.Reduction) -> Condense:
    def condense(text: str, call: SourceCall) -> str | None:
        made = condensed(text, call, Level.FULL, weigh_text, fetch_tools=FETCH_TOOLS, reductions=[reduction])
        return made.text if made else None

    return condense


def table(found: Mapping[str, Sequence[Figures]]) -> Table:
    """What each way saves and hides, over all runs."""
    made = Table(title=f"{len(next(iter(found.values())))} runs; per cent")
    headings = ["", "results changed", "saved: mean", "median", "greatest", "27 runs", "hidden", "27 runs", "bill"]
    is_measured = {one.run for one in next(iter(found.values()))} == RECORDED
    headings += ["prototype: mean", "median", "hidden"] if is_measured else []
    for heading in (*headings, "edits harmed", "µs a kB changed", "of the rest"):
        made.add_column(heading, justify="right" if heading else "left")
    for name, runs in found.items():
        shares = [100 * one.share for one in runs]
        published = PUBLISHED.get(name)
        made.add_row(
            name,
            f"{sum(one.changed for one in runs)} of {sum(one.results for one in runs)}",
            f"{mean(shares):.2f}",
            f"{median(shares):.2f}",
            f"{max(shares):.1f}",
            str(published[0]) if published else "",
            f"{100 * mean(one.hidden for one in runs):.3f}",
            str(published[1]) if published else "",
            f"{100 * mean(one.bill for one in runs):.1f}",
            *(map(str, PROTOTYPE.get(name, ("", "", ""))) if is_measured else ()),
            f"{sum(one.harmed for one in runs)} of {sum(one.edits for one in runs)}",
            *(_speed(runs, changed=changed) for changed in (True, False)),
        )
    return made


def _speed(runs: Sequence[Figures], *, changed: bool) -> str:
    """Microseconds a thousand characters."""
    characters = sum(one.characters[changed] for one in runs)
    return f"{1e9 * sum(one.seconds[changed] for one in runs) / characters:.1f}" if characters else ""


def run_table(found: Mapping[str, Sequence[Figures]]) -> Table:
    """What each way saves of each run."""
    made = Table(title="saved, per cent of the tokens of results; hidden in brackets")
    made.add_column("")
    for name in found:
        made.add_column(name, justify="right")
    for place, run in enumerate(next(iter(found.values()))):
        made.add_row(run.run, *(_cell(runs[place]) for runs in found.values()))
    return made


def _cell(one: Figures) -> str:
    if not one.changed:
        return ""
    return f"{100 * one.share:.1f}" + (f" ({100 * one.hidden:.2f})" if one.hidden else "")


if __name__ == "__main__":
    sys.exit(main())
