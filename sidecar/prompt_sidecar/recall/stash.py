"""The stash: the originals of every run, in memory, until their time to live ends or a budget evicts them.

Theory. An entry's age counts from the later of two moments: when it was last stored or retrieved itself, and when its
run's content was last received. The second is one number for the whole run, so that receiving a prompt again renews a
thousand entries in O(1). Entries that were already dead at that moment must stay dead; as a run keeps its entries in
the order of their own last use, they are exactly those last used at or before one more number, the run's *dead line*.
So "is it alive?" is two comparisons, the dead are always at the front, and nothing has to be rewritten on renewal.

`sweep` takes dead entries off in slices, of runs whose deadline has come (`prompt_sidecar.recall.deadlines`); whether
it has run shows in memory used, never in an outcome.

Budgets count bytes as held. A run over its budget loses its own oldest entries. When all runs together are over the
total budget, the same owner's other runs lose entries first, beginning with the longest idle; then other owners' runs
in the same way; then the run itself. So an owner can take at most one run's budget from others, and an entry never
evicts itself. Every loss is counted by cause and leaves a tombstone, so that EXPIRED and EVICTED are not taken for
NOT_FOUND.

No cache library is suitable. cachetools' TTLCache has one budget, renews entry by entry, expires everything that is due
at once, and does not distinguish misses. diskcache writes originals to disk, where text of prompts must not be.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prompt_sidecar.recall.counts import EventCounts
from prompt_sidecar.recall.deadlines import Deadlines
from prompt_sidecar.recall.holding import (
    COMPRESS_FROM,
    Cause,
    RunEntries,
    StashedOriginal,
    StashFigures,
    StashTotals,
    StoredOriginal,
    squeeze,
    unsqueeze,
)
from prompt_sidecar.recall.outcome import Outcome

RUN_ENTRIES: Final = 100_000
"""Most originals of one run: as many as a prompt may have messages, each with about one trimmable item."""
TOTAL_ENTRIES: Final = 250_000
"""Most originals of all runs. Each takes about 300 bytes besides its content: 75 MB in all."""
RUN_TOMBSTONES: Final = 16_384
"""Expired ids, and as many evicted ids, that a run remembers (170 bytes each); older ones are NOT_FOUND."""
SWEEP_SLICE: Final = 256
"""Dead entries that one slice of a sweep removes: 0.8 ms, so that no call waits longer for the lock."""
PUT_SLICE: Final = 4
"""Dead entries that each put removes, 3 us each: faster than new entries are added."""
COMPRESS_AT_ONCE: Final = 1_048_576
"""Bytes from which an original is compressed before it is stored (3 ms a MiB): kept raw, it would evict too much."""
COMPRESS_SLICE: Final = 262_144
"""Bytes that one slice of background work compresses: about 1 ms."""
PEEK_SLICE: Final = 1_024
"""Ids that `alive` looks up at once: 0.5 ms, so that no call waits longer for the lock."""
WAITING_BYTES: Final = 4_194_304
"""Most raw bytes that wait for compression; beyond that a put compresses the oldest. Small compared with the budgets.
"""


SHED_AT_ONCE: Final = 256
"""Originals that are evicted while the lock is held, a quarter of a millisecond."""


class Stash:
    """The originals of all runs. Thread-safe: one lock, never held while bytes are compressed or decompressed.

    Runs have an opaque key that includes the caller; an id is looked up in its own run only. Runs stay known until
    `forget`: the caller of these methods must limit their number.
    """

    def __init__(
        self,
        total_bytes: int,
        run_bytes: int,
        time_to_live: float,
        clock: Callable[[], float],
        *,
        run_entries: int = RUN_ENTRIES,
        total_entries: int = TOTAL_ENTRIES,
        hold_bytes: int | None = None,
        bounds: EventCounts[str] | None = None,
    ) -> None:
        """Budgets in bytes as held, the time to live in seconds of `clock`. A run's budget is at most the total.

        `hold_bytes` is the largest original that is stored, a run's budget if it is None. It decides what is trimmed,
        so it must be the same in every process, as budgets need not be.
        `bounds` counts what the budgets evict, by budget.
        """
        self._bounds = bounds if bounds is not None else EventCounts()
        self._total_bytes = total_bytes
        self._run_bytes = min(run_bytes, total_bytes)
        self._hold_bytes = self._run_bytes if hold_bytes is None else hold_bytes
        self._total_entries = total_entries
        self._run_entries = min(run_entries, total_entries)
        self._time_to_live = time_to_live
        self._clock = clock
        self._lock = threading.Lock()
        self._latest = -math.inf
        self._runs: dict[str, RunEntries] = {}
        # Runs with entries, longest idle first: all, and by owner.
        self._idle: OrderedDict[str, RunEntries] = OrderedDict()
        self._owners: dict[str, OrderedDict[str, RunEntries]] = {}
        self._deadlines = Deadlines()
        self._waiting: OrderedDict[StashedOriginal, None] = OrderedDict()
        self._waiting_bytes = 0
        self._held = 0
        self._original = 0
        self._entries = 0
        self._lost = dict.fromkeys(Cause, 0)
        self._retrievals = dict.fromkeys(Outcome, 0)

    def can_hold(self, size: int) -> bool:
        """Whether an original of `size` bytes is stored.

        Its budget may still evict it at once, which is reported as eviction.
        """
        return size <= self._hold_bytes

    def put(self, run_key: str, owner: str, stash_id: str, original: bytes, content_type: str) -> bool:
        """Store an original. Returns False if it is too large to be stored.

        The same id again keeps the first bytes and renews their time to live, so that a retry changes nothing. An id
        that expired or was evicted is stored again.
        """
        return self.put_all(run_key, owner, ((stash_id, original, content_type),))[0]

    def put_all(self, run_key: str, owner: str, originals: Sequence[tuple[str, bytes, str]]) -> list[bool]:
        """Store originals (id, bytes, media type) in their order, as `put` does, and return its result for each.

        The lock is held for many: the caller bounds how many, 1 us each, 2 us where each evicts another.
        """
        held = [self.can_hold(len(original)) for _, original, _ in originals]
        left = deque(original for original, fits in zip(originals, held, strict=True) if fits)
        packed: bytes | None = None
        while left:
            with self._lock:
                now, run = self._now(), self._run(run_key)
                while left:
                    stash_id, data, content_type = left[0]
                    size = len(data)
                    if packed is not None:
                        data, packed = packed, None
                    elif size >= COMPRESS_AT_ONCE and stash_id not in run.entries:
                        break
                    left.popleft()
                    self._keep(
                        owner, StashedOriginal(run, stash_id, data, size=size, content_type=content_type, used=now), now
                    )
                    if self._waiting_bytes > WAITING_BYTES:
                        break
                excess = self._waiting_bytes - WAITING_BYTES
            if excess > 0:
                self.compress_some(excess)
            elif left:
                packed = squeeze(left[0][1])
        return held

    def renew(self, run_key: str, stash_id: str) -> bool:
        """Renew a stored original, as `put` does, without its bytes. Returns False if it is not stored."""
        with self._lock:
            now, run = self._now(), self._run(run_key)
            known = self._living(run, stash_id, now)
            if known is not None:
                self._use(known, now)
            return known is not None

    def get(self, run_key: str, stash_id: str) -> StoredOriginal | Outcome:
        """Return an original, or why there is none: any outcome but HIT. A hit renews its time to live."""
        with self._lock:
            now = self._now()
            run = self._runs.get(run_key)
            if run is None:
                self._retrievals[Outcome.RUN_UNKNOWN] += 1
                return Outcome.RUN_UNKNOWN
            entry = self._living(run, stash_id, now)
            if entry is not None:
                outcome = Outcome.HIT
                self._use(entry, now)
                data, size, content_type = entry.data, entry.size, entry.content_type
            else:
                outcome = run.without(stash_id)
            run.retrievals[outcome] += 1
            self._retrievals[outcome] += 1
        if outcome is not Outcome.HIT:
            return outcome
        return StoredOriginal(original=unsqueeze(data, size), content_type=content_type)

    def size_of(self, run_key: str, stash_id: str) -> int:
        """Return an original's bytes before compression; 0 if there is none.

        Not a retrieval: renews and counts nothing.
        """
        with self._lock:
            run = self._runs.get(run_key)
            entry = run.entries.get(stash_id) if run is not None else None
            return entry.size if entry is not None else 0

    def dead(self, run_key: str) -> frozenset[str]:
        """Return ids of the run that were stored once and cannot be retrieved now. Not a retrieval: renews nothing."""
        with self._lock:
            run = self._runs.get(run_key)
            if run is None:
                return frozenset()
            self._expire_run(run, self._now())
            return frozenset(run.expired).union(run.evicted)

    def peek(self, run_key: str, stash_ids: Iterable[str]) -> dict[str, bytes]:
        """Return the live originals among the ids. Not a retrieval: renews nothing, counts nothing.

        For search and index, whose reads are not retrievals. The caller bounds how many ids there are.
        """
        with self._lock:
            run, now = self._runs.get(run_key), self._now()
            if run is None:
                return {}
            # The pair, not the entry: removing an entry clears its bytes.
            found = {
                stash_id: (entry.data, entry.size)
                for stash_id in stash_ids
                if (entry := self._living(run, stash_id, now)) is not None
            }
        return {stash_id: unsqueeze(data, size) for stash_id, (data, size) in found.items()}

    def copies(self, run_key: str) -> Iterator[tuple[str, StoredOriginal]]:
        """Yield all originals of a run, read one by one. Not a retrieval: renews nothing, counts nothing."""
        with self._lock:
            run = self._runs.get(run_key)
            stash_ids = list(run.entries) if run is not None else []
        for stash_id in stash_ids:
            with self._lock:
                run, now = self._runs.get(run_key), self._now()
                entry = self._living(run, stash_id, now) if run is not None else None
                if entry is None:
                    continue
                data, size, content_type = entry.data, entry.size, entry.content_type
            yield stash_id, StoredOriginal(unsqueeze(data, size), content_type)

    def alive(self, run_key: str, stash_ids: Sequence[str]) -> set[str]:
        """Return those of the ids that could be retrieved now. Not a retrieval, and no bytes are read."""
        living: set[str] = set()
        for first in range(0, len(stash_ids), PEEK_SLICE):
            with self._lock:
                run, now = self._runs.get(run_key), self._now()
                if run is None:
                    return set()
                some = stash_ids[first : first + PEEK_SLICE]
                living.update(stash_id for stash_id in some if self._living(run, stash_id, now) is not None)
        return living

    def received(self, run_key: str) -> None:
        """Renew all live entries of a run whose content was received again, in O(1)."""
        with self._lock:
            now = self._now()
            run = self._run(run_key)
            # Entries that died before this moment stay dead, swept or not.
            run.dead_line = run.dead_before(now - self._time_to_live)
            run.received = now
            self._stir(run)

    def missing(self, run_key: str) -> tuple[str, ...]:
        """Return ids of the run that have expired and were not stored again, oldest first; O(1) when there are none.

        If their content is received again, it should be put again. Evicted ids are not included: the budget that had no
        room for them would evict others in their place.
        """
        with self._lock:
            run = self._runs.get(run_key)
            if run is None:
                return ()
            self._expire_run(run, self._now())
            return tuple(run.expired)

    def touch_run(self, run_key: str) -> None:
        """Mark a run as used: it is known from now on, and last among idle runs. Renews no entry."""
        with self._lock:
            self._stir(self._run(run_key))

    def forget(self, run_key: str) -> None:
        """Forget a run at once, on request, so it counts as no loss. Later it is RUN_UNKNOWN."""
        with self._lock:
            run = self._runs.pop(run_key, None)
            if run is None:
                return
            for entry in list(run.entries.values()):
                self._remove(entry)
            self._deadlines.forget(run)

    def figures(self, run_key: str) -> StashFigures:
        """Return a run's figures; zeros for a run that is not known."""
        with self._lock:
            run = self._runs.get(run_key) or RunEntries(run_key)
            self._expire_run(run, self._now())
            return run.figures()

    @property
    def held_bytes(self) -> int:
        """Bytes of all originals, as held."""
        return self._held

    def totals(self) -> StashTotals:
        """Return the figures of the whole stash. Dead entries count until they are swept."""
        with self._lock:
            return StashTotals(
                runs=len(self._runs),
                entries=self._entries,
                held_bytes=self._held,
                original_bytes=self._original,
                waiting_bytes=self._waiting_bytes,
                lost=dict(self._lost),
                retrievals=dict(self._retrievals),
            )

    def sweep(self, limit: int = SWEEP_SLICE) -> int:
        """Remove dead entries, in at most `limit` steps. Returns the steps taken, 0 when nothing was due.

        For a timer: after `limit` steps, call again at once. A step removes an entry or looks at a renewed run.
        """
        with self._lock:
            return self._expire_due(self._now(), limit)

    def compress_some(self, limit_bytes: int = COMPRESS_SLICE) -> int:
        """Compress originals that wait for it, oldest first, up to about `limit_bytes`; returns the bytes processed.

        Off the answer's path: `put` stores raw bytes, and a timer calls this. One original is never split, so a call
        may pass the limit by one original.
        """
        done = 0
        while done < limit_bytes:
            with self._lock:
                if not self._waiting:
                    break
                entry, _ = self._waiting.popitem(last=False)
                raw = entry.data
                self._waiting_bytes -= len(raw)
            packed = squeeze(raw)
            done += len(raw)
            with self._lock:
                if entry.data is raw:  # else it was removed meanwhile
                    entry.run.held += len(packed) - len(raw)
                    self._held += len(packed) - len(raw)
                    entry.data = packed
        return done

    # The following methods run under the lock.

    def _now(self) -> float:
        """Return the clock's time, but never an earlier one: entries in the order of use must have times in order."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def _run(self, run_key: str) -> RunEntries:
        run = self._runs.get(run_key)
        if run is None:
            run = self._runs[run_key] = RunEntries(run_key)
        return run

    def _living(self, run: RunEntries, stash_id: str, now: float) -> StashedOriginal | None:
        entry = run.entries.get(stash_id)
        if entry is None or entry.used > run.dead_before(now - self._time_to_live):
            return entry
        self._lose(entry, Cause.EXPIRED)
        return None

    def _use(self, entry: StashedOriginal, now: float) -> None:
        entry.used = now
        entry.run.entries.move_to_end(entry.stash_id)
        self._stir(entry.run)

    def _stir(self, run: RunEntries) -> None:
        if run.entries:
            self._idle.move_to_end(run.key)
            self._owners[run.owner].move_to_end(run.key)

    def _keep(self, owner: str, new: StashedOriginal, now: float) -> None:
        """Add a new entry, or renew the one with the same id."""
        run = new.run
        if self._deadlines.due(now) is not None:
            self._expire_due(now, PUT_SLICE)
        if new.stash_id in run.entries and (known := self._living(run, new.stash_id, now)) is not None:
            self._use(known, now)
            return
        self._insert(owner, new)
        self._make_room(run, now)

    def _insert(self, owner: str, entry: StashedOriginal) -> None:
        run, size, held = entry.run, entry.size, len(entry.data)
        # Allocations that may fail come first and are undone, so that figures and orders agree at any time.
        try:
            if not run.entries:
                run.owner, self._idle[run.key] = owner, run
                self._owners.setdefault(owner, OrderedDict())[run.key] = run
            waiting = self._waiting_bytes
            if COMPRESS_FROM <= size < COMPRESS_AT_ONCE:
                self._waiting[entry] = None
                waiting += size
            figures = run.original + size, run.held + held, self._original + size, self._held + held, self._entries + 1
            run.entries[entry.stash_id] = entry
        except BaseException:
            self._waiting.pop(entry, None)
            if not run.entries:
                self._leave(run)
            raise
        run.original, run.held, self._original, self._held, self._entries = figures
        self._waiting_bytes = waiting
        if run.expired or run.evicted:
            run.expired.pop(entry.stash_id, None)
            run.evicted.pop(entry.stash_id, None)
        self._stir(run)
        if not run.timed:
            self._time(run)

    def _remove(self, entry: StashedOriginal) -> None:
        run = entry.run
        del run.entries[entry.stash_id]
        if entry in self._waiting:
            del self._waiting[entry]
            self._waiting_bytes -= entry.size
        run.held -= len(entry.data)
        self._held -= len(entry.data)
        entry.data = b""
        run.original -= entry.size
        self._original -= entry.size
        self._entries -= 1
        if not run.entries:
            self._leave(run)

    def _leave(self, run: RunEntries) -> None:
        """Remove a run without entries from all orders."""
        self._idle.pop(run.key, None)
        if (siblings := self._owners.get(run.owner)) is not None:
            siblings.pop(run.key, None)
            if not siblings:
                del self._owners[run.owner]

    def _lose(self, entry: StashedOriginal, cause: Cause) -> None:
        run = entry.run
        self._remove(entry)
        run.lost[cause] += 1
        self._lost[cause] += 1
        tombstones = run.expired if cause is Cause.EXPIRED else run.evicted
        tombstones[entry.stash_id] = None
        if len(tombstones) > RUN_TOMBSTONES:
            tombstones.popitem(last=False)
            self._bounds.add("limits.tombstones")

    def shed(self, size: int) -> int:
        """Evict about `size` bytes as held, those of runs idle for longest first; return how many were evicted.

        For a process that is near its memory limit. Each loss counts as one of the total budget.
        """
        left = size
        while left > 0:
            with self._lock:
                run = next(iter(self._idle.values()), None)
                if run is None:
                    break
                before = self._held
                for _ in range(SHED_AT_ONCE):
                    if not run.entries or before - self._held >= left:
                        break
                    self._lose(run.oldest(), Cause.TOTAL_BUDGET)
                left -= before - self._held
        return size - left

    def _make_room(self, run: RunEntries, now: float) -> None:
        """Bring `run`, which has just got an entry, and then all runs within their budgets."""
        while run.held > self._run_bytes or len(run.entries) > self._run_entries:
            dead = run.oldest().used <= run.dead_before(now - self._time_to_live)
            if not dead:
                self._bounds.add("limits.run_stash_bytes" if run.held > self._run_bytes else "limits.run_entries")
            self._lose(run.oldest(), Cause.EXPIRED if dead else Cause.RUN_BUDGET)
        while self._held > self._total_bytes or self._entries > self._total_entries:
            # Dead entries are removed before live ones.
            if self._deadlines.due(now) is None:
                over = self._held > self._total_bytes
                self._bounds.add("limits.stash_bytes" if over else "limits.total_entries")
                self._lose(self._victim(run).oldest(), Cause.TOTAL_BUDGET)
            else:
                self._expire_due(now, 1)

    def _victim(self, run: RunEntries) -> RunEntries:
        """Return the run that loses entries first: the owner's longest idle other run, another owner's, then `run`.

        `run` was used last, so it is at the front of an order only if it is alone there.
        """
        sibling = next(iter(self._owners[run.owner].values()))
        return sibling if sibling is not run else next(iter(self._idle.values()))

    def _time(self, run: RunEntries) -> None:
        """Set the earliest time at which the run's oldest entry can die.

        Too early a time is corrected when it is due.
        """
        if run.timed or not run.entries:
            return
        used = run.oldest().used
        due = (used if used <= run.dead_line else max(used, run.received)) + self._time_to_live
        # A time that was due although nothing was dead must not be due again at the same moment.
        self._deadlines.add(max(due, math.nextafter(self._latest, math.inf)), run)

    def _expire_due(self, now: float, limit: int) -> int:
        steps = 0
        while steps < limit and (run := self._deadlines.due(now)) is not None:
            gone = self._expire_run(run, now, limit - steps)
            steps += gone or 1
            # The run stays at the front only if the limit may have stopped it, and then part of it is removed: each
            # step brings the end nearer, whatever the limit.
            if not gone or steps < limit or not run.entries:
                self._deadlines.pop()
                self._time(run)
        return steps

    def _expire_run(self, run: RunEntries, now: float, limit: float = math.inf) -> int:
        line = run.dead_before(now - self._time_to_live)
        expired = 0
        while expired < limit and run.entries and run.oldest().used <= line:
            self._lose(run.oldest(), Cause.EXPIRED)
            expired += 1
        return expired
