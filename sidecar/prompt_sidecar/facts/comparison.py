"""What prompts cost as they were returned, next to what they would have cost had nothing ever been trimmed.

Without the sidecar the provider's cache has what the untrimmed prompt before began with as well, so never trimming pays
again only where the agent itself changed its history. What an agent that goes on from trimmed prompts would have sent
follows from the run's history. A prompt larger than the model's window would have been refused:
it is no saving not to have sent it, so it is on neither side. A call that only brings answers of the sidecar's own
tools would not have been made: it is on the sidecar's side alone, and in later prompts what they answered.

A prompt that is sent again before there is a report on it counts once: as far as is known the provider did not answer
it before. A prompt counts by estimates until the agent reports what the provider counted of it; from then on by the
report, on both sides (`engine/runs/comparing.py`). Once it is reported that its provider failed it does not count,
until it is sent again or what it took is reported after all. The model's answers are on neither side, as they are the
same on both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from prompt_sidecar.guard.ceilings import DECIMALS


class Comparability(StrEnum):
    """How a prompt is compared."""

    COMPARED = "compared"
    REFUSED = "refused"
    """Untrimmed it is larger than the model's window."""
    RECALL = "recall"
    """It brings answers of the sidecar's own tools, and no other results."""
    FAILED = "failed"
    """Its provider failed or gave no answer: it is on neither side, and not counted."""


NEITHER_SIDE: Final = frozenset({Comparability.REFUSED, Comparability.FAILED})


@dataclass(frozen=True, slots=True)
class Bill:
    """What prompts count for on one side."""

    kept: int = 0
    """Tokens that the prompt before began with as well."""
    new: int = 0
    cost: float = 0.0
    """By the prices of its model, without the model's answers; 0 where the model has none."""

    def plus(self, other: Bill, times: int = 1) -> Bill:
        """Both together; -1 times: this one without the other, which is a part of it."""
        cost = round(self.cost + times * other.cost, DECIMALS)
        return Bill(self.kept + times * other.kept, self.new + times * other.new, cost)


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt, in tokens as the provider counts them."""

    how: Comparability
    returned: Bill
    untrimmed: Bill

    @property
    def sides(self) -> tuple[Bill, Bill]:
        """What it adds to the returned prompts and to the untrimmed ones."""
        if self.how in NEITHER_SIDE:
            return Bill(), Bill()
        return self.returned, self.untrimmed


@dataclass(frozen=True, slots=True)
class Recount:
    """What a report changes of one prompt."""

    estimated: Compared
    """As it was counted until then."""
    reported: Compared
    counted: bool = True
    """Whether `reported` is by what the provider counted; else it is an estimate again, of a prompt that failed first.
    """


@dataclass(frozen=True, slots=True)
class Comparison:
    """The prompts of a run."""

    prompts: int = 0
    """Compared, those for recall included."""
    refused: int = 0
    """Larger than the window untrimmed, and on neither side."""
    recalls: int = 0
    returned: Bill = Bill()
    untrimmed: Bill = Bill()
    reported: int = 0
    """Of `prompts`, those that count by what the provider counted."""

    def and_then(self, later: Comparison) -> Comparison:
        """Both together."""
        return Comparison(
            self.prompts + later.prompts,
            self.refused + later.refused,
            self.recalls + later.recalls,
            self.returned.plus(later.returned),
            self.untrimmed.plus(later.untrimmed),
            self.reported + later.reported,
        )

    def plus(self, one: Compared, times: int = 1) -> Comparison:
        """With one prompt more; -1 times: without one of them."""
        if one.how is Comparability.FAILED:
            return self
        returned, untrimmed = one.sides
        refused = one.how is Comparability.REFUSED
        return replace(
            self,
            prompts=self.prompts + times * (not refused),
            refused=self.refused + times * refused,
            recalls=self.recalls + times * (one.how is Comparability.RECALL),
            returned=self.returned.plus(returned, times),
            untrimmed=self.untrimmed.plus(untrimmed, times),
        )

    def recounted(self, recount: Recount) -> Comparison:
        """With what a report says in place of the estimate for the same prompt."""
        now = recount.reported
        compared = self.plus(recount.estimated, -1).plus(now)
        return replace(compared, reported=self.reported + (recount.counted and now.how not in NEITHER_SIDE))
