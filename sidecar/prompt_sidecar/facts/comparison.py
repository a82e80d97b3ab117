"""What prompts cost as they were returned, next to what they would have cost had nothing ever been trimmed.

Without the sidecar the provider's cache would have the beginning that two successive untrimmed prompts share, so
without trimming the agent pays again only where it changed its history itself. What an agent that continues from
trimmed prompts would have sent follows from the run's history. A prompt larger than the model's window would have been
refused: it is no saving not to have sent it, so it is on neither side. A call whose only new results are answers of the
sidecar's own tools would not have been made: it counts on the sidecar's side alone, as do these answers in later
prompts.

A prompt that is sent again before it was reported counts once: as far as is known the provider did not answer it
before. A prompt counts by estimates until the agent reports the provider's counts; from then on by the report, on both
sides (`engine/runs/comparing.py`). Once a failure of its provider is reported it does not count, until it is sent again
or its counts are reported after all. The model's answers are on neither side, as they are the same on both.
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
    """Untrimmed, the prompt is larger than the model's window."""
    RECALL = "recall"
    """Its only new results are answers of the sidecar's own tools."""
    FAILED = "failed"
    """Its provider failed or gave no answer: it counts on neither side."""


NEITHER_SIDE: Final = frozenset({Comparability.REFUSED, Comparability.FAILED})


@dataclass(frozen=True, slots=True)
class Bill:
    """The sums of prompts on one side."""

    kept: int = 0
    """Tokens that the previous prompt began with too."""
    new: int = 0
    cost: float = 0.0
    """By the prices of the prompt's model, without the model's answers; 0 if the model has no price."""

    def plus(self, other: Bill, times: int = 1) -> Bill:
        """Return the sum of both; `times` -1: the difference."""
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
        """Return what it adds to the sums of returned and of untrimmed prompts."""
        if self.how in NEITHER_SIDE:
            return Bill(), Bill()
        return self.returned, self.untrimmed


@dataclass(frozen=True, slots=True)
class Recount:
    """How a report changes the comparison of one prompt."""

    estimated: Compared
    """How it was counted until then."""
    reported: Compared
    counted: bool = True
    """Whether `reported` has the provider's counts; else it is an estimate again, for a prompt that failed first."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The sums over the prompts of a run."""

    prompts: int = 0
    """Compared prompts, those for recall included."""
    refused: int = 0
    """Prompts larger than the window untrimmed, which count on neither side."""
    recalls: int = 0
    returned: Bill = Bill()
    untrimmed: Bill = Bill()
    reported: int = 0
    """How many of `prompts` have the provider's counts."""

    def and_then(self, later: Comparison) -> Comparison:
        """Return the sum of both."""
        return Comparison(
            self.prompts + later.prompts,
            self.refused + later.refused,
            self.recalls + later.recalls,
            self.returned.plus(later.returned),
            self.untrimmed.plus(later.untrimmed),
            self.reported + later.reported,
        )

    def plus(self, one: Compared, times: int = 1) -> Comparison:
        """Return the sums with one prompt more; `times` -1: without one of the prompts."""
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
        """Return the sums with a report in place of the same prompt's estimate."""
        now = recount.reported
        compared = self.plus(recount.estimated, -1).plus(now)
        return replace(compared, reported=self.reported + (recount.counted and now.how not in NEITHER_SIDE))
