"""The runs that this process knows: found by caller and run id, bounded in number and in what they keep.

Only this module decides which run is forgotten when there are too many; it does not depend on what a run does.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count, islice
from threading import Lock
from typing import Final

from prompt_sidecar.engine.runs.budget import DoorMemory, MemoryBudget, Name, Over, RunOverhead
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.errors import RunUnknown, StoreUnavailable
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.facts.totals import Event, Totals
from prompt_sidecar.guard.vault import Vault
from prompt_sidecar.prompt.body import Split
from prompt_sidecar.recall.counts import EventCounts
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.trim.ids import Keys

UNKNOWN_RUN: Final = "this process has not seen the run; send its prompt first"
INDEX_SLICE: Final = 8_192
"""Bytes that one slice indexes: about a millisecond, for which a call may wait."""
SWEEP_RUNS: Final = 16
"""Idle runs that one slice of housekeeping forgets."""


def _held(lock: Lock) -> Lock:
    """Acquire a lock without a timeout."""
    return lock


class RunTable:
    """All runs of this process, and the stash that they share. Thread-safe."""

    def __init__(
        self,
        keys: Keys,
        clock: Callable[[], float],
        core_limits: CoreLimits,
        vault_bytes: tuple[int, int],
    ) -> None:
        """`keys` make ids; `clock` is the steady clock that times to live use.

        `vault_bytes`: resource limits on the values of all runs, and of one.
        """
        self._keys = keys
        self._clock = clock
        self._core_limits = core_limits
        limits = self._limits = core_limits.kept
        self._lock = Lock()
        self._runs: OrderedDict[tuple[str, str], Run] = OrderedDict()
        self._budget = MemoryBudget(limits.memory_bytes)
        self._to_index: OrderedDict[Run, None] = OrderedDict()
        self._held_up: OrderedDict[Run, None] = OrderedDict()
        """Runs that wait to be indexed and whose originals could not be fetched at the last attempt."""
        self._begun = count()
        """Gives each run that begins a number."""
        self.bounds: EventCounts[str] = EventCounts()
        """Resource limits that were reached without an error for a caller."""
        self.events: EventCounts[Event] = EventCounts()
        self.stash = Stash(
            limits.stash_bytes,
            limits.run_stash_bytes,
            limits.time_to_live,
            clock,
            hold_bytes=limits.original_bytes,
            bounds=self.bounds,
        )
        self.vault = Vault(*vault_bytes, self.bounds.add)
        self.doors: list[DoorMemory] = []
        """Each door's memory of runs, added before the door serves."""

    def __len__(self) -> int:
        """Return the number of runs in memory."""
        return len(self._runs)

    def known(self, caller: str, run_id: str) -> Run | None:
        """Return a run that has been seen and has not ended, or None."""
        with self._lock:
            run = self._runs.get((caller, run_id))
            if run is None or run.ended:
                return None
            run.last_seen = self._clock()
            self._runs.move_to_end((caller, run_id))
            return run

    def last_sent(self, caller: str, run_id: str) -> Split | None:
        """Return a run's last prompt as the agent sent it, if it is kept. This does not count as use of the run."""
        with self._lock:
            run = self._runs.get((caller, run_id))
        received = run.memory.received if run is not None else None
        return received.sent if received is not None else None

    def has(self, run: Run) -> bool:
        """Whether a run is still known: it neither ended nor was forgotten."""
        with self._lock:
            return self._has(run)

    def _has(self, run: Run) -> bool:
        return self._runs.get(run.name) is run and not run.ended

    def run_ids(self, caller: str) -> Sequence[str]:
        """Return the ids of a caller's runs that have been seen and have not ended."""
        with self._lock:
            return [run_id for of, run_id in self._runs if of == caller]

    def latest(self, most: int) -> Sequence[Run]:
        """Return the runs seen last, the newest first. This does not count as use of them."""
        with self._lock:
            return [run for run in islice(reversed(self._runs.values()), most) if not run.ended]

    @contextmanager
    def seen(
        self, caller: str, run_id: str, holding: Callable[[Lock], AbstractContextManager[object]] = _held
    ) -> Iterator[Run]:
        """Yield a run that this process has seen, while `holding` holds its lock.

        Raises:
            RunUnknown: it was not seen, or it was ended while the call waited for the lock.
        """
        run = self.known(caller, run_id)
        if run is None:
            raise RunUnknown(UNKNOWN_RUN, field="run_id")
        with holding(run.lock):
            if run.ended:
                raise RunUnknown(UNKNOWN_RUN, field="run_id")
            yield run

    @contextmanager
    def entered(
        self,
        caller: str,
        run_id: str,
        holding: Callable[[Lock], AbstractContextManager[object]] = _held,
        key: bytes | None = None,
    ) -> Iterator[Run]:
        """Yield a run while `holding` holds its lock; if it has not been seen, it begins now, as in `begun`.

        A call that waited for the lock while the run was ended gets a new run: what it stored in the old one would
        never be forgotten. A run that is not kept by the end of the block has not been seen.
        """
        while True:
            run = self.begun(caller, run_id, key)
            try:
                with holding(run.lock):
                    if not run.ended:
                        yield run
                        return
            finally:
                self.leave(run)

    def begun(self, caller: str, run_id: str, key: bytes | None = None) -> Run:
        """Return a run, which begins now if it has not been seen. Call `leave` later: until then it is not forgotten.

        `key`: the key of a new run that another process began; None: it is derived from the first key.
        """
        name = (caller, run_id)
        now = self._clock()
        with self._lock:
            run = self._runs.get(name)
            if run is None:
                keys = self._keys.of_run(caller, run_id)
                own = keys[0] if key is None else key
                run = self._runs[name] = Run(
                    name,
                    own,
                    tuple(other for other in keys if other != own),
                    now,
                    number=next(self._begun),
                    limits=self._core_limits,
                    stash=self.stash,
                    bounds=self.bounds,
                    events=self.events,
                )
            run.last_seen = now
            run.in_use += 1
            self._runs.move_to_end(name)
        return run

    def leave(self, run: Run) -> None:
        """End a call's use of a run from `begun`. A run that was not kept, after an error or a dry run, is removed.

        A run that was kept stays until it is forgotten like all others, even if nothing is left in it, as when its
        tasks were removed: stash and budget have it.
        """
        with self._lock:
            run.in_use -= 1
            if run.unused and not run.registered and not run.in_use and self._runs.get(run.name) is run:
                del self._runs[run.name]
                self.vault.forget(run.stash_key)

    def keep(self, run: Run) -> None:
        """Keep a run after a successful call: count it, and forget others if there are too many.

        The run's lock is held, and the run has not ended.
        """
        with self._lock:
            caches = self._give_up(self._budget.use(run.name, self._kept(run)))
            if not run.registered:
                run.registered = True
                self.events.add(Event.RUN_STARTED)
            gone = self._forget_oldest(Event.RUN_TOO_MANY) if len(self._runs) > self._limits.runs else None
            if gone is not None:
                self.bounds.add("limits.runs")
        if gone is not None:
            gone.free()
        for other in caches:
            other.forget_caches()
        self.stash.touch_run(run.stash_key)
        self.index_later(run)

    def weigh(self, run: Run) -> None:
        """Weigh a run again, as what it keeps may change without a prompt: its index was built."""
        with self._lock:
            if self._runs.get(run.name) is not run:
                return
            caches = self._give_up(self._budget.grow(run.name, self._kept(run)))
        for other in caches:
            other.forget_caches()

    def remove(self, run: Run) -> None:
        """Remove a run that was ended. Its lock is held, and its originals are forgotten already.

        Calls that wait for the lock begin a new run only after this, so that none of the new run's originals are
        forgotten.
        """
        with self._lock:
            self._budget.drop(run.name)
            if self._runs.get(run.name) is run:
                del self._runs[run.name]
            self.events.add(Event.RUN_ENDED, run.registered)
            self._unqueue(run)
            self.vault.forget(run.stash_key)
            self._forget_in_doors(run.name)

    def ended(self, caller: str, run_id: str = "") -> None:
        """Have doors forget a run that was ended, which may be unknown here; without an id all runs of a caller."""
        with self._lock:
            if run_id:
                self._forget_in_doors((caller, run_id))
            else:
                for door in self.doors:
                    door.forget_all(caller)

    def _forget_in_doors(self, name: Name) -> None:
        for door in self.doors:
            door.forget(name)

    def _kept(self, run: Run) -> RunOverhead:
        """Return what a run keeps, together with what doors keep of it."""
        kept = run.kept()
        return replace(kept, facts=kept.facts + sum(door.kept_bytes(run.name) for door in self.doors))

    def keep_with(self, door: DoorMemory) -> float:
        """Have a door's memory of runs end with them and count in their budget; called before the door serves.

        Returns the seconds for which the door may keep what is not used.
        """
        self.doors.append(door)
        return self._limits.time_to_live

    def weigh_of_doors(self, caller: str, run_id: str) -> None:
        """Weigh a run again after a door's memory of it changed. The door holds no lock of its own."""
        with self._lock:
            run = self._runs.get((caller, run_id))
        if run is not None:
            self.weigh(run)

    def number_of(self, caller: str, run_id: str) -> str:
        """Return a number that differs between runs of the same name; empty if the run is not known."""
        with self._lock:
            run = self._runs.get((caller, run_id))
            return run.stash_key if run is not None and not run.ended else ""

    def sweep(self) -> None:
        """A bounded slice of housekeeping: expired originals, compression, runs idle for twice the time to live.

        What doors keep of a run goes with the originals that it quotes, after the time to live.
        """
        self.stash.sweep()
        self.stash.compress_some()
        now = self._clock()
        for door in self.doors:
            door.sweep(now - self._limits.time_to_live)
        horizon = now - 2 * self._limits.time_to_live
        for _ in range(SWEEP_RUNS):
            with self._lock:
                gone = self._forget_oldest(Event.RUN_IDLE, horizon)
            if gone is None:
                return
            gone.free()

    def shed(self, size: int) -> None:
        """Free about `size` bytes, when the process is near its memory limit, of the runs idle for longest first.

        Caches are dropped before originals, as they can be built again and originals cannot.
        """
        self.bounds.add("limits.process_bytes")
        with self._lock:
            before = self._budget.total
            caches = [self._runs[name] for name in self._budget.shed(size) if name in self._runs]
            left = size - (before - self._budget.total)
        for run in caches:
            run.forget_caches()
        self.stash.shed(left)

    def index_some(self) -> int:
        """Index a bounded slice of the run that has waited longest. Returns the bytes indexed, 0 if nothing can be.

        Runs whose originals cannot be fetched now are tried after all others. Each slice tries one of them again, so
        that it takes no longer however many there are.
        """
        with self._lock:
            run = self._held_up.popitem(last=False)[0] if self._held_up else None
        while True:
            done = self._index_some_of(run) if run is not None else 0
            if done:
                return done
            with self._lock:
                if not self._to_index:
                    return 0
                run, _ = self._to_index.popitem(last=False)

    def _index_some_of(self, run: Run) -> int:
        """Index a slice of one run; returns 0 if nothing waits or it cannot be fetched.

        Nothing is fetched for a forgotten run.
        """
        try:
            done = run.history.index_some(INDEX_SLICE) if self.has(run) else 0
        except StoreUnavailable:
            with self._lock:
                if self._has(run):
                    self._held_up[run] = None
            return 0
        if done:
            self.index_later(run)
            self.weigh(run)
        return done

    def totals(self) -> Totals:
        """Return what all runs hold, and counts of events."""
        with self._lock:
            runs = list(self._runs.values())
            memory_bytes = self._budget.total
        histories = [run.history.figures() for run in runs]
        return Totals(
            stash=self.stash.totals(),
            stash_limit=self._limits.stash_bytes,
            runs=sum(run.registered for run in runs),
            memory_bytes=memory_bytes,
            memory_limit=self._limits.memory_bytes,
            vault=self.vault.totals(),
            history_bytes=sum(history.recorded_bytes for history in histories),
            index_bytes=sum(history.index_bytes for history in histories),
            index_waiting=sum(history.waiting_bytes for history in histories),
            events=self.events.read(),
            bounds=self.bounds.read(),
        )

    def kept_bytes(self) -> int:
        """Return the bytes that all runs keep: originals, and an estimate of everything else."""
        return self._budget.total + self.stash.held_bytes

    def _forget_oldest(self, event: Event, seen_by: float = math.inf) -> Run | None:
        """Forget the run that was idle for longest, if it was last seen by `seen_by`. Return it, or None.

        A run in use by a call is skipped: the answer may name originals that would be gone. Originals are removed while
        the table is locked: a run of the same name that begins next must not lose its own with them.
        """
        oldest = next(((name, run) for name, run in self._runs.items() if not run.in_use), None)
        if oldest is None or oldest[1].last_seen > seen_by:
            return None
        name, run = oldest
        del self._runs[name]
        self._budget.drop(name)
        self.events.add(event, run.registered)
        self._forget(run)
        return run

    def _give_up(self, over: Over) -> list[Run]:
        """Forget the runs in `over.remove`, under the lock. Returns the names of those that must forget their caches.

        A run in use by a call stays, as in `_forget_oldest`; it is considered again once the call has ended.
        """
        self.bounds.add("limits.memory_bytes", len(over.forget) + len(over.remove))
        for name in over.remove:
            gone = self._runs.get(name)
            if gone is not None and not gone.in_use:
                del self._runs[name]
                self.events.add(Event.RUN_TOO_MANY, gone.registered)
                self._forget(gone)
        return [self._runs[name] for name in over.forget if name in self._runs]

    def _forget(self, run: Run) -> None:
        """Forget a run's originals, its values, and what doors keep of it; the lock is held."""
        self._unqueue(run)
        self.stash.forget(run.stash_key)
        self.vault.forget(run.stash_key)
        self._forget_in_doors(run.name)

    def _unqueue(self, run: Run) -> None:
        """Take a run out of the queue for indexing; the lock is held."""
        self._to_index.pop(run, None)
        self._held_up.pop(run, None)

    def index_later(self, run: Run) -> None:
        """Queue a run for indexing between calls, behind the runs that wait already."""
        if run.history.waiting_bytes:
            with self._lock:
                if self._has(run):
                    self._held_up.pop(run, None)
                    self._to_index[run] = None
