"""Residue, the labels and empty calls that clipping leaves, and dropping whole iterations, calls with their results.

A batch drops residue while it clips, oldest first, so that fewer items need to be clipped. The first iteration that
would be dropped stays, clipped, and the label of one of its items, the carrier, counts those after it. Not every format
allows a message of ours there, and before the history a changing count would rewrite the whole prompt at each batch.
Our placeholder message counts only iterations that were dropped while there was no carrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_sidecar.trim.entries import Ageing, Entry, Reason
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.ledger import Ledger

Carry = Callable[[Sequence[Entry], Reason], Entry | None]
"""Clips the items of an iteration that would be dropped, for that reason, and returns the carrier among them; if it
returns None, the iteration is dropped and our placeholder message counts it. It is passed with each call: if it were
stored, it would form a reference cycle with the evaluation, and each prompt's texts would stay until the garbage
collector runs."""


class Residue:
    """The residue in one evaluation, and how much of it was dropped."""

    def __init__(self, ledger: Ledger, inputs: Inputs) -> None:
        self._ledger = ledger
        self._policy = inputs.policy
        self.aim = inputs.limit
        """Tokens that its shares refer to."""
        self._alternating = inputs.alternating
        self._kept = max(1, *(inputs.policy.keep(kind) for kind in Ageing))  # a rewind makes a clipped group the newest
        self._passed = 0
        """Number of fully clipped groups whose tokens this batch has added up."""
        self._tokens = 0
        """Tokens of those among them that are not dropped."""
        self.changed = False
        """Whether anything was dropped since the caller last reset this."""

    def begin(self, carry: Carry) -> None:
        """Begin a batch: add up again, as the limit may have changed."""
        self._passed, self._tokens = 0, 0
        self.drop(carry)

    def drop(self, carry: Carry) -> None:
        """Drop the oldest iterations while the residue exceeds its share of the limit.

        Called after each clip of a batch; each group is added once.
        """
        ledger, limit = self._ledger, self.aim
        passed = len(ledger.groups) - self._kept
        for queue in ledger.queues.by_age.values():
            if queue.head is not None:
                passed = min(passed, ledger.records[queue.head.message].group)
        added = max(ledger.drops.done, self._passed)
        if added < passed:
            first, last = ledger.groups[added].start, ledger.messages.members(passed - 1).stop
            self._tokens += ledger.decisions.tokens_between(first, last) - ledger.decisions.spoken_between(first, last)
        self._passed = max(self._passed, passed)
        if self._tokens <= self._policy.fit_residue_high * limit:
            return
        while ledger.drops.done < passed and self._tokens > self._policy.fit_residue_low * limit:
            before = ledger.decisions.total
            if not self.drop_next(passed, Reason.RESIDUE, carry):
                break
            self._tokens -= before - ledger.decisions.total

    def drop_next(self, bound: int, reason: Reason, carry: Carry | None = None) -> bool:
        """Drop the next group and those that answer its calls, if allowed; return False when group `bound` is reached.

        `carry`: given if it may be kept as the carrier instead.
        """
        ledger = self._ledger
        first = ledger.drops.done
        if first >= bound:
            return False
        end = ledger.messages.pairs.unit_end(first)
        if end >= bound:
            return False
        ledger.drops.advance(end + 1)
        if not self._droppable(first, end):
            return True
        if carry is not None and ledger.drops.carrier is None:
            ledger.drops.carry(carry(self._entries(first, end), reason))
            self.changed |= ledger.drops.carrier is not None
        carrier = ledger.drops.carrier
        if carrier is None or not first <= ledger.records[carrier.message].group <= end:
            for group in range(first, end + 1):
                self.changed |= ledger.drops.drop(group, reason)
        return True

    def drop_next_words(self) -> bool:
        """Drop the next group including a user's words, if allowed; return False at the newest such words.

        The last resort: a prompt over the limit would be refused.
        """
        ledger = self._ledger
        first = ledger.drops.words_done
        newest = ledger.queues.newest_words
        newest = ledger.records[newest].group if newest >= 0 else 0
        bound = min(len(ledger.groups) - 1, newest)
        end = ledger.messages.pairs.unit_end(first, words=True) if first < bound else bound
        if end >= bound:
            return False
        ledger.drops.advance(end + 1, words=True)
        if self._droppable(first, end, words=True):
            for group in range(first, end + 1):
                self.changed |= ledger.drops.drop(group, Reason.FIT, words=True)
        return True

    def _droppable(self, first: int, end: int, *, words: bool = False) -> bool:
        """Whether groups that can only be dropped together may be dropped; `words`: including users' words."""
        groups = self._ledger.groups[first : end + 1]
        if groups[0].start <= self._ledger.messages.task < self._ledger.messages.members(end).stop:
            return False  # the model spoke first, before the task
        # Reasoning may be absent before the user's last text but not after it: without that text everything before it
        # would seem to belong to the current turn.
        ledger = self._ledger
        if ledger.messages.reasons and groups[0].start <= ledger.thinking.closed < ledger.messages.members(end).stop:
            return False
        # A group that answers a call before `first` answers one that was kept: a dropped group has no open calls.
        if any(group.pinned or group.unanswered or group.back < first for group in groups):
            return False
        # A user's own text stays, and with it its iteration where its message also answers calls or where messages of
        # the user and of the model must alternate.
        members = (ledger.records[index] for index in range(groups[0].start, ledger.messages.members(end).stop))
        if not words and any(record.words and (record.answers or self._alternating) for record in members):
            return False
        return all(entry.holdable for entry in self._entries(first, end))

    def _entries(self, first: int, end: int) -> list[Entry]:
        members = range(self._ledger.groups[first].start, self._ledger.messages.members(end).stop)
        return [entry for index in members for entry in self._ledger.records[index].entries]

    def drop_carrier(self) -> None:
        """Drop the carrier too, as the last resort in a small window; our placeholder message counts from then on."""
        ledger = self._ledger
        entry = ledger.drops.carrier
        if entry is None:
            return
        first = ledger.records[entry.message].group
        while ledger.groups[first].back < first:
            first = ledger.groups[first].back
        ledger.drops.uncarry()
        for group in range(first, ledger.messages.pairs.unit_end(first) + 1):
            self.changed |= ledger.drops.drop(group, Reason.FIT)
