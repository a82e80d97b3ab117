"""A run's history: the facts of every recorded item, and the index of their texts, which are in the stash.

Theory. Recording delays TrimPrompt's answer, so it only adds an item to the record and to a queue. Its text is indexed
later, in bounded steps: by a background thread slice by slice, and by a search, which first indexes the items queued
before it began, as far as its time allows. There are two locks: the *record lock*, held for a few microseconds, and the
*index lock*, held for one step of indexing or one query. The holder of the index lock may take the record lock, never
the reverse. So recording never waits for an index step.

Items are indexed in the order in which they were recorded, the oldest first: the index takes items by growing numbers,
and the passages of neighbouring items lie together. So items that are not indexed yet are usually the newest.

Originals of items may be elsewhere, as in the archive of a run that another process began. Their facts are recorded at
once, and their texts are fetched a piece at a time, when they are the next to be indexed or a query names them.
Meanwhile the *fetch lock* is held, for as long as the archive takes, and neither of the other locks.

The size of the index is bounded. When the bound is exceeded, the index is rebuilt from the items of the newest
iterations, up to half the bound; search then covers the history from `first_iteration` on. So the work for a run is at
most twice that for its text, however long it becomes.

An item that is stored again after it has expired gets a new number, and the old one is removed from the index. An item
on a branch of the history that the agent has abandoned stays searchable, as it is part of what happened.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Final, NamedTuple

from prompt_sidecar import slots
from prompt_sidecar.recall.counts import EventCounts
from prompt_sidecar.recall.found import SearchLimits, SearchQuery
from prompt_sidecar.recall.index import Best, Hit, Index
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.lending import ANSWERS, Lender
from prompt_sidecar.recall.record import Allowed, ItemRecords

RECORDED_ITEMS: Final = 100_000
"""Most items in one run's history, 240 bytes each: as many as the stash keeps for a run, so that older ones were
evicted."""
INDEX_SLICE: Final = 65_536
"""Bytes indexed in one slice of background work: about 10 ms."""
FETCHED: Final = 64
"""Originals that are fetched at once: one command of a store."""
FETCHED_BYTES: Final = 65_536
"""Bytes of them, unless a single one has more: about a millisecond of work, for which a call may wait."""
FETCH_WAIT: Final = 0.02
"""Seconds that a search waits for another thread's fetch without checking its deadline."""
ITEM_SHARE: Final = 4
"""Divisor of the index's bound that limits one item's postings; the rest of the item is not indexed. So the newest item
is at most half of a rebuilt index."""


class _ItemState(IntEnum):
    """State of an item in the index."""

    WAITING = 0
    INDEXED = 1
    GONE = 2
    """The original was gone before it was indexed, or the number is no longer in use."""
    LEFT_OUT = 3
    """The index had no room for it."""


@dataclass(frozen=True, slots=True)
class IndexFigures:
    """Figures of a run's record and index."""

    items: int
    passages: int
    index_bytes: int
    """Estimated."""
    waiting_bytes: int
    """Bytes of originals that wait to be indexed."""
    first_iteration: int
    """First iteration that the index covers."""
    recorded_bytes: int = 0
    """Bytes of all recorded originals, whether or not they are still stored."""


class Matches(NamedTuple):
    """What the index returns for a query."""

    best: Best
    lenders: Mapping[int, Sequence[Lender]]
    """The neighbours of each hit, and their neighbours, as far as they may be ranked; whether or not they match."""


@dataclass(frozen=True, slots=True)
class Unindexed:
    """Items that were not indexed at the time of a search."""

    items: int = 0
    first_iteration: int = 0
    """The first iteration that has one of them; 0 if there are none."""
    last_iteration: int = 0
    newest: bool = False
    """Whether no item belongs to a later iteration than they do."""


def _go_on() -> None:
    """Check nothing: the work cannot be cancelled."""


def _nowhere(_: Sequence[str]) -> None:
    """Fetch nothing: no original is elsewhere."""


def _never() -> bool:
    """Never time out."""
    return False


class History:
    """One run's record and index. Thread-safe."""

    def __init__(
        self,
        limits: SearchLimits,
        read: Callable[[Sequence[str]], Mapping[str, bytes]],
        alive: Callable[[Sequence[str]], AbstractSet[str]] | None = None,
        bounds: EventCounts[str] | None = None,
    ) -> None:
        """Create an empty history.

        `read` returns the live originals of ids from the run's part of the stash, `alive` the ids that have one.
        `bounds` counts how often the index was halved, and the items beyond `RECORDED_ITEMS`.
        """
        self._bounds = bounds if bounds is not None else EventCounts()
        self._bound = limits.index_bytes
        self.read = read
        self.alive: Callable[[Sequence[str]], AbstractSet[str]] = alive or (lambda ids: read(ids).keys())

        self._record_lock = threading.Lock()
        self._record = ItemRecords()
        self._states = array("B")
        """The state of each number."""
        self._costs = array("q")
        """Bytes of each number's postings in the index."""
        self._queue: deque[int] = deque()
        self._queued_bytes = 0
        self._recorded_bytes = 0
        """Bytes of the originals of all numbers in use."""
        self._removed: list[int] = []
        """Numbers that are still to be removed from the index."""
        self._elsewhere: set[int] = set()
        """Numbers whose originals have yet to be fetched."""
        self._fetch: Callable[[Sequence[str]], object] = _nowhere
        self._first_iteration = 1
        self._resting = False
        """Whether the postings were dropped, to be made again at the next search."""

        self._fetch_lock = threading.Lock()

        self._index_lock = threading.Lock()
        self._index = Index()
        self._rebuilds = 0
        """How often the index was dropped and built again. Written under both locks."""
        self._current = -1
        """Number of the item that is being indexed; -1 if none is. Written under both locks."""
        self._current_left = 0
        self._current_start = 0
        self._steps: Iterator[int] = iter(())

    def record(self, item: HistoryItem) -> None:
        """Record an item and queue its text. A known id changes nothing."""
        self.record_all((item,))

    def record_all(self, items: Iterable[HistoryItem]) -> None:
        """Record items in their order, as `record` does. The caller bounds their number: 1 us each, under the lock."""
        with self._record_lock:
            for item in items:
                if self._record.number(item.stash_id) < 0:
                    self._append(item)
                    self._forget_excess()

    def record_elsewhere(self, items: Iterable[HistoryItem], fetch: Callable[[Sequence[str]], object]) -> None:
        """Record items whose originals have yet to be fetched, in their order, as `record_all` does.

        `fetch` stores the available originals of ids where `read` finds them. It may take long, and what it raises ends
        the indexing or the search that needs it; the next one continues from there.
        """
        with self._record_lock:
            self._fetch = fetch
            for item in items:
                if self._record.number(item.stash_id) < 0:
                    self._elsewhere.add(self._record.end)
                    self._append(item)
                    self._forget_excess()

    def record_again(self, stash_id: str) -> None:
        """Index an item's text again after it expired and was stored again, perhaps with other escapes."""
        with self._record_lock:
            number = self._record.number(stash_id)
            item = self._record.item(number) if number >= 0 else None
            if item is None or self._states[number] == _ItemState.LEFT_OUT:
                return
            if self._states[number] == _ItemState.WAITING and number != self._current:
                return  # its text has not been read yet
            self._discard(number)
            self._append(item)

    def index_some(self, limit_bytes: int = INDEX_SLICE) -> int:
        """Index waiting items, oldest first, up to about `limit_bytes`; return the bytes done, 0 if nothing waits.

        For a background thread, so that no answer waits for it. After `drop_index` it does nothing until a search.
        Originals that are fetched count as done, too.
        """
        done = 0
        while done < limit_bytes and not self._resting:
            step = self._next(_go_on)
            if step is None:
                break
            done += step
        return done

    def finish(self, check: Callable[[], None], enough: Callable[[], bool] = _never) -> int:
        """Index what was queued so far; return the next free item number at the start of the call.

        `check` is called between steps; finished ones are kept if it raises. It ends early once `enough` returns true,
        but not before the first step, so that each search gets further than the previous one.
        """
        with self._record_lock:
            self._resting = False
            end = self._record.end
        while True:
            check()
            with self._record_lock:
                number = self._current if self._current >= 0 else self._queue[0] if self._queue else end
            if number >= end or self._next(check) is None or enough():
                return end

    @property
    def rebuilds(self) -> int:
        """How often the index was dropped and built again: after that, earlier look-ups may miss what it held."""
        return self._rebuilds

    def unindexed(self, query: SearchQuery, end: int, rebuilds: int) -> Unindexed:
        """Return the items below a number that pass the query's filters and are not indexed yet, or only in part.

        `rebuilds` is the number of rebuilds when the search began. If there were more since, no item counts as indexed:
        an item that is indexed now may not have been when it was searched.
        """
        with self._record_lock:
            if rebuilds == self._rebuilds:
                waiting = [self._current] if self._current >= 0 else []
                waiting += self._queue
                state = _ItemState.WAITING
            else:
                waiting = list(range(min(end, len(self._states))))
                state = _ItemState.INDEXED
            allowed = self._record.allowed(query) if waiting else None
            iterations, states = self._record.iterations(), self._states
        found = [
            iterations[number]
            for number in waiting
            if number < end and states[number] <= state and (allowed is None or allowed[number])
        ]
        if not found:
            return Unindexed()
        return Unindexed(len(found), min(found), max(found), newest=max(found) >= max(iterations))

    def fetched(self, numbers: Sequence[int], check: Callable[[], None]) -> list[int]:
        """Return those of the numbers whose originals are here, after the first of the others have been fetched."""
        if self._elsewhere.isdisjoint(numbers):
            return list(numbers)
        self._fetch_some(check, [number for number in numbers if number in self._elsewhere])
        with self._record_lock:
            return [number for number in numbers if number not in self._elsewhere]

    def drop_index(self) -> None:
        """Drop all postings to free memory. They are built again at the next search."""
        with slots.holding(self._index_lock), self._record_lock:
            self._rebuild([number for number, state in enumerate(self._states) if state <= _ItemState.INDEXED])
            self._resting = True

    def item(self, stash_id: str) -> HistoryItem | None:
        """Return the item of an id, whether or not its original is still stored, or None."""
        with self._record_lock:
            number = self._record.number(stash_id)
            return None if number < 0 else self._record.item(number)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of originals that wait to be indexed."""
        return self._queued_bytes + self._current_left

    @property
    def first_iteration(self) -> int:
        """First iteration that the index covers."""
        return self._first_iteration

    def figures(self) -> IndexFigures:
        """Return current figures. Does not wait for an index step."""
        return IndexFigures(
            items=len(self._record),
            passages=self._index.passages,
            index_bytes=self._index.bytes,
            waiting_bytes=self.waiting_bytes,
            first_iteration=self._first_iteration,
            recorded_bytes=self._recorded_bytes,
        )

    # For a search.

    def named(self, name: str) -> list[int]:
        """Return numbers of the items with exactly this stash id or call id, newest first.

        Empty call ids match nothing.
        """
        with self._record_lock:
            return self._record.named(name)

    def within(self, numbers: Sequence[int], query: SearchQuery) -> list[int]:
        """Return those of the numbers that pass the query's filters."""
        with self._record_lock:
            return self._record.within(numbers, query)

    def at(self, numbers: Collection[int]) -> dict[int, HistoryItem]:
        """Return the items of numbers, without those that are no longer in use."""
        with self._record_lock:
            return {number: item for number in numbers if (item := self._record.item(number)) is not None}

    def numbers(self, stash_ids: Collection[str]) -> set[int]:
        """Return the numbers of ids, without those that are not known."""
        with self._record_lock:
            return {number for stash_id in stash_ids if (number := self._record.number(stash_id)) >= 0}

    def best_items(
        self, terms: Sequence[str], most: int, query: SearchQuery, behind: AbstractSet[int] = frozenset()
    ) -> Matches:
        """Return the best passage of each of the best items within the query's filters, and which items lend to which.

        The items `behind` come after all others, at most `most` of each.
        """
        lenders: dict[int, Sequence[Lender]] = {}

        def neighbours(numbers: Iterable[int]) -> list[int]:
            with self._record_lock:
                lenders.update((number, self._record.lenders(number)) for number in numbers)
            return [lender.number for number in numbers for lender in lenders[number]]

        with slots.holding(self._index_lock):
            self._take_removed()
            best = self._index.best_of_items(terms, most, self._allowed(query), behind, neighbours)
        others = {hit.item for hit in best.neighbours}
        others.update(lender.number for hit in best.hits[:ANSWERS] for lender in lenders[hit.item])
        neighbours(others - lenders.keys())
        return Matches(best, lenders)

    def best_of(self, number: int, terms: Sequence[str]) -> Hit | None:
        """Return the best passage of one item."""
        with slots.holding(self._index_lock):
            self._take_removed()
            with self._record_lock:
                only = self._record.only([number])
            return next(iter(self._index.best(terms, 1, only)), None)

    def passages_of(self, number: int) -> Sequence[tuple[int, int]]:
        """Return the byte ranges of an item's passages that are indexed."""
        with slots.holding(self._index_lock):
            return self._index.passages_of(number)

    def holding(self, number: int, terms: Iterable[str]) -> list[tuple[tuple[int, int], set[str]]]:
        """Return the byte ranges of an item's passages with at least one of the terms, each with its terms."""
        with slots.holding(self._index_lock):
            return self._index.holding(number, terms)

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Return the number of passages with each term."""
        with slots.holding(self._index_lock):
            return self._index.document_frequencies(terms)

    def _allowed(self, query: SearchQuery) -> Allowed | None:
        with self._record_lock:
            return self._record.allowed(query)

    # The following methods run under the record lock.

    def _append(self, item: HistoryItem) -> None:
        number = self._record.end
        try:
            self._states.append(_ItemState.WAITING)
            self._costs.append(0)
            self._queue.append(self._record.add(item))
        except BaseException:  # out of memory: no column may be longer than the record
            del self._states[self._record.end :], self._costs[self._record.end :]
            if self._record.end > number:
                self._states[number] = _ItemState.GONE
            raise
        self._queued_bytes += item.size
        self._recorded_bytes += item.size

    def _forget_excess(self) -> None:
        if len(self._record) > RECORDED_ITEMS:
            self._forget(self._record.oldest())
            self._bounds.add("limits.recorded_items")

    def _forget(self, number: int) -> None:
        self._discard(number)
        self._record.forget(number)

    def _discard(self, number: int) -> None:
        """Take a number out of use. If it is still queued, it is skipped later."""
        self._elsewhere.discard(number)
        item = self._record.item(number)
        if self._states[number] == _ItemState.INDEXED or number == self._current:
            self._removed.append(number)
        elif self._states[number] == _ItemState.WAITING and item is not None:
            self._queued_bytes -= item.size
        if item is not None:
            self._recorded_bytes -= item.size
        self._states[number] = _ItemState.GONE

    def _rebuild(self, numbers: Collection[int]) -> None:
        """Start an empty index and queue `numbers` before the waiting ones. Under both locks."""
        waiting = [number for number in self._queue if self._states[number] == _ItemState.WAITING]
        again = sorted({*numbers, *waiting})
        self._current, self._current_left, self._steps = -1, 0, iter(())
        self._index = Index()
        self._rebuilds += 1
        self._removed.clear()
        for number in again:
            self._states[number] = _ItemState.WAITING
        self._queue = deque(again)
        self._queued_bytes = sum(item.size for number in again if (item := self._record.item(number)) is not None)

    # The following methods take the locks that they need.

    def _next(self, check: Callable[[], None]) -> int | None:
        """Index a step or fetch what it needs. Returns the bytes, or None if nothing waits."""
        done = self._step()
        return self._fetch_some(check) if done is None else done

    def _fetch_some(self, check: Callable[[], None], numbers: Sequence[int] | None = None) -> int | None:
        """Fetch some originals of the items to be indexed next, or of `numbers`.

        Return its bytes, 0 where another thread has fetched it, and None if nothing waits.
        """
        if not self._elsewhere:
            return 0 if self._queue and numbers is None else None
        if not self._fetch_lock.acquire(blocking=False):
            with slots.waiting():
                while not self._fetch_lock.acquire(timeout=FETCH_WAIT):
                    check()
        try:
            with self._record_lock:
                piece, size = self._piece(self._queue if numbers is None else numbers)
                fetch, waits = self._fetch, bool(self._queue)
            if not piece:
                return 0 if waits else None
            fetch(list(piece.values()))
            with self._record_lock:
                there = self.alive(list(piece.values()))
                for number, stash_id in piece.items():
                    if number in self._elsewhere and stash_id not in there:
                        self._forget(number)  # no process has it: if a prompt contains it again, it is recorded as new
                self._elsewhere.difference_update(piece)
            return max(size, 1)
        finally:
            self._fetch_lock.release()

    def _piece(self, numbers: Iterable[int]) -> tuple[dict[int, str], int]:
        """Return the first numbers that can be fetched at once, with their ids, and their bytes. Under the record lock.

        It ends at a number whose original is here: that one can be indexed first.
        """
        piece: dict[int, str] = {}
        size = 0
        for number in numbers:
            item = self._record.item(number)
            if item is None or self._states[number] != _ItemState.WAITING:
                continue
            full = piece and (len(piece) == FETCHED or size + item.size > FETCHED_BYTES)
            if full or number not in self._elsewhere:
                break
            piece[number] = item.stash_id
            size += item.size
        return piece, size

    # The following methods run under the index lock.

    def _step(self) -> int | None:
        """Do one bounded step of indexing; return the bytes processed, None if nothing waits."""
        with slots.holding(self._index_lock):
            self._take_removed()
            if self._current < 0:
                skipped = self._begin()
                if self._current < 0:
                    return skipped
            left = self._current_left
            done = next(self._steps, left)
            cost = self._index.bytes - self._current_start
            if done >= left or cost > self._bound // ITEM_SHARE:
                self._end(_ItemState.INDEXED, cost)
                done = left
            else:
                self._current_left = left - done
            if self._index.bytes > self._bound:
                self._shrink()
            return done

    def _begin(self) -> int | None:
        """Begin the next waiting item. Return its bytes if its original is gone, else None."""
        with self._record_lock:
            if not self._queue or self._queue[0] in self._elsewhere:
                return None
            number = self._queue.popleft()
            item = self._record.item(number)
            if item is None or self._states[number] != _ItemState.WAITING:
                return 0
            self._queued_bytes -= item.size
            self._current, self._current_left = number, item.size
        original = self.read([item.stash_id]).get(item.stash_id)
        if original is None:
            self._end(_ItemState.GONE, 0)
            return item.size
        if len(original) != item.size:
            with self._record_lock:
                if self._record.item(number) is not None:
                    self._recorded_bytes += len(original) - item.size
                    self._record.correct(number, item._replace(size=len(original)))
        self._current_left = len(original)
        self._current_start = self._index.bytes
        self._steps = self._index.add(number, original, item.content_type)
        return None

    def _end(self, state: _ItemState, cost: int) -> None:
        self._steps = iter(())
        with self._record_lock:
            if self._record.item(self._current) is not None:  # otherwise it was removed meanwhile and is in `_removed`
                self._states[self._current] = state
            self._costs[self._current] = max(cost, 0)
            self._current, self._current_left = -1, 0

    def _take_removed(self) -> None:
        if not self._removed:
            return
        with self._record_lock:
            removed, self._removed = self._removed, []
            if self._current in removed:
                self._current, self._current_left, self._steps = -1, 0, iter(())
        for number in removed:
            self._index.remove(number)

    def _shrink(self) -> None:
        """Rebuild the index from the newest iterations, up to half the bound."""
        with self._record_lock:
            if self._current >= 0 and self._states[self._current] == _ItemState.WAITING:
                self._costs[self._current] = self._index.bytes - self._current_start
                self._states[self._current] = _ItemState.INDEXED
            indexed = [number for number, state in enumerate(self._states) if state == _ItemState.INDEXED]
            if len(indexed) < 2:
                return  # a bound smaller than one item's cost
            self._bounds.add("search.index_bytes")
            iterations = self._record.iterations()
            newest = sorted(indexed, key=lambda number: (iterations[number], number), reverse=True)
            costs = list(accumulate(self._costs[number] for number in newest))
            room = bisect_right(costs, self._bound // 2)
            # At least one is left out, so that this ends, and one is kept.
            cut = max(1, min(room, len(newest) - 1))
            kept, left = newest[:cut], newest[cut:]
            for number in left:
                self._states[number] = _ItemState.LEFT_OUT
            # Of an iteration that alone exceeds the bound, the newer part is covered.
            covered = min(iterations[left[0]] + 1, iterations[kept[0]])
            self._first_iteration = max(self._first_iteration, covered)
            self._rebuild(kept)
