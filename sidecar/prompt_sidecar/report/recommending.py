"""What a report recommends: a limit for the runs of each model, as lines for the settings file.

Of the limits that were tried the largest is recommended that saves `WORTH` of the bill and keeps every prompt of these
runs within it: a smaller one saves more and hides more. Where none saves as much, the settings stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from prompt_sidecar.report.figures import Recommended, RunFigures, Setting

WORTH: Final = 0.1
"""Share of the bill that a limit must save; a smaller one would hide text for little."""


def recommended(runs: Sequence[RunFigures]) -> list[Recommended]:
    """Return a limit for each model, the one with the largest bill first; models that no file names are left out."""
    by_model: dict[str, list[RunFigures]] = {}
    for run in runs:
        if run.model and run.settings:
            by_model.setdefault(run.model, []).append(run)
    made = [_of_model(model, found) for model, found in by_model.items()]
    return sorted(made, key=lambda one: -(one.bill or 0.0))


def _of_model(model: str, runs: Sequence[RunFigures]) -> Recommended:
    limits = sorted({one.limit for run in runs for one in run.settings if not one.whole_window}, reverse=True)
    for limit in limits:
        # A run that never comes near a limit was not tried with it: it stays as it is.
        chosen = [min(run.settings, key=lambda one: abs(one.limit - limit)) for run in runs]
        tried = [
            one if one.limit == limit else max(run.settings, key=_limit) for one, run in zip(chosen, runs, strict=True)
        ]
        made = _sums(model, runs, tried, limit)
        if made.share <= 1 - WORTH and not any(one.cost.over_limit for one in tried):
            return made
    return _sums(model, runs, [max(run.settings, key=_limit) for run in runs], 0)


def _limit(setting: Setting) -> int:
    return setting.limit


def _sums(model: str, runs: Sequence[RunFigures], tried: Sequence[Setting], limit: int) -> Recommended:
    bills = [run.never.comparable_money for run in runs if run.never.comparable_money is not None]
    bill = sum(bills) if bills else None
    weights = [run.never.comparable_money or run.never.comparable_cost for run in runs]
    spent = sum(one.share * weight for one, weight in zip(tried, weights, strict=True))
    share = spent / sum(weights) if sum(weights) else 1.0
    sent = [run.never.tokens for run in runs]
    seen = sum(one.visible * tokens for one, tokens in zip(tried, sent, strict=True))
    return Recommended(
        model=model,
        lines=[f"[models.{json.dumps(model, ensure_ascii=False)}]", f"window = {limit:_}"] if limit else [],
        limit=limit,
        runs=len(runs),
        bill=bill,
        saved=None if bill is None or not limit else bill * (1 - share),
        share=share,
        hidden=1 - seen / sum(sent) if sum(sent) else 0.0,
        currency=runs[0].currency,
    )


def sentence(one: Recommended) -> str:
    """Say what a recommendation saves and hides."""
    of = f"{one.runs} runs" if one.runs > 1 else "this run"
    if not one.lines:
        return f"{one.model}: leave the limit as it is; no smaller one that was tried saves a tenth of the bill of {of}"
    money = "" if one.saved is None or one.bill is None else f" ({one.saved:,.2f} of {one.bill:,.2f} {one.currency})"
    return (
        f"{one.model}: saves an estimated {1 - one.share:.0%} of the bill of {of}{money}, and hides {one.hidden:.0%} "
        "of the tokens that were sent; docs/evidence.md has what is needed of what is hidden"
    )
