"""The budget for what runs keep in addition to their originals: prompts, ledger, index, history, tombstones.

Two kinds of things are kept. *Caches* (the last prompt, the returned one, the ledger, the index) can be made again
from the agent's next prompt or at the next search, so when there is too much the run that was idle for longest forgets
them first, and its journal, which only people look at. Its originals stay in the stash, and its decisions follow from
its history; only an agent that goes on from trimmed prompts and sends no revision back finds that its trimmed text has
become ordinary text. *Facts* (what is known of each item, and of originals that are gone) exist nowhere else, so they
go only with their run: where the facts of all runs alone are too much, the run that was idle for longest is forgotten,
as where there are too many runs.

The figures below are what tracemalloc finds (CPython 3.11, runs of 11, 62 and 205 messages, before and after they have
forgotten their caches); `make bench` compares their sum with the memory of a process.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Protocol

Name = tuple[str, str]
"""A run: its caller, and its id."""

MESSAGE_BYTES: Final = 2_500
"""Cache bytes that a message takes in addition to its bytes: its record, its entries and their places, its trims, and
the calls that later ones may repeat."""
ITEM_BYTES: Final = 600
"""Fact bytes that an item takes in the history and in the stash; once its original is gone, those of a tombstone there.
"""
RUN_BYTES: Final = 22_000
"""Fact bytes that a run takes in addition to its items."""


@dataclass(frozen=True, slots=True)
class RunOverhead:
    """What one run keeps in addition to its originals; bytes, estimated."""

    caches: int
    facts: int

    @property
    def total(self) -> int:
        """Both kinds together."""
        return self.caches + self.facts


@dataclass(frozen=True, slots=True)
class Over:
    """The runs that must give something up, the longest idle first."""

    forget: list[Name] = field(default_factory=list)
    """Runs that forget their caches."""
    remove: list[Name] = field(default_factory=list)
    """Runs that are forgotten."""


class DoorMemory(Protocol):
    """What a door keeps of runs in memory of its own, such as turns of the model that an agent was not shown.

    What it keeps of a run counts in the run's budget, and is forgotten with the run, however the run ends: ended by its
    agent, idle for too long, one run too many.

    Thread-safe; its methods are called with the table of runs locked, so they must not call other components.

    Each but `sweep` takes constant time on average for what one run keeps.
    """

    def kept_bytes(self, run: Name) -> int:
        """Estimated bytes that are kept for a run."""
        ...

    def forget(self, run: Name) -> None:
        """Forget a run that has ended."""
        ...

    def forget_all(self, caller: str) -> None:
        """Forget all runs of a caller, including those that the core has never seen."""
        ...

    def sweep(self, idle_since: float) -> None:
        """A bounded slice of housekeeping: forget runs that were not used since `idle_since`, by the clock of runs."""
        ...


class MemoryBudget:
    """What each run keeps, the most recently used run last. Not thread-safe.

    Each call takes constant time on average.
    """

    def __init__(self, most: int) -> None:
        """Begin with the bytes that all runs together may keep."""
        self._most = most
        self._kept: OrderedDict[Name, RunOverhead] = OrderedDict()
        self._cached: OrderedDict[Name, None] = OrderedDict()
        """Runs that have caches, in the same order."""
        self.total = 0
        self._facts = 0
        """Bytes of all runs that are facts."""

    def use(self, run: Name, kept: RunOverhead) -> Over:
        """Record that a run was used and keeps this much now.

        Returns the runs that must give something up, never this one.
        """
        self.drop(run)
        self._kept[run] = kept
        if kept.caches:
            self._cached[run] = None
        self.total += kept.total
        self._facts += kept.facts
        return self._over(run)

    def grow(self, run: Name, kept: RunOverhead) -> Over:
        """Record that a run keeps more or less without having been used, as its index was built.

        Unknown runs are ignored.
        """
        before = self._kept.get(run)
        if before is None:
            return Over()
        if kept.caches and not before.caches:
            return self.use(run, kept)
        if before.caches and not kept.caches:
            del self._cached[run]
        self._kept[run] = kept
        self.total += kept.total - before.total
        self._facts += kept.facts - before.facts
        return self._over(run)

    def drop(self, run: Name) -> None:
        """Record that a run keeps nothing any more."""
        kept = self._kept.pop(run, None)
        if kept is not None:
            self.total -= kept.total
            self._facts -= kept.facts
            self._cached.pop(run, None)

    def shed(self, size: int) -> list[Name]:
        """Return the runs that forget their caches, the longest idle first: until `size` bytes are free, or all."""
        least, forget = self.total - size, []
        while self.total > least and self._cached:
            forget.append(next(iter(self._cached)))
            self._without_caches(forget[-1])
        return forget

    def _over(self, run: Name) -> Over:
        over = Over()
        while self.total > self._most and (victim := _first_other(self._cached, run)) is not None:
            self._without_caches(victim)
            over.forget.append(victim)
        # What the run in use caches is no reason to forget others: one large prompt would.
        while self._facts > self._most and (victim := _first_other(self._kept, run)) is not None:
            self.drop(victim)
            over.remove.append(victim)
        return over

    def _without_caches(self, run: Name) -> None:
        """Take a run's caches out of the sums, as it is going to forget them."""
        kept = self._kept[run]
        self._kept[run] = RunOverhead(0, kept.facts)
        del self._cached[run]
        self.total -= kept.caches


def _first_other(runs: OrderedDict[Name, RunOverhead] | OrderedDict[Name, None], run: Name) -> Name | None:
    """Return the first run that is not `run`."""
    for name in runs:
        if name != run:
            return name
    return None
