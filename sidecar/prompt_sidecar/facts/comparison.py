"""What prompts cost as they were returned, next to what they would have cost had nothing ever been trimmed.

Without the sidecar the provider's cache has what the untrimmed prompt before began with as well, so never trimming pays
again only where the agent itself changed its history. What an agent that goes on from trimmed prompts would have sent
follows from the run's history. A prompt larger than the model's window would have been refused:
it is no saving not to have sent it, so it is on neither side. A call that only brings answers of the sidecar's own
tools would not have been made: it is on the sidecar's side alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Comparability(StrEnum):
    """How a prompt is compared."""

    COMPARED = "compared"
    REFUSED = "refused"
    """Untrimmed it is larger than the model's window."""
    RECALL = "recall"
    """It brings answers of the sidecar's own tools, and no other results."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What prompts count for on one side."""

    kept: int = 0
    """Tokens that the prompt before began with as well."""
    new: int = 0
    cost: float = 0.0
    """By the configured prices, without the model's answers; 0 where the model has none."""

    def plus(self, other: Bill) -> Bill:
        """Both together."""
        return Bill(self.kept + other.kept, self.new + other.new, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt, in tokens as the provider counts them."""

    how: Comparability
    returned: Bill
    untrimmed: Bill


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

    def and_then(self, later: Comparison) -> Comparison:
        """Both together."""
        return Comparison(
            self.prompts + later.prompts,
            self.refused + later.refused,
            self.recalls + later.recalls,
            self.returned.plus(later.returned),
            self.untrimmed.plus(later.untrimmed),
        )

    def plus(self, one: Compared) -> Comparison:
        """With one prompt more."""
        if one.how is Comparability.REFUSED:
            return Comparison(self.prompts, self.refused + 1, self.recalls, self.returned, self.untrimmed)
        return Comparison(
            self.prompts + 1,
            self.refused,
            self.recalls + (one.how is Comparability.RECALL),
            self.returned.plus(one.returned),
            self.untrimmed.plus(one.untrimmed),
        )
