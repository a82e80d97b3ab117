"""What clipping leaves of old iterations: labels and empty calls, and how whole iterations are dropped, pairs together.

A batch drops what has been left as it goes, oldest first, so that what dropping frees need not be clipped. The first
iteration that would be dropped stays, clipped, and the label of one of its items counts the others: the carrier. A
message of ours could not stand there in every format, and before the history its count would rewrite the whole prompt
at each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sidecar.trim.entries import Ageing, Entry, Reason
from sidecar.trim.ledger import Ledger
from sidecar.trim.policy import Policy


class Residue:
    """What clipping has left in one evaluation, and what was dropped of it."""

    def __init__(
        self, ledger: Ledger, policy: Policy, limit: int, carry: Callable[[Sequence[Entry]], Entry | None]
    ) -> None:
        """Take the ledger.

        Args:
            ledger: the decisions.
            policy: what is in force.
            limit: tokens.
            carry: clips the items of the first iteration that would be dropped and chooses the carrier among them,
                if any will do; if none does the iteration is dropped, and a message of ours counts.
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
        for group in range(max(ledger.drop_done, self._passed), passed):
            records = (ledger.records[index] for index in ledger.members(group))
            self._tokens += sum(record.tokens for record in records if not record.dropped)
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
        groups = range(first, end + 1)
        # A group that answers one before `first` answers one that was passed and stays: a dropped one owes no answer.
        if any(
            ledger.groups[group].pinned or ledger.groups[group].unanswered or ledger.groups[group].back < first
            for group in groups
        ):
            return True
        members = [index for group in groups for index in ledger.members(group)]
        entries = [entry for index in members for entry in ledger.records[index].entries]
        if all(entry.holdable for entry in entries) and not self._carries(entries, carry=carry):
            for group in groups:
                self.changed |= ledger.drop(group, reason)
        return True

    def drop_carrier(self) -> None:
        """The last resort in a small window: the carrier goes too, and a message of ours counts."""
        ledger = self._ledger
        if ledger.carrier is None:
            return
        first = ledger.records[ledger.carrier.message].group
        while ledger.groups[first].back < first:
            first = ledger.groups[first].back
        ledger.carrier, ledger.carried = None, 0
        for group in range(first, ledger.unit_end(first) + 1):
            self.changed |= ledger.drop(group, Reason.FIT)

    def _carries(self, entries: Sequence[Entry], *, carry: bool) -> bool:
        """Whether the iterations with these items stay, as one of them counts what is dropped."""
        ledger = self._ledger
        if ledger.carrier is None and carry:
            ledger.carrier = self._carry(entries)
            self.changed |= ledger.carrier is not None
        return any(entry is ledger.carrier for entry in entries)
