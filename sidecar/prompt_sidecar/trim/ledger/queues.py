"""The items that may be trimmed, ordered by age and by size."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import msgspec

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import HEAVY, LARGE, LIGHT, QUEUE_OF, SMALL, Action, Ageing, Entry, Record
from prompt_sidecar.trim.ledger.decisions import is_words
from prompt_sidecar.trim.ledger.messages import Messages


@dataclass(slots=True)
class Queue:
    """Entries of one kind, oldest first, and how many clipping has processed."""

    entries: list[Entry] = field(default_factory=list)
    done: int = 0

    @property
    def head(self) -> Entry | None:
        """The entry to be clipped next."""
        return self.entries[self.done] if self.done < len(self.entries) else None

    def advance(self) -> None:
        """Go on to the entry after the head."""
        self.done += 1

    def remove(self, entry: Entry) -> None:
        """Take an entry out, if it is in the queue."""
        at = bisect_left(self.entries, (entry.message, entry.item), key=_place)
        if at < len(self.entries) and self.entries[at] is entry:
            del self.entries[at]
            self.done -= at < self.done

    def rewind(self, length: int) -> None:
        """Forget the entries of messages from `length` on."""
        while self.entries and self.entries[-1].message >= length:
            self.entries.pop()
        self.done = min(self.done, len(self.entries))


def _place(entry: Entry) -> tuple[int, int]:
    return entry.message, entry.item


class Largest:
    """Entries by their tokens, largest first; the older of equal ones first."""

    def __init__(self, records: Sequence[Record], entries: Iterable[Entry] = ()) -> None:
        """Begin with these entries of these records."""
        self._records = records
        self._heap = [(-entry.tokens, entry.message, entry.item, entry) for entry in entries]
        heapify(self._heap)

    def offer(self, entry: Entry) -> None:
        """Let `take` return an entry, by its current tokens."""
        heappush(self._heap, (-entry.tokens, entry.message, entry.item, entry))

    def take(self) -> Entry | None:
        """Remove and return the largest entry, or None if there is none.

        Entries that have changed since they were offered, and those of pinned or dropped messages, are skipped.
        """
        while self._heap:
            tokens, _, _, entry = heappop(self._heap)
            record = self._records[entry.message]
            if -tokens == entry.tokens and not (record.dropped or record.pinned):
                return entry
        return None


class QueuesState(msgspec.Struct, frozen=True, array_like=True):
    """How far the queues were processed."""

    done: list[int]
    """Entries of each queue that clipping has processed, in the order of `Ageing`."""
    held: int


class Queues:
    """Items of messages that are not pinned.

    These are arguments and text of assistant messages; results, images and snapshots of any message.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.by_age = {ageing: Queue() for ageing in Ageing}
        self.large = Queue()
        """Results of more than `LARGE` tokens, which are clipped before smaller ones."""
        self.small = Queue()
        """Results of up to `SMALL` tokens, which are clipped last."""
        self.largest = Largest(messages.records)
        """Results; `pop_largest` takes from it."""
        self.longest = Largest(messages.records)
        """Users' own texts after the opening."""
        self.newest_words = -1
        """The newest message with such a text; -1 if there is none."""
        self._kept_whole: list[Entry] = []
        """Results that are kept whole as the oldest: removed from the heap so that no batch visits them again."""
        self.held = -1
        """Number of oldest groups whose results stay whole, to keep that prefix cached; -1 if not chosen yet."""
        self._repeated: list[tuple[Entry, int]] = []
        """Results that were returned again, each with the newer copy's iteration, until `take_repeated`."""

    # -- life --------------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Add the items of a new message, after `Decisions` has found out whether it has a user's words."""
        self._append_words(record)
        for entry in record.entries if not record.pinned else ():
            ageing = self._ageing(record, entry)
            if ageing is None:
                continue
            self.by_age[ageing].entries.append(entry)
            if entry.kind is ItemKind.RESULT:
                self.largest.offer(entry)
                if entry.full_tokens > LARGE:
                    self.large.entries.append(entry)
                elif entry.full_tokens <= SMALL:
                    self.small.entries.append(entry)

    def _append_words(self, record: Record) -> None:
        for entry in filter(is_words, record.entries if record.words else ()):
            self.newest_words = entry.message
            if entry.holdable and not entry.fixed:
                self.longest.offer(entry)

    def leave_settled(self) -> None:
        """Subtract the processed entries that precede a compaction, as the queues do not hold them."""
        settled = Counter(
            self._ageing(record, entry)
            for record in self._messages.records[: self._messages.settled]
            for entry in record.entries
        )
        for ageing, queue in self.by_age.items():
            queue.done = max(0, queue.done - settled[ageing])

    def _ageing(self, record: Record, entry: Entry) -> Ageing | None:
        """Return the queue of an entry, or None. User messages have only snapshots and images in queues."""
        if entry.fixed or (entry.feedback is not None and record.group >= 0):
            return None
        if record.group < 0 and (entry.kind is not ItemKind.SNAPSHOT or entry.message == self._messages.task):
            return None
        ageing = QUEUE_OF.get(entry.kind)
        return None if ageing in LIGHT and record.role is not Role.ASSISTANT else ageing

    def pin(self, record: Record) -> None:
        """Remove the items of a message that was pinned."""
        for entry in record.entries:
            for queue in self._all():
                queue.remove(entry)

    def _all(self) -> Iterable[Queue]:
        return (*self.by_age.values(), self.large, self.small)

    def rewind(self, length: int) -> None:
        """Forget the messages from `length` on, after `Messages` did."""
        for queue in self._all():
            queue.rewind(length)
        self.held = min(self.held, len(self._messages.groups))
        now = self._messages.iteration
        self._repeated = [each for each in self._repeated if each[0].message < length and each[1] < now]
        self._order()

    def _order(self) -> None:
        records = self._messages.records
        self.largest, self._kept_whole = Largest(records, self.by_age[Ageing.RESULTS].entries), []
        self.longest, self.newest_words = Largest(records), -1
        for record in records:
            self._append_words(record)

    def save(self) -> QueuesState:
        """Return how far the queues are processed."""
        return QueuesState([self.by_age[ageing].done for ageing in Ageing], self.held)

    def load(self, state: QueuesState) -> None:
        """Load how far the queues were processed elsewhere.

        Annotations and pins may have changed their entries. The positions in the queues of large and of small results
        are not saved: they are found again.
        """
        for queue in self._all():
            queue.entries.clear()
        for record in self._messages.records:
            self.append(record)
        for ageing, done in zip(Ageing, state.done, strict=True):
            self.by_age[ageing].done = done
        self.held = state.held
        self._order()

    # -- by size -----------------------------------------------------------------------------------------------------

    def pop_largest(self) -> Entry | None:
        """Remove and return the result with the most tokens that is not clipped; None if there is none.

        Results of the oldest groups that are kept whole are not returned until `release`.
        """
        while (entry := self.largest.take()) is not None:
            if entry.action is Action.CLIPPED:
                continue
            if self._messages.records[entry.message].group >= self.held:
                return entry
            self._kept_whole.append(entry)
        return None

    # -- the oldest --------------------------------------------------------------------------------------------------

    def hold(self, groups: int) -> None:
        """Keep the results of the oldest `groups` groups whole."""
        self.held = groups
        for ageing in HEAVY:
            queue = self.by_age[ageing]
            while queue.head is not None and self._messages.records[queue.head.message].group < groups:
                queue.advance()

    def release(self) -> bool:
        """Stop keeping the oldest groups whole; return whether any was."""
        any_held, self.held = self.held > 0, 0
        if any_held:
            for queue in (self.large, *(self.by_age[ageing] for ageing in HEAVY)):
                queue.done = 0
        for entry in self._kept_whole:
            self.largest.offer(entry)
        self._kept_whole = []
        return any_held

    # -- repeated results --------------------------------------------------------------------------------------------

    def repeat(self, entry: Entry, iteration: int) -> None:
        """Record that an iteration has returned a result again."""
        self._repeated.append((entry, iteration))

    def take_repeated(self) -> list[tuple[Entry, int]]:
        """Results that were returned again since the last call, each with the iteration of the newer copy."""
        taken, self._repeated = self._repeated, []
        return taken
