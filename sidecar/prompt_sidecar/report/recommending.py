"""What a report recommends: a ceiling for all runs that were measured, as lines for the settings file.

A smaller ceiling saves more and hides more. Candidates save `WORTH` of the bill and hide no more than `MOST_HIDDEN` of
the tokens; the largest of those that save `MOST` of the best candidate's saving is recommended. If there is none, the
settings stay unchanged. Condensing is recommended separately, by its saving beyond what the settings condense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from prompt_sidecar.report.figures import Recommended, ReportedRun, TriedSetting, weighed
from prompt_sidecar.trim.policy import AUTO_FROM, AUTO_TOKENS

WORTH: Final = 0.1
"""Share of the bill that a ceiling must save; a smaller saving would hide text for little."""
MOST: Final = 0.5
"""Share of the greatest saving that a ceiling must reach: the remainder is not worth the text that would be hidden."""
MOST_HIDDEN: Final = 0.5
"""Share of the tokens of a report's runs that a ceiling may hide: with more, a model sees less than half. On recorded
runs the evidence that the next step needs is then hidden too (docs/when-to-cut.md)."""
CONDENSE_WORTH: Final = 0.05
"""Share of the bill that condensing must save."""

Choice = Callable[[TriedSetting], bool]


def recommended(runs: Sequence[ReportedRun], *, ignored: bool = False) -> list[Recommended]:
    """Return the settings for these runs: a ceiling or none first, then condensing if it is worth it.

    Args:
        runs: the measured runs.
        ignored: whether no ceiling was tried, as the preset ignores them.
    """
    tried = [run for run in runs if run.settings]
    if not tried:
        return []
    return [replace(_ceiling(tried), ignored=ignored), *_condensing(tried)]


def _ceiling(runs: Sequence[ReportedRun]) -> Recommended:
    sizes = sorted({one.ceiling for run in runs for one in run.settings if one.ceiling}, reverse=True)
    made = [_sums(runs, [_with_ceiling(run, size) for run in runs], ceiling=size) for size in sizes]
    worth = [one for one in made if 1 - one.share >= WORTH]
    shown = [one for one in worth if one.hidden <= MOST_HIDDEN]
    if not shown:
        return replace(_sums(runs, [_as_set(run) for run in runs]), smaller=worth[0] if worth else None)
    best = min(one.share for one in shown)
    chosen = next(one for one in shown if 1 - one.share >= MOST * (1 - best))
    after = made[made.index(chosen) + 1 :][:1]
    return replace(chosen, smaller=after[0] if after and after[0].share < chosen.share else None)


def _with_ceiling(run: ReportedRun, ceiling: int) -> TriedSetting:
    """Return the result with a ceiling; a run that never comes near it was not tried with it, and stays unchanged."""
    return next((one for one in run.settings if one.ceiling == ceiling), _as_set(run))


def _as_set(run: ReportedRun) -> TriedSetting:
    """Return the result with the model's own limit; a short run with an unknown window is as good as never trimmed."""
    found = (one for one in run.settings if one.whole_window and not (one.ceiling or one.condense))
    return next(found, TriedSetting(0, True, run.never, share=1.0, control_share=1.0, visible=1.0))


def _condensing(runs: Sequence[ReportedRun]) -> Iterator[Recommended]:
    """Yield the level that hides least among those that are worth it."""
    now = _sums(runs, [_as_set(run) for run in runs])
    for level in dict.fromkeys(one.condense for run in runs for one in run.settings if one.condense):
        chosen = [next((one for one in run.settings if one.condense == level), _as_set(run)) for run in runs]
        made = _sums(runs, chosen, condense=level)
        if now.share - made.share >= CONDENSE_WORTH:
            yield replace(
                made,
                saved=None if made.bill is None else made.bill * (now.share - made.share),
                share=1 - (now.share - made.share),
                hidden=max(0.0, made.hidden - now.hidden),
            )
            return


def _sums(
    runs: Sequence[ReportedRun], chosen: Sequence[TriedSetting], *, ceiling: int = 0, condense: str = ""
) -> Recommended:
    bills = [run.never.comparable_money for run in runs]
    priced = [(bill, one) for bill, one in zip(bills, chosen, strict=True) if bill is not None]
    weights = weighed(runs)
    whole = sum(weights) or 1.0
    sent = [run.never.tokens for run in runs]
    seen = sum(one.visible * tokens for one, tokens in zip(chosen, sent, strict=True))
    set_to = {"ceiling_tokens": _ceiling_value(runs, ceiling), "condense": condense and f'"{condense}"'}
    lines = [f"{name} = {value}" for name, value in set_to.items() if value]
    return Recommended(
        lines=["[policy]", *lines] if lines else [],
        ceiling=ceiling,
        condense=condense,
        runs=len(runs),
        bill=sum(bill for bill, _ in priced) if priced else None,
        saved=sum(bill * (1 - one.share) for bill, one in priced) if priced and lines else None,
        share=sum(one.share * weight for one, weight in zip(chosen, weights, strict=True)) / whole,
        control_share=sum(one.control_share * weight for one, weight in zip(chosen, weights, strict=True)) / whole,
        hidden=max(0.0, 1 - seen / sum(sent)) if sum(sent) else 0.0,
        currency=runs[0].currency,
    )


def _ceiling_value(runs: Sequence[ReportedRun], ceiling: int) -> str:
    """Return the value for the settings file: `auto` if that is the same for all of these runs."""
    if not ceiling:
        return ""
    same = ceiling == AUTO_TOKENS and all(run.window >= AUTO_FROM for run in runs)
    return '"auto"' if same else f"{ceiling:_}"


def sentences(one: Recommended) -> str:
    """Return what a recommendation saves and hides, and what the next smaller ceiling would, in sentences."""
    of = f"{one.runs} runs" if one.runs > 1 else "this run"
    if one.ignored:
        return "no ceiling was tried: the preset ignores it. Replay with --preset cache_first to see what one saves"
    if not one.lines and one.smaller is None:
        return f"leave the settings as they are; no ceiling that was tried saves a tenth of the bill of {of}"
    if not one.lines:
        return f"leave the settings as they are; {_would(one)}, which is more than half"
    money = "" if one.saved is None or one.bill is None else f" ({one.saved:,.2f} of {one.bill:,.2f} {one.currency})"
    saves = f"saves an estimated {1 - one.share:.0%} of the bill of {of}{money} and hides {one.hidden:.0%} of the "
    if one.condense:
        return (
            f"condensing {saves}tokens that were sent, in addition to what is set now. It hides what no later call "
            "shows again, within reach of recall"
        )
    text = (
        f"a ceiling of {one.ceiling:,} tokens {saves}tokens that were sent, within reach of recall. The plain control "
        f"at this size saves {1 - one.control_share:.0%}, and what it drops is lost"
    )
    if one.smaller is not None:
        text += f". {_would(one)}: the more is hidden, the more often a model has to search or to read again"
    return text


def _would(one: Recommended) -> str:
    """Return what the next smaller ceiling would do; empty if there is none."""
    smaller = one.smaller
    if smaller is None:
        return ""
    return f"{smaller.ceiling:,} would save {1 - smaller.share:.0%} and hide {smaller.hidden:.0%}"
