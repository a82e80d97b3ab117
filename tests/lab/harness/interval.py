"""A share with its interval: few conversations say little, and the table must show how little.

Wilson's score interval: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal
of the American Statistical Association 22 (1927). Unlike the textbook's p ± 1.96·√(p(1−p)/n) it is of use at n = 4 and
at shares of 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Z: Final = 1.959963984540054
"""The normal distribution's quantile at 0.975: a 95 % interval."""


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share; all of 0 to 1 where nothing was observed.

    Raises:
        ValueError: there are more hits than tries, or a number is negative.
    """
    if not 0 <= hits <= of:
        raise ValueError(f"no share has {hits} hits of {of}")
    if of == 0:
        return 0.0, 1.0
    share, square = hits / of, Z * Z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = Z * math.sqrt(share * (1 - share) / of + square / (4 * of * of)) / (1 + square / of)
    return (0.0 if hits == 0 else max(middle - half, 0.0)), (1.0 if hits == of else min(middle + half, 1.0))


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many."""

    hits: int
    of: int

    @classmethod
    def among(cls, cases: Iterable[bool]) -> Share:
        """Of some cases, those that are so."""
        seen = list(cases)
        return cls(sum(seen), len(seen))

    @property
    def short(self) -> str:
        """For a narrow column."""
        return f"{self.hits}/{self.of}" if self.of else "–"

    @property
    def full(self) -> str:
        """With per cent and interval."""
        if not self.of:
            return "–"
        low, high = wilson(self.hits, self.of)
        return f"{self.hits}/{self.of} {self.hits / self.of:.0%} ({low:.0%} to {high:.0%})"

    def facts(self) -> dict[str, float | int | None]:
        """For the JSON file; share and interval are null where there was nothing to observe."""
        low, high = wilson(self.hits, self.of) if self.of else (None, None)
        share = self.hits / self.of if self.of else None
        return {"hits": self.hits, "of": self.of, "share": share, "low": low, "high": high}
