"""The ledger: a run's untrimmed history as records, and what was decided about each item.

It caches the result of a fold. A prompt is the history up to some assistant message; the fold evaluates the history at
each of these points in turn, with the policy and limit in force there. So the ledger only grows at its end and an item
only ever shrinks:

    full ──► elided ──► elided further ──► clipped          (an entry's `action` and `kept`)
                    old feedback collapsed                  (its `action` and its stretch's counts)
                    message dropped                         (its record's `dropped`)

If the agent rewrites its history, `rewind` forgets everything from the point where it differs. Earlier decisions are
kept: a trimmed item keeps its bytes.

Records are grouped: a group is an assistant block and everything up to the next one, that is one iteration's calls and
their results. The opening, which precedes the first assistant block, is never trimmed except by the cap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.elide import Kept
from prompt_sidecar.trim.entries import (
    ALONE,
    FEEDBACK_PLACES,
    HEAVY,
    LARGE,
    LIGHT,
    QUEUE_OF,
    Action,
    Ageing,
    Entry,
    Feedback,
    Group,
    Queue,
    Reason,
    Record,
)
from prompt_sidecar.trim.feedback import Waiting
from prompt_sidecar.trim.pairs import Pairs
from prompt_sidecar.trim.sums import Sums


def weighed(opaque: int, factor: float) -> int:
    """Tokens to add for encrypted text, whose calibration factor is `factor` times that of other text."""
    return round(opaque * (factor - 1.0))


def _is_words(entry: Entry) -> bool:
    """Whether an item of a user's message after the opening is the user's own text."""
    return entry.kind is ItemKind.TEXT and entry.feedback is None


class Ledger:
    """A run's records, entries and decisions. Not thread-safe; a run holds it under its lock."""

    def __init__(self) -> None:  # noqa: PLR0915 - one line for each field
        self.records: list[Record] = []
        self.groups: list[Group] = []
        self.pairs = Pairs(self.groups)
        self.queues: dict[Ageing, Queue] = {ageing: Queue() for ageing in Ageing}
        """Items that age: arguments and text of assistant messages; results, images and snapshots of any message."""
        self.feedback = Waiting()
        """Feedback that is not collapsed yet."""
        self.stretches: dict[int, Entry] = {}
        """The first collapsed entry of each stretch of feedback."""
        self.user_texts = 0
        """User messages with text that is neither snapshot nor feedback."""
        self.largest: list[tuple[int, int, int, Entry]] = []
        """Heap of results by tokens, largest first; an element is stale once its entry's tokens have changed."""
        self.large = Queue()
        """Results of more than `LARGE` tokens, which are clipped before smaller ones."""
        self.longest: list[tuple[int, int, int, Entry]] = []
        """Heap of users' own texts after the opening by tokens, longest first; elements become stale likewise."""
        self.words = 0
        """Tokens of users' own texts after the opening."""
        self._kept_whole: list[Entry] = []
        """Results that are kept whole as the oldest: taken out of the heap so that no batch visits them again."""
        self.drop_done = 0
        """Number of groups that dropping has processed."""
        self.held = -1
        """Number of oldest groups whose results stay whole, to keep that prefix cached; -1: not chosen yet."""
        self.carrier: Entry | None = None
        """The clipped item whose label counts the dropped groups; None if none are dropped or no item is suitable."""
        self.carrier_tokens = 0
        """Tokens of the count in the carrier's label, in addition to those of the item."""
        self.counted_by_carrier = 0
        """Dropped groups that the carrier's label counts: those after its own."""
        self.counted_by_placeholder = 0
        """The other dropped groups, which the sidecar's own placeholder message counts."""
        self.total = 0
        """Current tokens of all records."""
        self.opaque = 0
        """The part of `total` that is encrypted text."""
        self.full_opaque = 0
        """Tokens of encrypted text in the untrimmed history."""
        self.reasoning: deque[Entry] = deque()
        """Reasoning that has not been removed, oldest first, including that of dropped messages."""
        self.reasoning_from = 0
        """First message whose reasoning has yet to be looked at for removal."""
        self.reasons = 0
        """Items of reasoning in the untrimmed history."""
        self.closings: list[int] = []
        """Indices of user messages that end the turn before them. A user turn that also answers calls continues the
        turn of those calls, so its messages are not listed."""
        self.reopened = False
        """Whether a rewind has made a finished turn the one that is going on."""
        self._answering = False
        """Whether the user turn at the end of the history answers calls."""
        self.identified = 0
        """Messages with provider ids, for which the provider may require their reasoning."""
        self.mid_block = -1
        """The group whose assistant block was incomplete when a message before it was edited; -1: none."""
        self.prompts: list[int] = []
        """Lengths of the history at which prompts were returned that would be the same now; ascending."""
        self.altered = False
        """Whether anything was ever decided that changed a prompt which was returned, or its reasoning."""
        self.rewound_to = -1
        """The record from which the prompt at hand goes on otherwise than the one before; -1: it does not, or nothing
        was decided yet. What the model says from there on came of a prompt like this one only if `prompts` has it."""
        self.moved = False
        """Whether a rewind changed the position or the count of our own text."""
        self.newest_words = -1
        """The newest message with a user's own text after the opening; -1: there is none."""
        self.words_done = 0
        """Number of groups that dropping users' own texts, the last resort, has processed."""
        self._spoken = Sums()
        """For each record with a user's own text after the opening its tokens, 0 for the others."""
        self._live = Sums()
        """Tokens of each record, 0 once dropped."""
        self._next_live: dict[int, int] = {}
        self._live_before: dict[int, int] = {}
        """For a dropped record, an index up to which (or down to which) all records are dropped too."""
        self.media = 0
        """Number of images in the history."""
        self.evaluated = 0
        """Number of records at the last evaluation."""
        self.batch_end = 0
        """Number of records at the last batch point; 0: there was none."""
        self.batch_group = -1
        """The group before which the registry is placed, in formats that allow it."""
        self.batches = self.listings = 0
        """Number of batch points, and of those at which registry and placeholder were due to be rewritten."""
        self.listed = self.unfit_since = 0
        """`listed`: the last iteration whose trims the registry lists, where it precedes the history; 0: none yet.
        `unfit_since`: the iteration of the first batch since which no prompt could be made to fit; 0: the last fits."""
        self.names: list[tuple[int, int]] = []
        """Names of what is hidden that are listed under the registry, as places: a message, and which of its names."""
        self.named = 0
        """Number of records when these names were chosen; 0: they were not."""
        self.changed_from = 0
        """The first record that the current evaluation has changed."""
        self.dirty: set[int] = set()
        """Records whose rendering has changed since the caller last cleared this."""
        self.by_id: dict[str, Entry] = {}
        self.not_holdable = 0
        self.repeated: list[tuple[Entry, int]] = []
        """Results that were returned again, each with the iteration of the newer copy, until `take_repeated`."""
        self.task = -1
        """Index of the first user message, which is never touched; -1: none yet."""

    @property
    def iteration(self) -> int:
        """The iteration of a prompt that ends here: the number of assistant blocks plus one."""
        return len(self.groups) + 1

    def __len__(self) -> int:
        return len(self.records)

    @property
    def chain(self) -> bytes:
        """Digest of the whole history."""
        return self.records[-1].chain if self.records else b""

    def append(self, record: Record) -> None:
        """Add a message at the end of the history and set its group."""
        index = len(self.records)
        if record.role is Role.ASSISTANT and (index == 0 or self.records[-1].role is not Role.ASSISTANT):
            self.groups.append(Group(index, len(self.groups), len(self.groups)))
        record.group = len(self.groups) - 1
        if self.task < 0 and record.role is Role.USER:
            self.task = index
        if 0 <= self.rewound_to <= index and record.role is Role.ASSISTANT:
            goes_on = index > self.rewound_to and self.records[-1].role is Role.ASSISTANT
            # Of the lengths that are left, none is greater than that to which the rewind went.
            came_of_another = self.records[-1].foreign if goes_on else self.prompts[-1:] != [index]
            record.foreign = record.foreign or came_of_another
        self.records.append(record)
        self.total += record.tokens
        self.opaque += record.opaque
        self.full_opaque += record.full_opaque
        self._live.append(record.tokens)
        self.media += record.media
        self.identified += record.identified
        self._answering = record.role is Role.USER and (bool(record.answers) or self._answering)
        if record.role is Role.USER and record.entries and not self._answering:
            self.closings.append(index)
        self.pairs.add(record)
        if record.pinned:
            self.pin(index)
        elif record.kept and record.group >= 0:
            self.groups[record.group].pinned = True
        if record.role is Role.USER:
            self._number_feedback(record)
        for entry in record.entries:
            if not entry.recalled:
                self.by_id[entry.stash_id] = entry
            self.not_holdable += not entry.holdable
            if entry.kind is ItemKind.REASONING:
                self.reasons += 1
                self.reasoning.append(entry)
            elif not record.pinned:
                self._queue(record, entry)
        self._take_words(record)
        self._spoken.append(record.tokens if record.words else 0)

    def _take_words(self, record: Record) -> None:
        """Determine whether a message holds a user's own text after the opening, and count it."""
        record.words = False
        if record.role is not Role.USER or record.group < 0:
            return
        for entry in record.entries:
            if _is_words(entry):
                record.words = True
                self.newest_words = entry.message
                self.words += 0 if record.dropped else entry.tokens
                if entry.holdable and not (entry.fixed or record.pinned):
                    self.offer_words(entry)

    def offer_words(self, entry: Entry) -> None:
        """Add a user's text to the heap, with its current tokens."""
        heappush(self.longest, (-entry.tokens, entry.message, entry.item, entry))

    def pop_longest(self) -> Entry | None:
        """Remove a user's longest text from the heap and return it, the oldest of equals; None if there is none."""
        while self.longest:
            tokens, _, _, entry = heappop(self.longest)
            record = self.records[entry.message]
            if -tokens == entry.tokens and not (record.pinned or record.dropped):
                return entry
        return None

    def count_words(self) -> None:
        """Count users' own texts again."""
        self.longest, self.words, self.newest_words = [], 0, -1
        for record in self.records:
            self._take_words(record)
        self._spoken = Sums(record.tokens if record.words and not record.dropped else 0 for record in self.records)

    def _number_feedback(self, record: Record) -> None:
        """Assign user texts to stretches of feedback; any other user text ends a stretch."""
        texts = [entry for entry in record.entries if entry.kind is ItemKind.TEXT]
        self.user_texts += any(entry.feedback is None for entry in texts)
        for entry in texts:
            entry.stretch = self.user_texts

    def _queue(self, record: Record, entry: Entry) -> None:
        """Put an entry into the queue of its kind. Of user messages only snapshots, feedback and images are queued."""
        if entry.fixed:
            return
        if entry.feedback is not None and record.group >= 0:
            self.feedback.append(entry)
            return
        if record.group < 0 and (entry.kind is not ItemKind.SNAPSHOT or entry.message == self.task):
            return
        ageing = QUEUE_OF.get(entry.kind)
        if ageing is None or (ageing in LIGHT and record.role is not Role.ASSISTANT):
            return
        self.queues[ageing].entries.append(entry)
        if entry.kind is ItemKind.RESULT:
            self.offer(entry)
            if entry.full_tokens > LARGE:
                self.large.entries.append(entry)

    def offer(self, entry: Entry) -> None:
        """Put a result into the heap of `pop_largest` with its current tokens."""
        heappush(self.largest, (-entry.tokens, entry.message, entry.item, entry))

    def pop_largest(self) -> Entry | None:
        """Remove and return the result with the most tokens, the oldest of equals; None if there is none.

        Results of the oldest groups that are kept whole are not returned until `release`.
        """
        while self.largest:
            tokens, _, _, entry = heappop(self.largest)
            if -tokens == entry.tokens and entry.action is not Action.CLIPPED:
                record = self.records[entry.message]
                if record.group < self.held:
                    self._kept_whole.append(entry)
                elif not record.dropped and not record.pinned:
                    return entry
        return None

    def pin(self, index: int) -> None:
        """Pin a message: what is trimmed stays trimmed, and nothing more will be."""
        record = self.records[index]
        record.pinned = True
        if record.group >= 0:
            self.groups[record.group].pinned = True

    def set_entry(self, entry: Entry, action: Action, kept: Kept | None, tokens: int, reason: Reason) -> None:
        """Record a decision about an item."""
        record = self.records[entry.message]
        saved = entry.tokens - tokens
        if entry.action is not None and entry.decided != self.iteration:
            entry.earlier = (*entry.earlier, (entry.decided, entry.tokens))
        entry.action, entry.kept, entry.tokens, entry.reason = action, kept, tokens, reason
        entry.decided = self.iteration
        entry.first = entry.first or entry.decided
        record.tokens -= saved
        if record.words and _is_words(entry):
            self.words -= saved
        self.change_total(entry.message, -saved)
        self.mark(entry.message)

    def remove_reasoning(self, entry: Entry, tokens: int, *, drop: bool) -> None:
        """Remove an item of reasoning.

        Args:
            entry: the item.
            tokens: tokens of the label that replaces it.
            drop: whether its message, which holds nothing else, is dropped.
        """
        record = self.records[entry.message]
        if not record.dropped:
            self.set_entry(entry, Action.CLIPPED, None, tokens, Reason.REASONING)
            self.opaque -= entry.opaque
        else:  # its tokens were subtracted when its message was dropped
            record.tokens -= entry.tokens - tokens
            entry.action, entry.tokens, entry.reason = Action.CLIPPED, tokens, Reason.REASONING
            entry.decided = self.iteration
            entry.first = entry.first or entry.decided
        record.opaque -= entry.opaque
        entry.advertised = False
        if drop and not record.dropped:
            self.drop_record(entry.message, self.iteration, Reason.REASONING)

    def restore_reasoning(self, has: Callable[[Entry], bool]) -> None:
        """Undo the removal of reasoning after the user's last text, oldest first in `reasoning` again.

        `has`: whether the prompt at hand holds an item. What it does not hold takes no tokens, and stays removed.
        """
        restored = False
        for index in range(self.closed, len(self.records)):
            record = self.records[index]
            for entry in record.entries:
                if entry.kind is not ItemKind.REASONING or entry.action is not Action.CLIPPED or not has(entry):
                    continue
                if record.dropped and record.dropped_for is Reason.REASONING:
                    record.dropped = False
                    self.change_total(index, record.tokens)
                    self.opaque += record.opaque
                if not record.dropped:
                    self.change_total(index, entry.full_tokens - entry.tokens)
                    self.opaque += entry.opaque
                record.tokens += entry.full_tokens - entry.tokens
                record.opaque += entry.opaque
                entry.action, entry.reason, entry.tokens = None, None, entry.full_tokens
                entry.decided, entry.first, entry.earlier = 0, 0, ()
                self.mark(index)
                restored = True
        if restored:
            self.queue_reasoning()

    def queue_reasoning(self, first: int = 0) -> None:
        """Have `reasoning` hold all that is not removed, from message `first` on, oldest first."""
        self.reasoning_from = first
        self.reasoning = deque(
            entry
            for record in islice(self.records, first, None)
            for entry in record.entries
            if entry.kind is ItemKind.REASONING and entry.action is None
        )

    def weight(self, opaque_factor: float) -> int:
        """Current tokens of all records. `opaque_factor`: factor of encrypted text over that of other text."""
        return self.total + weighed(self.opaque, opaque_factor)

    @property
    def closed(self) -> int:
        """Number of messages before the user's last text."""
        return self.closings[-1] if self.closings else 0

    def change_total(self, index: int, change: int) -> None:
        """Add `change` to the tokens of a record that is not dropped."""
        self.total += change
        self._live.add(index, change)
        if self.records[index].words:
            self._spoken.add(index, change)

    def tokens_between(self, first: int, last: int) -> int:
        """Current tokens of the records from index `first` up to, not including, `last`."""
        return self._live.before(last) - self._live.before(first)

    def spoken_between(self, first: int, last: int) -> int:
        """The part of `tokens_between` in messages with a user's own text, which stay without their iteration."""
        return self._spoken.before(last) - self._spoken.before(first)

    def next_live(self, index: int) -> int:
        """The first record from `index` on that is not dropped; the ledger's length if there is none."""
        passed: list[int] = []
        while index < len(self.records) and self.records[index].dropped:
            passed.append(index)
            index = self._next_live.get(index, index + 1)
        self._next_live.update(dict.fromkeys(passed, index))
        return index

    def live_before(self, index: int) -> int:
        """The last record before `index` that is not dropped; -1 if there is none."""
        index -= 1
        passed: list[int] = []
        while index >= 0 and self.records[index].dropped:
            passed.append(index)
            index = self._live_before.get(index, index - 1)
        self._live_before.update(dict.fromkeys(passed, index))
        return index

    def mark(self, index: int) -> None:
        """Mark a record as changed, so that it is rendered again."""
        self.records[index].touched += 1
        self.dirty.add(index)
        self.changed_from = min(self.changed_from, index)

    def drop(self, group: int, reason: Reason = Reason.RESIDUE, *, words: bool = False) -> bool:
        """Drop a group's messages except those that stay and, unless `words`, those with a user's own text.

        Returns whether any was dropped.
        """
        any_dropped, counted, before = False, False, False
        for index in self.members(group):
            record = self.records[index]
            if record.dropped and record.dropped_for in ALONE:
                # The label of its stretch is dropped too, so the placeholder of dropped iterations counts it now.
                record.dropped_for, record.dropped_in = reason, self.iteration
                counted = True
                self.mark(index)
            elif record.dropped:
                before = True
            if record.dropped or record.stays or (record.words and not words):
                continue
            any_dropped = True
            self.drop_record(index, self.iteration, reason)
        if (any_dropped or counted) and not before:
            self._count_dropped_group(group)
        return any_dropped

    def drop_record(self, index: int, iteration: int, reason: Reason = Reason.RESIDUE) -> None:
        """Drop one message."""
        record = self.records[index]
        record.dropped = True
        if record.words:
            self.words -= sum(entry.tokens for entry in record.entries if _is_words(entry))
        record.dropped_in = iteration
        record.dropped_for = reason
        self.change_total(index, -record.tokens)
        self.opaque -= self.records[index].opaque
        self.mark(index)

    def hold(self, groups: int) -> None:
        """Keep the results of the oldest `groups` groups whole."""
        self.held = groups
        self.drop_done = max(self.drop_done, groups)
        for ageing in HEAVY:
            queue = self.queues[ageing]
            while queue.head is not None and self.records[queue.head.message].group < groups:
                queue.done += 1

    def release(self) -> bool:
        """Stop keeping the oldest groups whole; return whether any was."""
        any_held, self.held = self.held > 0, 0
        if any_held:
            self.drop_done = 0
            self.large.done = 0
            for ageing in HEAVY:
                self.queues[ageing].done = 0
        for entry in self._kept_whole:
            self.offer(entry)
        self._kept_whole = []
        return any_held

    def members(self, group: int) -> range:
        """Indices of a group's records."""
        last = self.groups[group + 1].start if group + 1 < len(self.groups) else len(self.records)
        return range(self.groups[group].start, last)

    def units(self) -> Sequence[int]:
        """For each group the first one of those that can only be dropped together with it."""
        firsts: list[int] = []
        first = end = -1
        for number, group in enumerate(self.groups):
            if number > end:
                first = number
            end = max(end, group.reach)
            firsts.append(first)
        return firsts

    def trimmed(self) -> Iterator[tuple[Record, Entry]]:
        """Trimmed entries in the order of their messages."""
        for record in self.records:
            if record.dropped or record.touched:
                for entry in record.entries:
                    if entry.action is not None or record.dropped:
                        yield record, entry

    def _forget_records(self, length: int) -> None:
        """Forget records from `length` on, and what is counted of them."""
        for record in self.records[length:]:
            self.full_opaque -= record.full_opaque
            self.identified -= record.identified
            for entry in record.entries:
                self.reasons -= entry.kind is ItemKind.REASONING
                self.not_holdable -= not entry.holdable
                if self.by_id.get(entry.stash_id) is entry:
                    del self.by_id[entry.stash_id]
        del self.records[length:]

    def rewind(self, length: int, sent: Collection[int] | None = None) -> None:
        """Forget the history from record `length` on; decisions about the rest are kept.

        `sent`: the records that the prompt at hand has; None: all. What was dropped and is not among them has no text
        any more, so it stays dropped.
        """
        if length >= len(self.records):
            return
        before = self._own_places()
        self._forget_records(length)
        while self.groups and self.groups[-1].start >= length:
            self.groups.pop()
        while self.prompts and self.prompts[-1] > length:
            self.prompts.pop()
        decided = self.altered or any(record.dropped or record.touched for record in self.records)
        self.rewound_to = length if decided else -1
        for queue in (*self.queues.values(), self.large):
            while queue.entries and queue.entries[-1].message >= length:
                queue.entries.pop()
            queue.done = min(queue.done, len(queue.entries))
        self.queue_reasoning()
        while self.closings and self.closings[-1] >= length:
            self.closings.pop()
            self.reopened = True
        self._answering = False
        for record in reversed(self.records):
            if record.role is not Role.USER or self._answering:
                break
            self._answering = bool(record.answers)
        self.mid_block = min(self.mid_block, len(self.groups) - 1)
        self.gather_stretches()
        self.repeated = [each for each in self.repeated if each[0].message < length and each[1] < self.iteration]
        self.drop_done = min(self.drop_done, len(self.groups))
        self.words_done = min(self.words_done, len(self.groups))
        self.held = min(self.held, len(self.groups))
        if self.carrier is not None and self.carrier.message >= length:
            self.carrier, self.carrier_tokens = None, 0
        self.evaluated, self.batch_end = min(self.evaluated, length), min(self.batch_end, length)
        self._forget_names(length)
        self.batch_group = min(self.batch_group, len(self.groups) - 1)
        self.dirty = {index for index in self.dirty if index < length}
        self.pairs.rebuild(self.records)
        for group in self.groups:
            group.pinned = False
        for record in self.records:
            if (record.pinned or record.kept) and record.group >= 0:
                self.groups[record.group].pinned = True
        self._revive_open_units(sent)
        self._live = Sums(0 if record.dropped else record.tokens for record in self.records)
        self._next_live, self._live_before = {}, {}
        self.total = self._live.before(len(self.records))
        self.opaque = sum(record.opaque for record in self.records if not record.dropped)
        self.media = sum(record.media for record in self.records)
        self.count_dropped_groups()
        self.rebuild_largest()
        self.count_words()
        self.moved |= self._own_places() != before

    def _forget_names(self, length: int) -> None:
        self.names = [place for place in self.names if place[0] < length]
        self.named = min(self.named, length)

    def returned(self) -> None:
        """Note that a prompt that ends here is returned."""
        self.rewound_to = -1
        if self.prompts[-1:] != [len(self.records)]:
            self.prompts.append(len(self.records))

    def alter(self, first: int) -> None:
        """Prompts that reach beyond record `first` are no longer what was returned."""
        self.altered |= first < len(self.records)
        while self.prompts and self.prompts[-1] > first:
            self.prompts.pop()

    def _own_places(self) -> tuple[object, ...]:
        """The values that determine positions and counts of our own text inside the history."""
        carrier = self.carrier
        return (
            self.batch_group,
            self.held,
            carrier and (carrier.message, carrier.item),
            self.counted_by_carrier,
            self.counted_by_placeholder,
        )

    def count_dropped_groups(self) -> None:
        """Count the dropped groups again."""
        self.counted_by_carrier = self.counted_by_placeholder = 0
        whole = (record for record in self.records if record.dropped and record.dropped_for not in ALONE)
        for group in {record.group for record in whole}:
            self._count_dropped_group(group)

    def _count_dropped_group(self, group: int) -> None:
        if self.carrier is None or group < self.records[self.carrier.message].group:
            self.counted_by_placeholder += 1
        else:
            self.counted_by_carrier += 1

    def rebuild_largest(self) -> None:
        """Rebuild the heap of results, after entries changed elsewhere than at the end."""
        self.largest = [
            (-entry.tokens, entry.message, entry.item, entry) for entry in self.queues[Ageing.RESULTS].entries
        ]
        heapify(self.largest)
        self._kept_whole = []

    def has_label(self, stretch: int) -> bool:
        """Whether a stretch of feedback has a label in the prompt."""
        head = self.stretches.get(stretch)
        return head is not None and not self.records[head.message].dropped

    def collapse(self, entry: Entry, count: Callable[[str], int]) -> None:
        """Count feedback in the label of its stretch, which replaces the stretch's first collapsed message.

        Later messages are dropped if they hold nothing else and their neighbours may be adjacent.
        """
        assert entry.feedback is not None
        if not self.has_label(entry.stretch):
            self.stretches[entry.stretch] = entry
        head = self.stretches[entry.stretch]
        counts = list(head.counts or (0,) * len(Feedback))
        counts[FEEDBACK_PLACES[entry.feedback]] += 1
        head.counts = tuple(counts)
        self.set_entry(head, Action.COLLAPSED, None, count(elide.collapsed(head.counts)), Reason.FEEDBACK)
        if entry is head:
            return
        self.set_entry(entry, Action.COLLAPSED, None, count(elide.COLLAPSED), Reason.FEEDBACK)
        record = self.records[entry.message]
        alone = not (record.calls or record.answers) and all(
            each.action is Action.COLLAPSED and not each.counts for each in record.entries
        )
        if alone and self._can_drop(entry.message):
            self.drop_record(entry.message, self.iteration, Reason.FEEDBACK)

    def _can_drop(self, index: int) -> bool:
        """Whether dropping a message leaves no invalid pair of neighbours, such as two assistant messages."""
        before, after = self.live_before(index), self.next_live(index + 1)
        accepted = (Role.USER, Role.TOOL)
        return before >= 0 and (
            self.records[before].role in accepted
            or (after < len(self.records) and self.records[after].role in accepted)
        )

    @staticmethod
    def annotate(entry: Entry, feedback: Feedback | None) -> None:
        """Mark a user's text as feedback or (None) a snapshot, as the agent annotated it. Call `requeue` afterwards."""
        if entry.fixed:
            return
        entry.annotated, entry.feedback = True, feedback
        if feedback is None:
            entry.kind = ItemKind.SNAPSHOT

    def requeue(self) -> None:
        """Fill the queues again; only valid before the first decision."""
        for queue in (*self.queues.values(), self.large):
            queue.entries, queue.done = [], 0
        self.feedback, self.largest, self.user_texts = Waiting(), [], 0
        for record in self.records:
            if record.role is Role.USER:
                self._number_feedback(record)
            if not record.pinned:
                for entry in record.entries:
                    if entry.kind is not ItemKind.REASONING:
                        self._queue(record, entry)
        self.count_words()

    def take_repeated(self) -> list[tuple[Entry, int]]:
        """Results that were returned again since the last call, each with the iteration of the newer copy."""
        taken, self.repeated = self.repeated, []
        return taken

    def gather_stretches(self) -> None:
        """Find the labels of stretches again; their counts stay as they were written."""
        self.stretches = {}
        self.user_texts = 0
        self.feedback = Waiting()
        self.task = next((index for index, record in enumerate(self.records) if record.role is Role.USER), -1)
        for record in self.records:
            for entry in record.entries:
                self.user_texts = max(self.user_texts, entry.stretch)
                if entry.counts and entry.action is Action.COLLAPSED:
                    self.stretches[entry.stretch] = entry
                elif entry.feedback is not None and record.group >= 0 and entry.action is None and not record.pinned:
                    self.feedback.append(entry)

    def _revive_open_units(self, sent: Collection[int] | None) -> None:
        """Restore what was sent of the last unit of groups, and of those that a rewind has left with open calls.

        If they were dropped, later answers would lack their calls.
        """
        first = len(self.groups) - 1
        for record in self.records:
            if record.dropped and record.calls and self.groups[record.group].unanswered:
                first = min(first, record.group)
                break
        for group in range(first, -1, -1):
            if self.groups[group].reach >= first or group == first:
                first = group
        for group in range(max(first, 0), len(self.groups)):
            for index in self.members(group):
                record = self.records[index]
                if (
                    not record.dropped
                    or record.dropped_for is Reason.REASONING
                    or (sent is not None and index not in sent)
                ):
                    continue
                if record.removed:  # it went with its iteration later, or before: it stays away by itself
                    record.dropped_for, record.dropped_in = Reason.REASONING, record.entries[0].decided
                else:
                    record.dropped = False
                self.mark(index)
        self.drop_done = min(self.drop_done, max(first, 0))
        self.words_done = min(self.words_done, max(first, 0))
