"""Figures: percentiles, ratios, shares, and the tables that show them.

Machines differ and are noisy, so the figure that counts is a ratio of two contenders that took turns on the same input.
Two views of a repeated run are given: all calls pooled, as a user sees them, noise included; and for each call of the
run the best of its repetitions, which is what the work itself costs. A share of few cases is shown with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

JSON = Mapping[str, object]
T = TypeVar("T")


def percentile(values: Iterable[float], share: float) -> float:
    """The least value that at least `share` of the values do not exceed (nearest rank).

    Raises:
        ValueError: there is no value, or the share is not within 0 to 1.
    """
    ordered = sorted(values)
    if not ordered or not 0 <= share <= 1:
        raise ValueError(f"no percentile {share} of {len(ordered)} values")
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def best_of(rounds: Sequence[Sequence[float]]) -> list[float]:
    """For each call the least of its repetitions; every round has the same calls."""
    return [min(times) for times in zip(*rounds, strict=True)]


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the far end of some times, in seconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of some times."""
        kept = list(values)
        return cls(percentile(kept, 0.5), percentile(kept, 0.99))

    def over(self, other: Spread) -> Spread:
        """How many times the other this is, at either place; infinite where the other took no time."""
        return Spread(ratio(self.p50, other.p50), ratio(self.p99, other.p99))

    @property
    def cells(self) -> tuple[str, str]:
        """For a table, in milliseconds."""
        return milliseconds(self.p50), milliseconds(self.p99)

    def facts(self) -> JSON:
        """For the JSON file, in microseconds."""
        return {"p50_us": round(self.p50 * 1e6, 1), "p99_us": round(self.p99 * 1e6, 1)}


def views(rounds: Sequence[Sequence[float]]) -> Mapping[str, Spread]:
    """The two views of a repeated run."""
    pooled = Spread.of(seconds for calls in rounds for seconds in calls)
    return {"all calls": pooled, "best of each call's rounds": Spread.of(best_of(rounds))}


def in_turns(contenders: Sequence[T], turn: int) -> Sequence[T]:
    """The contenders in their order, every other turn the other way round."""
    return contenders if turn % 2 else contenders[::-1]


def ratio(one: float, other: float) -> float:
    """How many times `other` `one` is."""
    return one / other if other else math.inf


@dataclass(frozen=True, slots=True)
class Section:
    """What one part of the bench found: a table for people, facts for machines."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    facts: JSON
    remarks: Sequence[str] = field(default=())


def milliseconds(seconds: float) -> str:
    """A time for a table."""
    return f"{seconds * 1e3:,.3f}" if abs(seconds) < 0.1 else f"{seconds * 1e3:,.0f}"


def times(factor: float, target: float | None = None) -> str:
    """A ratio for a table, with its target where it has one."""
    shown = f"{factor:.2f}x"
    return shown if target is None else f"{shown} ({verdict(factor, target)} {target:g}x)"


def verdict(value: float, most: float) -> str:
    """Whether a figure is as good as is aimed at."""
    return "within" if value <= most else "MISSES"


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
