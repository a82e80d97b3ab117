"""The end of the demo: what the run came to in tokens and prices, and what was checked."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from tests.lab.demo.agent import Agent, Exchange
from tests.lab.demo.checks import Check, Findings
from tests.lab.demo.figures import Costs, costs
from tests.lab.demo.script import Notes
from tests.lab.demo.story import story

_COMPLAINTS_SHOWN = 3
"""Complaints shown of one check; a check that fails at every call would fill the screen."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo came to."""

    exchanges: Sequence[Exchange]
    agent: Agent
    notes: Notes
    originals: int
    """Originals of the run that were fetched back."""
    seconds: float


def print_summary(console: Console, outcome: Outcome, found: Findings) -> None:
    """Print it all; what trimming saved is checked here, where it is computed."""
    price = costs(outcome.exchanges)
    found.equal(Check.PRICE, "is cheapest", True, price.sidecar < min(price.untrimmed, price.every_call))
    good, bad = _marks(console.encoding)
    for text in [*_figures(outcome, price), *story(outcome.agent, outcome.exchanges, outcome.notes, good)]:
        console.print(text, markup=False, soft_wrap=True)
    console.print()
    for check in Check:
        complaints = found.complaints[check]
        if complaints:
            console.print(f"{bad} {check}", style="bold red", markup=False, soft_wrap=True)
            for complaint in complaints[:_COMPLAINTS_SHOWN]:
                console.print(f"    {complaint}", markup=False, soft_wrap=True)
            if len(complaints) > _COMPLAINTS_SHOWN:
                console.print(f"    and {len(complaints) - _COMPLAINTS_SHOWN} more")
        elif not found.made[check]:
            console.print(f"{bad} {check}: it was not checked", style="bold red", markup=False, soft_wrap=True)
        else:
            console.print(f"{good} {check}", style="green", markup=False, soft_wrap=True)
    verdict = "all checks passed" if found.passed else "THE DEMO FAILED"
    console.print(f"\n{verdict}: {sum(found.made.values()):,} comparisons", style="bold", markup=False)


def _marks(encoding: str) -> tuple[str, str]:
    """A tick and a cross, in words where they cannot be written."""
    try:
        "✓✗".encode(encoding)
    except UnicodeEncodeError:
        return "ok    ", "FAILED"
    return "✓", "✗"


def _figures(outcome: Outcome, price: Costs) -> Iterator[str]:
    exchanges = outcome.exchanges
    answers = [exchange.answer for exchange in exchanges]
    sent, returned = sum(each.tokens.before for each in answers), sum(each.tokens.after for each in answers)
    own = sum(each.tokens.own_text for each in answers)
    milliseconds = sorted(exchange.seconds * 1_000 for exchange in exchanges)
    yield ""
    yield f"iterations      {len(exchanges)}, in {outcome.seconds:.1f} s with all checks"
    over = sum(not answer.fits for answer in answers)
    limit = answers[0].tokens.limit
    yield f"limit           {limit:,} tokens; over it were {price.over} prompts as sent, {over} as returned"
    yield f"tokens          {sent:,} sent, {returned:,} returned ({returned / sent:.0%}), {own / returned:.1%} own text"
    yield f"batch points    {answers[-1].cache.batch_points}; {outcome.originals} originals taken out, all fetched back"
    yield (
        f"call            {statistics.median(milliseconds):.1f} ms at the median, {milliseconds[-1]:.1f} ms at most, "
        "over gRPC"
    )
    yield "price           0.1 × kept + 1.25 × rewritten tokens, never trimming = 100 %"
    for what, cost in (
        ("this run", price.sidecar),
        ("dropping the oldest to the limit at every call", price.every_call),
        ("dropping them to half of it, in batches, for good", price.control),
    ):
        yield f"                {cost / price.untrimmed:>5.0%}  {what}"
