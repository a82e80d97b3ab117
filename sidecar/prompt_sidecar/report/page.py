"""A report's page: HTML that loads nothing from elsewhere, and runs only its own script.

Its charts are drawn in the browser by Vega-Lite, which is part of the page. A strict content security policy names the
page's one script and one style by their digests, so that no script from a transcript can run; and everything from a
transcript is escaped where it is written.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import vl_convert
from jinja2 import Environment, StrictUndefined

from prompt_sidecar.facts.money import OWN_CURRENCY
from prompt_sidecar.report import charts
from prompt_sidecar.report.figures import Report, ReportedRun, weighed
from prompt_sidecar.report.recommending import sentences
from prompt_sidecar.report.strategies import Cost

DETAILED: Final = 40
"""The most expensive runs, which have charts of their own: with these a page of 200 runs has some 3 MB."""
MOST_CUT_ROWS: Final = 25
"""Rows of a run's table of cuts, the largest."""
MOST_SKIPPED: Final = 50
NAME_CHARACTERS: Final = 80
NEVER: Final = "never trimming"
CONTROL: Final = "plain control"


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A strategy's line in a table."""

    name: str
    tokens: int
    cost: float
    share: float
    over_limit: int
    refused: int
    cuts: int
    money: float | None


def page(report: Report) -> str:
    """Return the report as HTML."""
    drawn: list[charts.Spec] = []

    def chart(spec: charts.Spec) -> int:
        drawn.append(spec)
        return len(drawn) - 1

    totals = _totals(report.runs)
    script = f"{_bundle()}\n{_asset('page.js')}"
    style = _asset("page.css")
    priced = any(run.never.money is not None for run in report.runs)
    made: str = _template().render(
        policy=f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        report=report,
        first=report.asked.presets[0],
        totals=totals,
        refused=sum(run.never.refused for run in report.runs),
        priced=priced,
        currency="" if not report.runs or report.runs[0].currency == OWN_CURRENCY else report.runs[0].currency,
        bill=sum(run.counted.money or 0.0 for run in report.runs if run.counted is not None),
        unfit=sum(not run.fits for run in report.runs),
        dearer=sum(run.control_share < run.presets[0].share for run in report.runs),
        recommended=[(one, sentences(one)) for one in report.recommended],
        mixed=priced and any(run.never.money is None for run in report.runs),
        total_chart=chart(charts.shares([(row.name, row.share) for row in totals[1:]])),
        tools_chart=chart(charts.tools(report.tools)) if report.tools else -1,
        details=[
            {
                "run": run,
                "rows": _rows(run),
                "curve": chart(charts.curve(run)),
                "cuts": chart(charts.cuts(run)) if run.cuts else -1,
                "largest_cuts": sorted(run.cuts, key=lambda cut: -cut.tokens)[:MOST_CUT_ROWS],
                "refused_after": next((turn.turn for turn in run.turns if turn.refused), 0),
            }
            for run in report.runs[:DETAILED]
        ],
        skipped=report.skipped[:MOST_SKIPPED],
        charts=drawn,
    )
    return made


def _rows(run: ReportedRun) -> list[StrategyRow]:
    return [
        _row(NEVER, run.never, run.never),
        _row(CONTROL, run.control, run.never),
        *(_row(one.preset, one.cost, run.never) for one in run.presets),
    ]


def _row(name: str, cost: Cost, untrimmed: Cost) -> StrategyRow:
    share = cost.share_of(untrimmed)
    return StrategyRow(name, cost.tokens, cost.cost, share, cost.over_limit, cost.refused, cost.cuts, cost.money)


def _totals(runs: Sequence[ReportedRun]) -> list[StrategyRow]:
    """Return all runs together, by strategy."""
    together = [_rows(run) for run in runs]
    weights = weighed(runs)
    made: list[StrategyRow] = []
    for place, first in enumerate(together[0] if together else ()):
        rows = [one[place] for one in together]
        spent = sum(row.share * weight for row, weight in zip(rows, weights, strict=True))
        paid = [row.money for row in rows if row.money is not None]
        made.append(
            StrategyRow(
                name=first.name,
                tokens=sum(row.tokens for row in rows),
                cost=sum(row.cost for row in rows),
                share=spent / sum(weights) if sum(weights) else 1.0,
                over_limit=sum(row.over_limit for row in rows),
                refused=sum(row.refused for row in rows),
                cuts=sum(row.cuts for row in rows),
                money=sum(paid) if paid else None,
            )
        )
    return made


@cache
def _bundle() -> str:
    """Return Vega-Lite, and the code that draws with it, as one script."""
    script = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # the stub does not have its default
    # Neither contains it today; an update that does would end the page's script early.
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters: Mapping[str, Any] = {"count": _count, "share": _share, "money": _money, "short": _short, "cost": _cost}
    environment.filters |= filters
    return environment.from_string(_asset("page.html.jinja"))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _cost(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:,.1f}"


def _share(number: float) -> str:
    return f"{number:.0%}"


def _money(number: float | None) -> str:
    return "–" if number is None else f"{number:,.2f}"


def _short(text: str) -> str:
    """Return a text from a file, shortened, without invisible characters and those that change text direction."""
    plain = "".join(character if character.isprintable() else "�" for character in text)
    return plain if len(plain) <= NAME_CHARACTERS else plain[: NAME_CHARACTERS - 1] + "…"
