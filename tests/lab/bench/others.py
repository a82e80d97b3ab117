"""What another caller waits while heavy calls go on: its calls alone, and then next to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.lab.harness.figures import JSON, milliseconds, percentile

WAIT_TARGET: Final = 0.1
"""Seconds that heavy calls may add to another caller's p99."""


@dataclass(frozen=True, slots=True)
class Others:
    """Seconds of each of another caller's calls."""

    quiet: Sequence[float]
    under: Sequence[float]

    @property
    def added(self) -> float:
        """Seconds of p99."""
        return percentile(self.under, 0.99) - percentile(self.quiet, 0.99)

    @property
    def shown(self) -> str:
        """The p99 and the longest of either, in milliseconds, and whether the aim is met."""
        quiet, under = (f"{milliseconds(percentile(each, 0.99))}, {milliseconds(max(each))}" for each in self._both)
        return f"{quiet}; {under} ({met(self.added, WAIT_TARGET)})"

    def facts(self) -> dict[str, JSON]:
        """For the JSON file, in milliseconds."""
        quiet, under = (
            {
                "p50_ms": _shown_seconds(percentile(each, 0.5)),
                "p99_ms": _shown_seconds(percentile(each, 0.99)),
                "most_ms": _shown_seconds(max(each)),
            }
            for each in self._both
        )
        return {"quiet": quiet, "under": under}

    @property
    def _both(self) -> tuple[Sequence[float], Sequence[float]]:
        return self.quiet, self.under


def met(seconds: float, target: float) -> str:
    """Whether a time is as short as is aimed at."""
    return "within" if seconds <= target else f"MISSES {target * 1e3:.0f}"


def _shown_seconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)
