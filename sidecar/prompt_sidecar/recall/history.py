"""A run's history: the facts of every item ever recorded, and the index over their texts, which the stash keeps.

Theory. Recording stands on the path of TrimPrompt's answer, so it only notes an item and queues it. Its text is indexed
later, in bounded steps: by a background thread a slice at a time, and by a search, which first finishes what was queued
before it began. Two locks keep these apart: the *record lock*, held for a few microseconds, and the *index lock*, held
for one step of indexing or one query; who holds the index lock may take the record lock, never the other way round. So
recording waits for no index step at all.

The index has a bound. Passing it, the index is built anew from the items of the newest iterations, up to half the
bound; search then covers the history from `first_iteration` on. So a run costs at most twice the work that its text
costs, however long it becomes.

An item that is stored again after it had expired gets a new number, and the index forgets the old one. An item on a
branch of the history that the agent has abandoned stays searchable: what it did there is part of what happened.
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
from typing import Final

from prompt_sidecar.recall.counts import Counts
from prompt_sidecar.recall.found import SearchLimits, SearchQuery
from prompt_sidecar.recall.index import Hit, Index
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.record import Allowed, Record

RECORDED_ITEMS: Final = 100_000
"""Items that one run's history knows, 240 bytes each: as many as the stash keeps of a run, so that what is older was
evicted."""
INDEX_SLICE: Final = 65_536
"""Bytes that one slice of background work indexes: about 10 ms."""
ITEM_SHARE: Final = 4
"""One item's postings are at most this part of the index's bound, and the item's rest is not searched: then the newest
item is at most half of an index that was built anew."""


class _State(IntEnum):
    """Where an item stands with the index."""

    WAITING = 0
    INDEXED = 1
    GONE = 2
    """The original was not there when its turn came, or the number is no longer in use."""
    LEFT_OUT = 3
    """The index had no room for it."""


@dataclass(frozen=True, slots=True)
class IndexFigures:
    """What a run has recorded, and what of it can be searched."""

    items: int
    passages: int
    index_bytes: int
    """Estimated."""
    waiting_bytes: int
    """Of originals that wait to be indexed."""
    first_iteration: int
    """First iteration that the index covers."""
    recorded_bytes: int = 0
    """Of the originals that are known, whether or not they are still there."""


class History:
    """One run's record beside the stash, with its index. Thread-safe."""

    def __init__(
        self,
        limits: SearchLimits,
        read: Callable[[Sequence[str]], Mapping[str, bytes]],
        alive: Callable[[Sequence[str]], AbstractSet[str]] | None = None,
        bounds: Counts[str] | None = None,
    ) -> None:
        """`read` gives the live originals of ids, `alive` those of ids that have one: the run's part of the stash.

        `bounds` counts how often the index was halved, and the items that were one too many.
        """
        self._bounds = bounds if bounds is not None else Counts()
        self._bound = limits.index_bytes
        self.read = read
        self.alive: Callable[[Sequence[str]], AbstractSet[str]] = alive or (lambda ids: read(ids).keys())

        self._record_lock = threading.Lock()
        self._record = Record()
        self._states = array("B")
        """Of each number."""
        self._costs = array("q")
        """Bytes of the index that each number's postings took."""
        self._queue: deque[int] = deque()
        self._queued_bytes = 0
        self._recorded_bytes = 0
        """Of the originals of all numbers in use."""
        self._removed: list[int] = []
        """Numbers that the index is still to forget."""
        self._first_iteration = 1
        self._resting = False
        """Whether the postings were dropped, to be made again when somebody searches."""

        self._index_lock = threading.Lock()
        self._index = Index()
        self._current = -1
        """Number of the item that is being indexed; -1: none. Written under both locks."""
        self._current_left = 0
        self._current_start = 0
        self._steps: Iterator[int] = iter(())

    def record(self, item: HistoryItem) -> None:
        """Note an item and queue its text. An id that is known changes nothing."""
        self.record_all((item,))

    def record_all(self, items: Iterable[HistoryItem]) -> None:
        """Note items, in their order, as `record` does each. The caller bounds how many: 1 us each, under the lock."""
        with self._record_lock:
            for item in items:
                if self._record.number(item.stash_id) >= 0:
                    continue
                self._append(item)
                if len(self._record) > RECORDED_ITEMS:
                    oldest = self._record.oldest()
                    self._discard(oldest)
                    self._record.forget(oldest)
                    self._bounds.add("limits.recorded_items")

    def record_again(self, stash_id: str) -> None:
        """An item was stored again after it had expired, perhaps in another spelling: index its text anew."""
        with self._record_lock:
            number = self._record.number(stash_id)
            item = self._record.item(number) if number >= 0 else None
            if item is None or self._states[number] == _State.LEFT_OUT:
                return
            if self._states[number] == _State.WAITING and number != self._current:
                return  # its text has not been read yet
            self._discard(number)
            self._append(item)

    def index_some(self, limit_bytes: int = INDEX_SLICE) -> int:
        """Index what waits, oldest first, up to about `limit_bytes`; returns the bytes done, 0 when nothing waits.

        Off the answer's path, for a background thread. After `drop_index` it waits for a search.
        """
        done = 0
        while done < limit_bytes and not self._resting:
            step = self._step()
            if step is None:
                break
            done += step
        return done

    def finish(self, check: Callable[[], None]) -> None:
        """Index all that is queued by now, calling `check` between steps. What is done stays done if it raises."""
        with self._record_lock:
            self._resting = False
            end = self._record.end
        while True:
            check()
            with self._record_lock:
                number = self._current if self._current >= 0 else self._queue[0] if self._queue else end
            if number >= end or self._step() is None:
                return

    def drop_index(self) -> None:
        """Forget all postings, for their memory. They are made again at the next search."""
        with self._index_lock, self._record_lock:
            self._start_anew([number for number, state in enumerate(self._states) if state <= _State.INDEXED])
            self._resting = True

    def item(self, stash_id: str) -> HistoryItem | None:
        """What is known of an id, whether or not its original is still there."""
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
        """What is recorded and indexed by now. Reads without waiting for an index step."""
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
        """Numbers of the items whose stash id or call id is exactly this, newest first. An empty call id names none."""
        with self._record_lock:
            return self._record.named(name)

    def within(self, numbers: Sequence[int], query: SearchQuery) -> list[int]:
        """Those of the numbers that pass the query's filters."""
        with self._record_lock:
            return self._record.within(numbers, query)

    def at(self, numbers: Collection[int]) -> dict[int, HistoryItem]:
        """The items of numbers; one that is no longer in use is missing."""
        with self._record_lock:
            return {number: item for number in numbers if (item := self._record.item(number)) is not None}

    def best_items(self, terms: Sequence[str], most: int, query: SearchQuery) -> tuple[list[Hit], int]:
        """The best passages of the best items within the query's filters, one each; how many items match."""
        with self._index_lock:
            self._take_removed()
            return self._index.best_of_items(terms, most, self._allowed(query))

    def best_of(self, number: int, terms: Sequence[str]) -> Hit | None:
        """The best passage of one item."""
        with self._index_lock:
            self._take_removed()
            with self._record_lock:
                only = self._record.only([number])
            return next(iter(self._index.best(terms, 1, only)), None)

    def passages_of(self, number: int) -> Sequence[tuple[int, int]]:
        """The byte ranges of an item's passages, as far as it is indexed."""
        with self._index_lock:
            return self._index.passages_of(number)

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """In how many passages each term stands."""
        with self._index_lock:
            return self._index.document_frequencies(terms)

    def _allowed(self, query: SearchQuery) -> Allowed | None:
        with self._record_lock:
            return self._record.allowed(query)

    # What follows runs under the record lock.

    def _append(self, item: HistoryItem) -> None:
        number = self._record.end
        try:
            self._states.append(_State.WAITING)
            self._costs.append(0)
            self._queue.append(self._record.add(item))
        except BaseException:  # memory cannot be had: none may be longer than the record
            del self._states[self._record.end :], self._costs[self._record.end :]
            if self._record.end > number:
                self._states[number] = _State.GONE
            raise
        self._queued_bytes += item.size
        self._recorded_bytes += item.size

    def _discard(self, number: int) -> None:
        """Take a number out of use. One that still waits in the queue is passed over when its turn comes."""
        item = self._record.item(number)
        if self._states[number] == _State.INDEXED or number == self._current:
            self._removed.append(number)
        elif self._states[number] == _State.WAITING and item is not None:
            self._queued_bytes -= item.size
        if item is not None:
            self._recorded_bytes -= item.size
        self._states[number] = _State.GONE

    def _start_anew(self, numbers: Collection[int]) -> None:
        """An empty index, with `numbers` queued for it before what waits. Under both locks."""
        waiting = [number for number in self._queue if self._states[number] == _State.WAITING]
        again = sorted({*numbers, *waiting})
        self._current, self._current_left, self._steps = -1, 0, iter(())
        self._index = Index()
        self._removed.clear()
        for number in again:
            self._states[number] = _State.WAITING
        self._queue = deque(again)
        self._queued_bytes = sum(item.size for number in again if (item := self._record.item(number)) is not None)

    # What follows runs under the index lock.

    def _step(self) -> int | None:
        """One bounded step of indexing: the bytes of what waited that it dealt with, None if nothing waits."""
        with self._index_lock:
            self._take_removed()
            if self._current < 0:
                skipped = self._begin()
                if self._current < 0:
                    return skipped
            left = self._current_left
            done = next(self._steps, left)
            cost = self._index.bytes - self._current_start
            if done >= left or cost > self._bound // ITEM_SHARE:
                self._end(_State.INDEXED, cost)
                done = left
            else:
                self._current_left = left - done
            if self._index.bytes > self._bound:
                self._shrink()
            return done

    def _begin(self) -> int | None:
        """Take up the next item, if one waits. Returns the bytes done with if its original is gone, else None."""
        with self._record_lock:
            if not self._queue:
                return None
            number = self._queue.popleft()
            item = self._record.item(number)
            if item is None or self._states[number] != _State.WAITING:
                return 0
            self._queued_bytes -= item.size
            self._current, self._current_left = number, item.size
        original = self.read([item.stash_id]).get(item.stash_id)
        if original is None:
            self._end(_State.GONE, 0)
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

    def _end(self, state: _State, cost: int) -> None:
        self._steps = iter(())
        with self._record_lock:
            if self._record.item(self._current) is not None:  # else it went meanwhile, as `_removed` knows
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
        """Build the index anew from the newest iterations, up to half the bound."""
        with self._record_lock:
            if self._current >= 0 and self._states[self._current] == _State.WAITING:
                self._costs[self._current] = self._index.bytes - self._current_start
                self._states[self._current] = _State.INDEXED
            indexed = [number for number, state in enumerate(self._states) if state == _State.INDEXED]
            if len(indexed) < 2:
                return  # a bound below what one item costs
            self._bounds.add("search.index_bytes")
            iterations = self._record.iterations()
            newest = sorted(indexed, key=lambda number: (iterations[number], number), reverse=True)
            costs = list(accumulate(self._costs[number] for number in newest))
            room = bisect_right(costs, self._bound // 2)
            # One goes at least, so that this ends; and one stays.
            cut = max(1, min(room, len(newest) - 1))
            kept, left = newest[:cut], newest[cut:]
            for number in left:
                self._states[number] = _State.LEFT_OUT
            # An iteration that alone passes the bound is covered in its newer part.
            covered = min(iterations[left[0]] + 1, iterations[kept[0]])
            self._first_iteration = max(self._first_iteration, covered)
            self._start_anew(kept)
