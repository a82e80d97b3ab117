"""Dropped iterations, and where they are counted: in the carrier's label, or in our placeholder message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import ALONE, Entry, Reason
from prompt_sidecar.trim.ledger.decisions import Decisions
from prompt_sidecar.trim.ledger.messages import Messages

_UNKNOWN = -1


class DropsState(msgspec.Struct, frozen=True, array_like=True):
    """How far iterations were dropped."""

    done: int
    words_done: int
    carrier: tuple[int, int]
    """Message and item of the carrier; (-1, -1) if there is none."""
    carrier_tokens: int = _UNKNOWN
    """Tokens of the count in its label; -1: unknown, so the next evaluation counts."""


class Drops:
    """The dropped iterations of a run."""

    def __init__(self, messages: Messages, decisions: Decisions) -> None:
        self._messages = messages
        self._decisions = decisions
        self.done = 0
        """Number of groups that dropping has processed."""
        self.words_done = 0
        """Number of groups that dropping users' own texts, the last resort, has processed."""
        self.carrier: Entry | None = None
        """The clipped item whose label counts the dropped groups; None if none are dropped or no item is suitable."""
        self.carrier_tokens = 0
        """Tokens of the count in the carrier's label, in addition to those of the item."""
        self.by_carrier = 0
        """Dropped groups that the carrier's label counts: those after its own."""
        self.by_placeholder = 0
        """The other dropped groups, which the sidecar's own placeholder message counts."""
        self.rounds = True
        """Whether labels and placeholder say how many at least; not in a run that began under rules before 9."""

    # -- life --------------------------------------------------------------------------------------------------------

    def rewind(self, length: int, sent: Collection[int] | None) -> None:
        """Forget the messages from `length` on, after `Messages` and `Decisions` did; `sent` as for the ledger."""
        groups = len(self._messages.groups)
        self.done, self.words_done = min(self.done, groups), min(self.words_done, groups)
        if self.carrier is not None and self.carrier.message >= length:
            self.carrier, self.carrier_tokens = None, 0
        self._bring_back_open(sent)
        self.recount()

    def _bring_back_open(self, sent: Collection[int] | None) -> None:
        """Restore what was sent of the last unit of groups, and of groups that a rewind has left with open calls.

        If they stayed dropped, later answers would lack their calls.
        """
        records, groups = self._messages.records, self._messages.groups
        first = len(groups) - 1
        for record in records:
            if record.dropped and record.calls and groups[record.group].unanswered:
                first = min(first, record.group)
                break
        for group in range(first, -1, -1):
            if groups[group].reach >= first or group == first:
                first = group
        for index in range(groups[first].start if first >= 0 else len(records), len(records)):
            record = records[index]
            absent = sent is not None and index not in sent
            if not record.dropped or record.dropped_for is Reason.REASONING or absent:
                continue
            if record.removed:  # it was dropped with its iteration, later or before: it stays dropped by itself
                self._decisions.redate(index, record.entries[0].decided, Reason.REASONING)
            else:
                self._decisions.bring_back(index)
        self.done, self.words_done = min(self.done, max(first, 0)), min(self.words_done, max(first, 0))

    def save(self) -> DropsState:
        """Return how far iterations are dropped."""
        place = (self.carrier.message, self.carrier.item) if self.carrier is not None else (-1, -1)
        return DropsState(self.done, self.words_done, place, self.carrier_tokens)

    def load(self, state: DropsState, *, count_again: bool) -> None:
        """Load how far iterations were dropped elsewhere.

        `count_again`: the count in the carrier's label may take another number of tokens now, so the next evaluation
        counts it.
        """
        self.done, self.words_done = state.done, state.words_done
        message, item = state.carrier
        if message >= 0:
            self.carrier = self._messages.records[message].entries[item]
            if count_again or state.carrier_tokens == _UNKNOWN:
                self.carrier.counts = ()
            else:
                self._label(self.carrier.counts, state.carrier_tokens)
        self.recount()

    # -- dropping ----------------------------------------------------------------------------------------------------

    def drop(self, group: int, reason: Reason = Reason.RESIDUE, *, words: bool = False) -> bool:
        """Drop a group's messages except those that stay and, unless `words`, those with a user's own text.

        Returns whether any was dropped.
        """
        any_dropped, counted, before = False, False, False
        iteration = self._messages.iteration
        for index in self._messages.members(group):
            record = self._messages.records[index]
            if record.dropped and record.dropped_for in ALONE:
                # The label of its stretch is dropped too, so the placeholder of dropped iterations counts it now.
                self._decisions.redate(index, iteration, reason)
                counted = True
            elif record.dropped:
                before = True
            if record.dropped or record.stays or (record.words and not words):
                continue
            any_dropped = True
            self._decisions.drop_record(index, iteration, reason)
        if (any_dropped or counted) and not before:
            self._count(group)
        return any_dropped

    def drop_again(self, indices: Sequence[int], count: Callable[[str], int]) -> None:
        """Drop messages that a rewind restored and the agent no longer has; those already dropped are left alone."""
        back = [index for index in indices if not self._messages.records[index].dropped]
        for index in back:
            record = self._messages.records[index]
            self._decisions.drop_record(index, record.dropped_in, record.dropped_for)
        if back:
            self.recount()
            self.write_count(count)

    def advance(self, groups: int, *, words: bool = False) -> None:
        """Set the number of processed groups; `words`: those dropped with users' words."""
        if words:
            self.words_done = groups
        self.done = max(self.done, groups)

    def restart(self) -> None:
        """Begin with the oldest group again."""
        self.done = 0

    # -- counting ----------------------------------------------------------------------------------------------------

    def round_counts(self, *, rounds: bool) -> None:
        """Set whether labels and placeholder say how many at least, as in runs that began under rules 9 or later."""
        self.rounds = rounds

    def carry(self, entry: Entry | None) -> None:
        """Have the label of an entry count the groups that are dropped from now on, if there is a suitable one."""
        self.carrier = entry

    def uncarry(self) -> None:
        """Move the whole count to our placeholder message."""
        self._label((), 0)
        self.carrier = None
        self.recount()

    def write_count(self, count: Callable[[str], int]) -> None:
        """Update the number of dropped groups in the carrier's label."""
        entry = self.carrier
        counts = (elide.at_least(self.by_carrier) if self.rounds else self.by_carrier,) if self.by_carrier else ()
        if entry is None or entry.counts == counts or self._messages.records[entry.message].pinned:
            return
        label = entry.label or ""
        self._label(counts, max(0, count(elide.carrier(label, counts[0] if counts else 0)) - entry.tokens))

    def _label(self, counts: tuple[int, ...], tokens: int) -> None:
        assert self.carrier is not None
        self._decisions.label(self.carrier, counts, tokens - self.carrier_tokens)
        self.carrier_tokens = tokens

    def recount(self) -> None:
        """Count the dropped groups again."""
        self.by_carrier = self.by_placeholder = 0
        whole = (record for record in self._messages.records if record.dropped and record.dropped_for not in ALONE)
        for group in {record.group for record in whole}:
            self._count(group)

    def _count(self, group: int) -> None:
        if self.carrier is None or group < self._messages.records[self.carrier.message].group:
            self.by_placeholder += 1
        else:
            self.by_carrier += 1
