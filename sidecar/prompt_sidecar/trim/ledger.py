"""The ledger: a run's untrimmed history as records, and what was decided about each item.

It is the cache of a fold. A prompt is the history up to some assistant message; the fold looks at the history at each
of these points in turn, with the policy and limit then in force, and decides. So the ledger only grows at its end and
an item only ever shrinks:

    full ──► elided ──► elided further ──► clipped          (an entry's `action` and `kept`)
                    old feedback collapsed                  (its `action` and its stretch's counts)
                    message dropped                         (its record's `dropped`)

If the agent rewrites its history, `rewind` forgets what comes after the point where it differs. What was decided about
the part that stays, stays: an item that was trimmed keeps its bytes.

Records are grouped: a group is an assistant block with all that follows it up to the next one, which is an iteration's
call with its results. What comes before the first assistant block (the opening) is never trimmed but for the cap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.elide import Kept
from prompt_sidecar.trim.entries import (
    ALONE,
    FEEDBACK_PLACES,
    HEAVY,
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
from prompt_sidecar.trim.sums import Sums


def weighed(opaque: int, factor: float) -> int:
    """What encrypted text takes beyond what it was counted as, by its calibration factor over that of other text."""
    return round(opaque * (factor - 1.0))


class Ledger:
    """A run's records, entries and decisions. Not thread-safe; a run holds it under its lock."""

    def __init__(self) -> None:  # noqa: PLR0915 - one line for each fact that a run keeps
        self.records: list[Record] = []
        self.groups: list[Group] = []
        self.queues: dict[Ageing, Queue] = {ageing: Queue() for ageing in Ageing}
        """What grows old, by what it is. Arguments and text of assistant messages; results, images, snapshots."""
        self.feedback = Waiting()
        """Feedback that is not collapsed."""
        self.stretches: dict[int, Entry] = {}
        """The first collapsed entry of each stretch of feedback."""
        self.user_texts = 0
        """Users' messages with text that is neither snapshot nor feedback."""
        self.largest: list[tuple[int, int, int, Entry]] = []
        """Heap of results by tokens, largest first; an item of it is out of date once its entry has other tokens."""
        self._aside: list[Entry] = []
        """Results of the oldest groups that stay, taken out of the heap: so they are not passed at each batch point."""
        self.drop_done = 0
        """Groups that dropping has passed."""
        self.held = -1
        """Oldest groups whose results stay whole, so that the prefix up to there stays; -1: not chosen yet."""
        self.carrier: Entry | None = None
        """The clipped item whose label counts the dropped groups; None: there are none, or none of their items do."""
        self.carried = 0
        """Tokens that the count takes, beside those of the item."""
        self.gone = 0
        """Dropped groups that the carrier counts: those after its own."""
        self.uncarried = 0
        """Dropped groups that a message of ours counts: the others."""
        self.total = 0
        """Tokens of all records as they are now."""
        self.opaque = 0
        """Of them, those of encrypted text."""
        self.full_opaque = 0
        """Tokens of encrypted text in the untrimmed history."""
        self.reasoning: deque[Entry] = deque()
        """Reasoning that has not been removed, oldest first; of messages that are dropped too."""
        self.reasons = 0
        """Items of reasoning in the untrimmed history."""
        self.closings: list[int] = []
        """Messages in which a user speaks, each of which closes the turn before it. Not those that stand beside answers
        to calls in one turn of the user: the calls' turn goes on with them."""
        self._answering = False
        """Whether the user's turn at the end holds answers to calls."""
        self.identified = 0
        """Messages to which the provider gave ids by which it may demand their reasoning."""
        self.mid_block = -1
        """The group whose assistant block was not complete when the prompt before it was changed; -1: none."""
        self.moved = False
        """Whether a rewind took away what the place or the count of our own text followed from."""
        self._live = Sums()
        """For each record its tokens, 0 once dropped."""
        self._next_live: dict[int, int] = {}
        self._live_before: dict[int, int] = {}
        """For dropped records an index up to which, or down to which, all others are dropped too."""
        self._unit = 0
        self._unit_seen = 0
        self._unit_end = -1
        """The group that `unit_end` was asked for last, the first one that it has not looked at, and what it found."""
        self.media = 0
        """Images in the history."""
        self.evaluated = 0
        """Records that the last evaluation saw."""
        self.batch_end = 0
        """Records that there were at the last batch point; 0: there was none."""
        self.batch_group = -1
        """The group before which the registry stands, in formats that allow it."""
        self.batches = self.listings = 0
        """Batch points, and those of them at which registry and placeholder were to be written anew."""
        self.listed = self.stuck = 0
        """The iteration whose trims the registry lists, where it stands before the history; 0: none yet. And, in any
        format, that of the first batch since which no prompt could be made to fit; 0: the last one fitted."""
        self.changed_from = 0
        """The first record that the evaluation in hand has changed."""
        self.dirty: set[int] = set()
        """Records whose rendering has changed since the caller last cleared this."""
        self.by_id: dict[str, Entry] = {}
        self.not_holdable = 0
        self.repeated: list[tuple[Entry, int]] = []
        """Results that came again, each with the iteration of the newer one, not yet looked at."""
        self.task = -1
        """Index of the first user message, which is never touched; -1: none yet."""
        self._open_calls: dict[str, list[int]] = {}

    @property
    def iteration(self) -> int:
        """The iteration of a prompt that ends here: assistant blocks, plus one."""
        return len(self.groups) + 1

    def __len__(self) -> int:
        return len(self.records)

    @property
    def chain(self) -> bytes:
        """Digest of the whole history."""
        return self.records[-1].chain if self.records else b""

    def append(self, record: Record) -> None:
        """Take a message at the end of the history; its group is set here."""
        index = len(self.records)
        if record.role is Role.ASSISTANT and (index == 0 or self.records[-1].role is not Role.ASSISTANT):
            self.groups.append(Group(index, len(self.groups), len(self.groups)))
        record.group = len(self.groups) - 1
        if self.task < 0 and record.role is Role.USER:
            self.task = index
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
        self._pair(record)
        if record.pinned:
            self.pin(index)
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

    def _number_feedback(self, record: Record) -> None:
        """Tell the stretch of a user's feedback; any other text of a user ends one."""
        texts = [entry for entry in record.entries if entry.kind is ItemKind.TEXT]
        self.user_texts += any(entry.feedback is None for entry in texts)
        for entry in texts:
            entry.stretch = self.user_texts

    def _queue(self, record: Record, entry: Entry) -> None:
        """Put an entry where it grows old. What a user wrote stays, but for snapshots, feedback and images."""
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

    def offer(self, entry: Entry) -> None:
        """Make a result known to `pop_largest`, with the tokens that it takes now."""
        heappush(self.largest, (-entry.tokens, entry.message, entry.item, entry))

    def pop_largest(self) -> Entry | None:
        """Take the result that takes most tokens, the oldest of equals, out of the choice; None if there is none.

        Results of the oldest groups, which stay whole, are not chosen until `release`.
        """
        while self.largest:
            tokens, _, _, entry = heappop(self.largest)
            if -tokens == entry.tokens and entry.action is not Action.CLIPPED:
                record = self.records[entry.message]
                if record.group < self.held:
                    self._aside.append(entry)
                elif not record.dropped and not record.pinned:
                    return entry
        return None

    def pin(self, index: int) -> None:
        """Pin a message: what was trimmed of it stays so, nothing more is."""
        record = self.records[index]
        record.pinned = True
        if record.group >= 0:
            self.groups[record.group].pinned = True

    def set_entry(self, entry: Entry, action: Action, kept: Kept | None, tokens: int, reason: Reason) -> None:
        """Write down a decision about an item."""
        record = self.records[entry.message]
        saved = entry.tokens - tokens
        if entry.action is not None and entry.decided != self.iteration:
            entry.earlier = (*entry.earlier, (entry.decided, entry.tokens))
        entry.action, entry.kept, entry.tokens, entry.reason = action, kept, tokens, reason
        entry.decided = self.iteration
        entry.first = entry.first or entry.decided
        record.tokens -= saved
        self.change_total(entry.message, -saved)
        self.mark(entry.message)

    def remove_reasoning(self, entry: Entry, tokens: int, *, drop: bool) -> None:
        """Remove an item of reasoning.

        Args:
            entry: the item.
            tokens: what the label takes that stands for it.
            drop: whether its whole message goes, of which reasoning is all.
        """
        record = self.records[entry.message]
        if not record.dropped:
            self.set_entry(entry, Action.CLIPPED, None, tokens, Reason.REASONING)
            self.opaque -= entry.opaque
        else:  # its tokens are gone already
            record.tokens -= entry.tokens - tokens
            entry.action, entry.tokens, entry.reason = Action.CLIPPED, tokens, Reason.REASONING
            entry.decided = self.iteration
            entry.first = entry.first or entry.decided
        record.opaque -= entry.opaque
        entry.advertised = False
        if drop and not record.dropped:
            self.drop_record(entry.message, self.iteration, Reason.REASONING)

    def weight(self, opaque_factor: float) -> int:
        """Tokens of all records as they are now; `opaque_factor` is that of encrypted text over that of other text."""
        return self.total + weighed(self.opaque, opaque_factor)

    @property
    def closed(self) -> int:
        """Messages before the last words of the user."""
        return self.closings[-1] if self.closings else 0

    def change_total(self, index: int, change: int) -> None:
        """A record that is not dropped takes so many tokens more than before."""
        self.total += change
        self._live.add(index, change)

    def tokens_between(self, first: int, last: int) -> int:
        """Tokens of the records from index `first` up to `last`, as they are now; `last` is not among them."""
        return self._live.before(last) - self._live.before(first)

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
        """A record's rendering has changed."""
        self.records[index].touched += 1
        self.dirty.add(index)
        self.changed_from = min(self.changed_from, index)

    def drop(self, group: int, reason: Reason = Reason.RESIDUE) -> bool:
        """Drop a group's messages but the system's; whether there was anything to drop."""
        any_dropped, counted = False, False
        for index in self.members(group):
            record = self.records[index]
            if record.dropped and record.dropped_for in ALONE:
                # Its stretch's label goes too, and from now on the placeholder of dropped iterations counts it.
                record.dropped_for, record.dropped_in = reason, self.iteration
                counted = True
                self.mark(index)
            if record.dropped or record.role in (Role.SYSTEM, Role.OTHER):
                continue
            any_dropped = True
            self.drop_record(index, self.iteration, reason)
        if any_dropped or counted:
            self._count_gone(group)
        return any_dropped

    def drop_record(self, index: int, iteration: int, reason: Reason = Reason.RESIDUE) -> None:
        """Drop one message."""
        record = self.records[index]
        record.dropped = True
        record.dropped_in = iteration
        record.dropped_for = reason
        self.change_total(index, -record.tokens)
        self.opaque -= self.records[index].opaque
        self.mark(index)

    def hold(self, groups: int) -> None:
        """Keep the results of the oldest groups, so many."""
        self.held = groups
        self.drop_done = max(self.drop_done, groups)
        for ageing in HEAVY:
            queue = self.queues[ageing]
            while queue.head is not None and self.records[queue.head.message].group < groups:
                queue.done += 1

    def release(self) -> bool:
        """Keep none of the oldest groups any more; whether any was kept."""
        any_held, self.held = self.held > 0, 0
        if any_held:
            self.drop_done = 0
            for ageing in HEAVY:
                self.queues[ageing].done = 0
        for entry in self._aside:
            self.offer(entry)
        self._aside = []
        return any_held

    def members(self, group: int) -> range:
        """Indices of a group's records."""
        last = self.groups[group + 1].start if group + 1 < len(self.groups) else len(self.records)
        return range(self.groups[group].start, last)

    def trimmed(self) -> Iterator[tuple[Record, Entry]]:
        """Entries that are trimmed, by message."""
        for record in self.records:
            if record.dropped or record.touched:
                for entry in record.entries:
                    if entry.action is not None or record.dropped:
                        yield record, entry

    def rewind(self, length: int) -> None:
        """Forget the history from record `length` on. Decisions about what stays are kept."""
        if length >= len(self.records):
            return
        before = self._own_places()
        for record in self.records[length:]:
            self.full_opaque -= record.full_opaque
            self.identified -= record.identified
            for entry in record.entries:
                self.reasons -= entry.kind is ItemKind.REASONING
                self.not_holdable -= not entry.holdable
                if self.by_id.get(entry.stash_id) is entry:
                    del self.by_id[entry.stash_id]
        del self.records[length:]
        while self.groups and self.groups[-1].start >= length:
            self.groups.pop()
        for queue in self.queues.values():
            while queue.entries and queue.entries[-1].message >= length:
                queue.entries.pop()
            queue.done = min(queue.done, len(queue.entries))
        while self.reasoning and self.reasoning[-1].message >= length:
            self.reasoning.pop()
        while self.closings and self.closings[-1] >= length:
            self.closings.pop()
        self._answering = False
        for record in reversed(self.records):
            if record.role is not Role.USER or self._answering:
                break
            self._answering = bool(record.answers)
        self.mid_block = min(self.mid_block, len(self.groups) - 1)
        self.gather_stretches()
        self.repeated = [each for each in self.repeated if each[0].message < length and each[1] < self.iteration]
        self.drop_done = min(self.drop_done, len(self.groups))
        self.held = min(self.held, len(self.groups))
        if self.carrier is not None and self.carrier.message >= length:
            self.carrier, self.carried = None, 0
        self.evaluated = min(self.evaluated, length)
        self.batch_end = min(self.batch_end, length)
        self.batch_group = min(self.batch_group, len(self.groups) - 1)
        self.dirty = {index for index in self.dirty if index < length}
        self._pair_again()
        self._revive_last_unit()
        self._live = Sums(0 if record.dropped else record.tokens for record in self.records)
        self._next_live, self._live_before = {}, {}
        self.total = self._live.before(len(self.records))
        self.opaque = sum(record.opaque for record in self.records if not record.dropped)
        self.media = sum(record.media for record in self.records)
        self.count_gone()
        self.rebuild_largest()
        self.moved |= self._own_places() != before

    def _own_places(self) -> tuple[object, ...]:
        """What the place and the counts of our own text inside the history follow from."""
        carrier = self.carrier
        return self.batch_group, self.held, carrier and (carrier.message, carrier.item), self.gone, self.uncarried

    def count_gone(self) -> None:
        """Count the dropped groups anew."""
        self.gone = self.uncarried = 0
        whole = (record for record in self.records if record.dropped and record.dropped_for not in ALONE)
        for group in {record.group for record in whole}:
            self._count_gone(group)

    def _count_gone(self, group: int) -> None:
        if self.carrier is None or group < self.records[self.carrier.message].group:
            self.uncarried += 1
        else:
            self.gone += 1

    def rebuild_largest(self) -> None:
        """Make the heap of results anew, after entries came or went otherwise than at the end."""
        self.largest = [
            (-entry.tokens, entry.message, entry.item, entry) for entry in self.queues[Ageing.RESULTS].entries
        ]
        heapify(self.largest)
        self._aside = []

    def has_label(self, stretch: int) -> bool:
        """Whether a stretch of feedback has a label in the prompt."""
        head = self.stretches.get(stretch)
        return head is not None and not self.records[head.message].dropped

    def collapse(self, entry: Entry, count: Callable[[str], int]) -> None:
        """Take feedback into its stretch's label, which stands in place of the stretch's first collapsed message.

        Any other goes altogether, if its message holds nothing else and its neighbours may stand together.
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
        if alone and self._may_go(entry.message):
            self.drop_record(entry.message, self.iteration, Reason.FEEDBACK)

    def _may_go(self, index: int) -> bool:
        """Whether a message may go without bringing two together that may not stand so: two of the model, say."""
        before, after = self.live_before(index), self.next_live(index + 1)
        beside = (Role.USER, Role.TOOL)
        return before >= 0 and (
            self.records[before].role in beside or (after < len(self.records) and self.records[after].role in beside)
        )

    @staticmethod
    def annotate(entry: Entry, feedback: Feedback | None) -> None:
        """Take the agent's word for what a user's text is: feedback, or (None) a snapshot. `requeue` must follow."""
        if entry.fixed:
            return
        entry.annotated, entry.feedback = True, feedback
        if feedback is None:
            entry.kind = ItemKind.SNAPSHOT

    def requeue(self) -> None:
        """Fill the queues anew, before anything was decided."""
        for queue in self.queues.values():
            queue.entries, queue.done = [], 0
        self.feedback, self.largest, self.user_texts = Waiting(), [], 0
        for record in self.records:
            if record.role is Role.USER:
                self._number_feedback(record)
            if not record.pinned:
                for entry in record.entries:
                    if entry.kind is not ItemKind.REASONING:
                        self._queue(record, entry)

    def take_repeated(self) -> list[tuple[Entry, int]]:
        """Results that came again since this was asked last, each with the iteration of the newer one."""
        taken, self.repeated = self.repeated, []
        return taken

    def gather_stretches(self) -> None:
        """Find the labels of stretches anew; what they count is what they counted when they were written."""
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

    def unit_end(self, group: int) -> int:
        """The last group that must be dropped together with `group` and those between.

        Asked again for the same group, it goes on from where it ended: such a unit may reach to the end of the history.
        """
        if self._unit != group or self._unit_end < group:
            self._unit, self._unit_seen, self._unit_end = group, group, group
        while self._unit_seen <= self._unit_end:
            self._unit_end = max(self._unit_end, self.groups[self._unit_seen].reach)
            self._unit_seen += 1
        return self._unit_end

    def _revive_last_unit(self) -> None:
        """Messages may now follow in the last group; if it was dropped, its calls would lack and it must come back."""
        first = len(self.groups) - 1
        for group in range(first, -1, -1):
            if self.groups[group].reach >= first or group == first:
                first = group
        for group in range(max(first, 0), len(self.groups)):
            for index in self.members(group):
                record = self.records[index]
                if record.dropped and record.dropped_for is not Reason.REASONING:
                    record.dropped = False
                    self.mark(index)
        self.drop_done = min(self.drop_done, max(first, 0))

    def _pair_again(self) -> None:
        self._open_calls, self._unit_end = {}, -1
        for index, group in enumerate(self.groups):
            group.reach, group.back, group.unanswered, group.pinned = index, index, 0, False
        for record in self.records:
            if record.pinned and record.group >= 0:
                self.groups[record.group].pinned = True
            self._pair(record)

    def _pair(self, record: Record) -> None:
        """Match results to calls: a result answers the newest open call with its id."""
        for call_id in record.calls:
            self._open_calls.setdefault(call_id, []).append(record.group)
            if record.group >= 0:
                self.groups[record.group].unanswered += 1
        for call_id in record.answers:
            waiting = self._open_calls.get(call_id)
            if not waiting:
                continue
            group = waiting.pop()
            if group < 0:
                continue
            self.groups[group].unanswered -= 1
            self.groups[group].reach = max(self.groups[group].reach, record.group)
            if self._unit <= group < self._unit_seen:
                self._unit_end = max(self._unit_end, record.group)
            self.groups[record.group].back = min(self.groups[record.group].back, group)
