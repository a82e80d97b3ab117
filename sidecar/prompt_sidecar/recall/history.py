"""A run's history: the facts of every recorded item, and the index of their texts, which are in the stash.

Theory. Recording delays TrimPrompt's answer, so it only adds an item to the record and to a queue. Its text is indexed
later, in bounded steps: by a background thread slice by slice, and by a search, which first indexes everything that was
queued before it began. There are two locks: the *record lock*, held for a few microseconds, and the *index lock*, held
for one step of indexing or one query. The holder of the index lock may take the record lock, never the reverse. So
recording never waits for an index step.

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
from typing import Final

from prompt_sidecar.recall.counts import Counts
from prompt_sidecar.recall.found import SearchLimits, SearchQuery
from prompt_sidecar.recall.index import Hit, Index
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.record import Allowed, Record

RECORDED_ITEMS: Final = 100_000
"""Most items in one run's history, 240 bytes each: as many as the stash keeps for a run, so that older ones were
evicted."""
INDEX_SLICE: Final = 65_536
"""Bytes indexed in one slice of background work: about 10 ms."""
ITEM_SHARE: Final = 4
"""Divisor of the index's bound that limits one item's postings; the rest of the item is not indexed. So the newest item
is at most half of a rebuilt index."""


class _State(IntEnum):
    """State of an item in the index."""

    WAITING = 0
    INDEXED = 1
    GONE = 2
    """The original was gone when it was to be indexed, or the number is no longer in use."""
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


class History:
    """One run's record and index. Thread-safe."""

    def __init__(
        self,
        limits: SearchLimits,
        read: Callable[[Sequence[str]], Mapping[str, bytes]],
        alive: Callable[[Sequence[str]], AbstractSet[str]] | None = None,
        bounds: Counts[str] | None = None,
    ) -> None:
        """Create an empty history.

        `read` returns the live originals of ids from the run's part of the stash, `alive` the ids that have one.
        `bounds` counts how often the index was halved, and the items beyond `RECORDED_ITEMS`.
        """
        self._bounds = bounds if bounds is not None else Counts()
        self._bound = limits.index_bytes
        self.read = read
        self.alive: Callable[[Sequence[str]], AbstractSet[str]] = alive or (lambda ids: read(ids).keys())

        self._record_lock = threading.Lock()
        self._record = Record()
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
        self._first_iteration = 1
        self._resting = False
        """Whether the postings were dropped, to be made again at the next search."""

        self._index_lock = threading.Lock()
        self._index = Index()
        self._current = -1
        """Number of the item that is being indexed; -1: none. Written under both locks."""
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
                if self._record.number(item.stash_id) >= 0:
                    continue
                self._append(item)
                if len(self._record) > RECORDED_ITEMS:
                    oldest = self._record.oldest()
                    self._discard(oldest)
                    self._record.forget(oldest)
                    self._bounds.add("limits.recorded_items")

    def record_again(self, stash_id: str) -> None:
        """Index an item's text again, which was stored again after it had expired, perhaps with other escapes."""
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
        """Index waiting items, oldest first, up to about `limit_bytes`; return the bytes done, 0 if nothing waits.

        For a background thread, so that no answer waits for it. After `drop_index` it does nothing until a search.
        """
        done = 0
        while done < limit_bytes and not self._resting:
            step = self._step()
            if step is None:
                break
            done += step
        return done

    def finish(self, check: Callable[[], None]) -> None:
        """Index everything queued so far, calling `check` between steps. Finished steps are kept if it raises."""
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
        """Drop all postings to free memory. They are made again at the next search."""
        with self._index_lock, self._record_lock:
            self._rebuild([number for number, state in enumerate(self._states) if state <= _State.INDEXED])
            self._resting = True

    def item(self, stash_id: str) -> HistoryItem | None:
        """The item of an id, whether or not its original is still stored."""
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
        """Current figures. Does not wait for an index step."""
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
        """Numbers of the items with exactly this stash id or call id, newest first. Empty call ids match nothing."""
        with self._record_lock:
            return self._record.named(name)

    def within(self, numbers: Sequence[int], query: SearchQuery) -> list[int]:
        """Those of the numbers that pass the query's filters."""
        with self._record_lock:
            return self._record.within(numbers, query)

    def at(self, numbers: Collection[int]) -> dict[int, HistoryItem]:
        """The items of numbers, without those that are no longer in use."""
        with self._record_lock:
            return {number: item for number in numbers if (item := self._record.item(number)) is not None}

    def numbers(self, stash_ids: Collection[str]) -> set[int]:
        """The numbers of ids, without those that are not known."""
        with self._record_lock:
            return {number for stash_id in stash_ids if (number := self._record.number(stash_id)) >= 0}

    def best_items(
        self, terms: Sequence[str], most: int, query: SearchQuery, behind: AbstractSet[int] = frozenset()
    ) -> tuple[list[Hit], int]:
        """The best passage of each of the best items within the query's filters, and the number of matching items.

        The items `behind` come after all others, at most `most` of each.
        """
        with self._index_lock:
            self._take_removed()
            return self._index.best_of_items(terms, most, self._allowed(query), behind)

    def best_of(self, number: int, terms: Sequence[str]) -> Hit | None:
        """The best passage of one item."""
        with self._index_lock:
            self._take_removed()
            with self._record_lock:
                only = self._record.only([number])
            return next(iter(self._index.best(terms, 1, only)), None)

    def passages_of(self, number: int) -> Sequence[tuple[int, int]]:
        """The byte ranges of an item's passages that are indexed."""
        with self._index_lock:
            return self._index.passages_of(number)

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Number of passages with each term."""
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
        except BaseException:  # out of memory: none may be longer than the record
            del self._states[self._record.end :], self._costs[self._record.end :]
            if self._record.end > number:
                self._states[number] = _State.GONE
            raise
        self._queued_bytes += item.size
        self._recorded_bytes += item.size

    def _discard(self, number: int) -> None:
        """Take a number out of use. If it is still queued, it is skipped later."""
        item = self._record.item(number)
        if self._states[number] == _State.INDEXED or number == self._current:
            self._removed.append(number)
        elif self._states[number] == _State.WAITING and item is not None:
            self._queued_bytes -= item.size
        if item is not None:
            self._recorded_bytes -= item.size
        self._states[number] = _State.GONE

    def _rebuild(self, numbers: Collection[int]) -> None:
        """Start an empty index and queue `numbers` before the waiting ones. Under both locks."""
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
        """Do one bounded step of indexing; return the bytes processed, None if nothing waits."""
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
        """Begin the next waiting item. Return its bytes if its original is gone, else None."""
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
            # At least one is left out, so that this ends, and one is kept.
            cut = max(1, min(room, len(newest) - 1))
            kept, left = newest[:cut], newest[cut:]
            for number in left:
                self._states[number] = _State.LEFT_OUT
            # An iteration that alone exceeds the bound is covered in its newer part.
            covered = min(iterations[left[0]] + 1, iterations[kept[0]])
            self._first_iteration = max(self._first_iteration, covered)
            self._rebuild(kept)
