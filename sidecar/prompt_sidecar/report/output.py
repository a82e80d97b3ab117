"""A report's output in addition to its page: JSON with the same figures, and a short table for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from prompt_sidecar.report.figures import Report, weighed
from prompt_sidecar.report.recommending import sentences

MARK: Final = "prompt_sidecar_report"
"""The first member of a file of figures, by which such a file is recognised; its value is a version number."""
VERSION: Final = 2
"""1 recommended a window for each model; 2 recommends a ceiling for all runs."""
_MOST_LINES: Final = 30
_NAME: Final = 44


def as_json(report: Report) -> str:
    """Return everything that the page shows, and all runs in full, as JSON."""
    return json.dumps({MARK: VERSION, **asdict(report)}, ensure_ascii=False, separators=(",", ":")) + "\n"


def is_figures(path: Path) -> bool:
    """Whether a file was written by `as_json`, and may be overwritten."""
    with path.open("rb") as opened:
        return opened.read(len(MARK) + 4).startswith(f'{{"{MARK}"'.encode())


def table(report: Report) -> Iterator[str]:
    """Yield a line for each run, the most expensive first, and one for all."""
    first = report.asked.presets[0]
    for one in report.recommended:
        yield f"recommended: {sentences(one)}"
        yield from (f"    {line}" for line in one.lines)
    yield f"{'run':<{_NAME}}  calls     limit  never trimming  control  {first}"
    for run in report.runs[:_MOST_LINES]:
        name = "".join(each if each.isprintable() else "?" for each in run.name)
        if len(name) > _NAME:
            name = name[: _NAME - 1] + "…"
        refused = f"  {run.never.refused} refused untrimmed" if run.never.refused else ""
        refused += "" if run.fits else "  NO SETTING FITS"
        yield (
            f"{name:<{_NAME}}  {len(run.turns):>5}  {run.limit:>8,}  {run.never.cost:>14,.0f}"
            f"  {run.control_share:>7.2f}  {run.presets[0].share:>{len(first)}.2f}{refused}"
        )
    if len(report.runs) > _MOST_LINES:
        yield f"and {len(report.runs) - _MOST_LINES} more"
    weights = weighed(report.runs)
    spent = sum(run.presets[0].share * weight for run, weight in zip(report.runs, weights, strict=True))
    plain = sum(run.control_share * weight for run, weight in zip(report.runs, weights, strict=True))
    if sum(weights):
        yield (
            f"all together: {first} costs {spent / sum(weights):.2f} of never trimming, the plain control "
            f"{plain / sum(weights):.2f}"
        )
