"""From prompts to figures: what a strategy's prompts cost, and what is left in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from tests.lab.peers.contenders import Outcome
from tests.lab.peers.material import Material, Turn
from tests.oracle.baselines import cost, kept_prefix
from tests.oracle.runs import Run
from tests.oracle.validity import Kind, defects, new_defects, refused

PAIRING = frozenset({Kind.ORPHANED_RESULT, Kind.MISPLACED_RESULT, Kind.DUPLICATE_RESULT, Kind.UNANSWERED_CALL})
"""What a provider refuses a prompt for when calls and results no longer belong together."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One row of the table."""

    sent: int
    """Tokens of all prompts."""
    cost: float
    """In prices of one plain token: 0.1 for each of a kept prefix, 1.25 for each other."""
    kept: float
    """Share of the prompts' tokens that the next prompt begins with."""
    over: int
    """Prompts over the budget."""
    unavoidable: int
    """Of those, the ones whose system prompt, opening and newest turn alone are over it."""
    pairing: int
    """Prompts in which calls and results do not belong together and did in the sent prompt."""
    refused: int
    """Prompts with any new defect for which the format's provider refuses them, pairing among them."""
    verbatim: float
    """Share of the tool results' characters that a prompt shows, averaged over the prompts."""
    recallable: float | None
    """See Outcome."""
    task: bool
    """Whether every prompt has the first user message as it was sent."""
    p50: float | None
    """Seconds of a call; None: there is none."""

    @property
    def sound(self) -> bool:
        """Whether no prompt is over the budget that need not be, and none has a new defect."""
        return self.over <= self.unavoidable and not self.refused


def figures(outcome: Outcome, material: Material, budget: int) -> Figures:
    """Measure an outcome."""
    made = outcome.turns
    entries = [material.entries(turn) for turn in made]
    totals = [material.tokens(turn) for turn in made]
    kept = sum(_tokens(new[: kept_prefix(old, new)]) for old, new in pairwise(entries))
    before = sum(_tokens(turn) for turn in entries[:-1])
    shown = [material.verbatim(turn, length) for turn, length in zip(made, material.lengths, strict=True)]
    over = [place for place, tokens in enumerate(totals) if tokens > budget]
    fresh = [
        fresh_kinds(material.run, length, material.messages(turn))
        for turn, length in zip(made, material.lengths, strict=True)
    ]
    return Figures(
        sent=sum(totals),
        cost=cost(entries),
        kept=kept / before if before else 1.0,
        over=len(over),
        unavoidable=sum(least(material, material.lengths[place]) > budget for place in over),
        pairing=sum(bool(kinds & PAIRING) for kinds in fresh),
        refused=sum(bool(kinds) for kinds in fresh),
        verbatim=fmean(found) if (found := [share for share in shown if share is not None]) else 1.0,
        recallable=outcome.recallable,
        task=all(material.first_user in turn for turn in made),
        p50=median(outcome.seconds) if outcome.seconds else None,
    )


def fresh_kinds(run: Run, length: int, messages: Sequence[Any]) -> set[Kind]:
    """Return the kinds of defects of a prompt that the first `length` messages of the run do not have."""
    shown = {"messages": list(messages)}
    if not refused(defects(run.format, shown)):
        return set()
    fresh = new_defects(run.format, {"messages": list(run.messages[:length])}, shown)
    return {defect.kind for defect in refused(fresh)}


def least(material: Material, length: int) -> int:
    """Return the tokens of the system prompt, the opening and the newest group: what no strategy should touch."""
    digests: Turn = material.sent(length)
    opens = [place for place, message in enumerate(material.sized(length)) if message.opens]
    return material.tokens(digests[: opens[0]] + digests[opens[-1] :] if opens else digests)


def _tokens(entries: Sequence[tuple[bytes, int]]) -> int:
    return sum(tokens for _, tokens in entries)
