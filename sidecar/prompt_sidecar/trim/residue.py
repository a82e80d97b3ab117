"""What clipping leaves of old iterations: labels and empty calls, and how whole iterations are dropped, pairs together.

A batch drops what has been left as it goes, oldest first, so that what dropping frees need not be clipped. The first
iteration that would be dropped stays, clipped, and the label of one of its items, the carrier, counts those after it. A
message of ours could not stand there in every format, and before the history its count would rewrite the whole prompt
at each batch. It counts only what had to go before there was a carrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import Ageing, Entry, Reason
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.policy import Policy


def drop_again(ledger: Ledger, indices: Sequence[int], count: Callable[[str], int]) -> None:
    """Drop what a rewind brought back and the agent no longer has; nothing for what is dropped."""
    back = [index for index in indices if not ledger.records[index].dropped]
    for index in back:
        record = ledger.records[index]
        ledger.drop_record(index, record.dropped_in, record.dropped_for)
    if back:
        ledger.count_gone()
        count_dropped(ledger, count)


def count_dropped(ledger: Ledger, count: Callable[[str], int]) -> None:
    """Have the carrier's label say how many groups are dropped, if it does not already."""
    entry = ledger.carrier
    counts = (ledger.gone,) if ledger.gone else ()
    if entry is None or entry.counts == counts or ledger.records[entry.message].pinned:
        return
    entry.counts = counts
    label = elide.placeholder(entry.kind, entry.stash_id if entry.advertised else "", entry.size) or ""
    _carry_tokens(ledger, entry, max(0, count(elide.carrier(label, ledger.gone)) - entry.tokens))


def _carry_tokens(ledger: Ledger, entry: Entry, tokens: int) -> None:
    """Have the carrier's message take so many tokens more than its items."""
    ledger.records[entry.message].tokens += tokens - ledger.carried
    ledger.change_total(entry.message, tokens - ledger.carried)
    ledger.carried = tokens
    ledger.mark(entry.message)


class Residue:
    """What clipping has left in one evaluation, and what was dropped of it."""

    def __init__(
        self, ledger: Ledger, policy: Policy, limit: int, carry: Callable[[Sequence[Entry], Reason], Entry | None]
    ) -> None:
        """Take the ledger.

        Args:
            ledger: the decisions.
            policy: what is in force.
            limit: tokens.
            carry: clips the items of an iteration that would be dropped, for that reason, and chooses the carrier
                among them; if none will do the iteration is dropped, and a message of ours counts it.
        """
        self._ledger = ledger
        self._policy = policy
        self._limit = limit
        self._carry = carry
        self._passed = 0
        """Groups of which clipping has left what it leaves, as far as this batch has added them up."""
        self._tokens = 0
        """Tokens of those that were not dropped."""
        self.changed = False
        """Whether anything was dropped since the caller last cleared this."""

    def begin(self) -> None:
        """Add up anew: a batch begins, and the limit may be another one."""
        self._passed, self._tokens = 0, 0
        self.drop()

    def drop(self) -> None:
        """Drop the oldest iterations when what is left of those that clipping has passed exceeds its share.

        Called after each clip of a batch; each group is added once.
        """
        ledger, limit = self._ledger, self._limit
        kept = max(1, *(self._policy.keep(kind) for kind in Ageing))  # a rewind makes a clipped group the newest
        passed = len(ledger.groups) - kept
        for queue in ledger.queues.values():
            if queue.head is not None:
                passed = min(passed, ledger.records[queue.head.message].group)
        added = max(ledger.drop_done, self._passed)
        if added < passed:
            self._tokens += ledger.tokens_between(ledger.groups[added].start, ledger.members(passed - 1).stop)
        self._passed = max(self._passed, passed)
        if self._tokens <= self._policy.fit_residue_high * limit:
            return
        while ledger.drop_done < passed and self._tokens > self._policy.fit_residue_low * limit:
            before = ledger.total
            if not self.drop_next(passed, Reason.RESIDUE):
                break
            self._tokens -= before - ledger.total

    def drop_next(self, bound: int, reason: Reason, *, carry: bool = True) -> bool:
        """Pass the next group that may be dropped, with those that answer its calls; False at the bound.

        `carry`: whether it may stay as the carrier instead.
        """
        ledger = self._ledger
        first = ledger.drop_done
        if first >= bound:
            return False
        end = ledger.unit_end(first)
        if end >= bound:
            return False
        ledger.drop_done = end + 1
        if not self._may_go(first, end):
            return True
        if carry and ledger.carrier is None:
            ledger.carrier = self._carry(self._entries(first, end), reason)
            self.changed |= ledger.carrier is not None
        if ledger.carrier is None or not first <= ledger.records[ledger.carrier.message].group <= end:
            for group in range(first, end + 1):
                self.changed |= ledger.drop(group, reason)
        return True

    def _may_go(self, first: int, end: int) -> bool:
        """Whether groups that go together may go."""
        groups = self._ledger.groups[first : end + 1]
        # Before the last words of the user reasoning may be gone, after them it must be there: without them all that is
        # before would seem to be of the turn that is going on.
        ledger = self._ledger
        if ledger.reasons and groups[0].start <= ledger.closed < ledger.members(end).stop:
            return False
        # A group that answers one before `first` answers one that was passed and stays: a dropped one owes no answer.
        if any(group.pinned or group.unanswered or group.back < first for group in groups):
            return False
        return all(entry.holdable for entry in self._entries(first, end))

    def _entries(self, first: int, end: int) -> list[Entry]:
        members = range(self._ledger.groups[first].start, self._ledger.members(end).stop)
        return [entry for index in members for entry in self._ledger.records[index].entries]

    def drop_carrier(self) -> None:
        """The last resort in a small window: the carrier goes too, and a message of ours counts."""
        ledger = self._ledger
        entry = ledger.carrier
        if entry is None:
            return
        first = ledger.records[entry.message].group
        while ledger.groups[first].back < first:
            first = ledger.groups[first].back
        _carry_tokens(ledger, entry, 0)
        ledger.carrier, entry.counts = None, ()
        ledger.count_gone()
        for group in range(first, ledger.unit_end(first) + 1):
            self.changed |= ledger.drop(group, Reason.FIT)
