"""Runs by the moment at which their oldest entry can die at the earliest: what a sweep looks at, and nothing else.

A heap of notes, at most one of each run. A run that is forgotten keeps its note until that comes up, an hour later; so
that short runs do not pile up there, the heap is cleared of them once they are half of it.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Final

from prompt_sidecar.recall.holding import RunEntries

MOST_STALE: Final = 64
"""Notes of forgotten runs that are left alone, a kilobyte each; so few cost less than to look for them."""


class Deadlines:
    """See the file's docstring. Not thread-safe. Each call takes the logarithm of the number of runs, on average."""

    def __init__(self) -> None:
        self._notes: list[tuple[float, int, RunEntries]] = []
        self._order = itertools.count()
        self._stale = 0

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, due: float, run: RunEntries) -> None:
        """Note when a run is to be looked at; it must have no note."""
        heapq.heappush(self._notes, (due, next(self._order), run))
        run.timed = True

    def due(self, now: float) -> RunEntries | None:
        """The run whose moment came first, if any has come by now; its note stays."""
        return self._notes[0][2] if self._notes and self._notes[0][0] <= now else None

    def pop(self) -> None:
        """Take off the first note."""
        run = heapq.heappop(self._notes)[2]
        run.timed = False
        self._stale -= run.forgotten

    def forget(self, run: RunEntries) -> None:
        """A run is forgotten. Its note may know it for another time to live, so what it remembers goes at once."""
        run.expired.clear()
        run.evicted.clear()
        run.forgotten = True
        self._stale += run.timed
        if self._stale > MOST_STALE and 2 * self._stale > len(self._notes):
            self._notes = [note for note in self._notes if not note[2].forgotten]
            heapq.heapify(self._notes)
            self._stale = 0
