"""Runs by the earliest time at which their oldest entry can expire, for sweeps.

A heap of deadlines, at most one for each run. A forgotten run's deadline stays until it is due, an hour later; so that
those of short runs do not accumulate, they are removed once they are more than half of the heap, and all of them when
no run is left. The allocator returns only wholly unused blocks to the system, and each deadline would keep a block in
use.
"""

from __future__ import annotations

import heapq
import itertools

from prompt_sidecar.recall.holding import RunEntries


class Deadlines:
    """The heap of deadlines. Not thread-safe. Each call takes logarithmic time in the number of runs, on average."""

    def __init__(self) -> None:
        self._notes: list[tuple[float, int, RunEntries]] = []
        self._order = itertools.count()
        self._stale = 0

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, due: float, run: RunEntries) -> None:
        """Add the deadline of a run, which must have none."""
        heapq.heappush(self._notes, (due, next(self._order), run))
        run.timed = True

    def due(self, now: float) -> RunEntries | None:
        """Return the run with the earliest deadline, if that has passed; the deadline is kept."""
        return self._notes[0][2] if self._notes and self._notes[0][0] <= now else None

    def pop(self) -> None:
        """Remove the earliest deadline."""
        run = heapq.heappop(self._notes)[2]
        run.timed = False
        self._stale -= run.forgotten

    def forget(self, run: RunEntries) -> None:
        """Forget a run. Its deadline may keep it in memory for a while, so its contents are cleared at once."""
        run.expired.clear()
        run.evicted.clear()
        run.forgotten = True
        self._stale += run.timed
        if 2 * self._stale > len(self._notes):
            self._notes = [note for note in self._notes if not note[2].forgotten]
            heapq.heapify(self._notes)
            self._stale = 0
