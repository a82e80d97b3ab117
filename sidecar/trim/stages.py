"""The stages: cap at first sight, fit under pressure. One evaluation of the fold.

An evaluation looks at the history so far and at what is in force, and writes decisions into the ledger. Nothing else
enters: no clock, no stash, no earlier prompt. What is used of the limit is

    system prompt and tool schemas + messages as they are now + the room kept for our own text

and above the high-water mark the steps below are taken in order, each going no further than it must:

    oldest_first (cache_first)                      largest_first (fit_only)
    1  clip old items, oldest first, down to        elide results, largest first, down to the
       the low-water mark: arguments and text       low-water mark
       before results
    2  drop the oldest iterations if what clipping  as 1 and 2 of cache_first
       left takes too much
    3  elide the largest of the rest, down to       -
       the low-water mark: stopping at the high
       one would make the next prompt a batch
       point again
    4  both, if the limit itself is still passed: clip all but the newest iteration, drop what is left of the
       others, clip the newest results

Old means older than the newest `age_keep_iterations` iterations. The opening, the newest assistant block, pinned
messages and users' text are never touched; an item that the stash could not hold is not trimmed.

Every step moves along the history or down a heap and never back, so the work of all evaluations together grows with
the history, not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sidecar.prompt.items import ItemKind
from sidecar.trim import elide
from sidecar.trim.ledger import Action, Entry, Ledger, Reason
from sidecar.trim.policy import FitStage, Policy

MIN_SAVING: Final = 12
"""Tokens that an edit must save: below it the marker's loss of meaning and the rewritten cache are not worth it."""
ELIDE_FLOOR: Final = 256
"""Tokens that eliding to fit leaves of a result: head and tail of a screenful. Smaller ones are clipped if need be."""
ELIDE_PASSES: Final = 4
"""Tries to meet a token target with a byte budget; tokens for each byte vary within a text, mostly by less than 2."""
COUNT_AHEAD: Final = 16
"""Placeholders that are counted in one call: a batch point clips some tens of items."""
EMPTY_ARGUMENTS_TOKENS: Final = 1
"""Tokens of `{}`."""


class Texts(Protocol):
    """Where the stages get an item's text: only when it is elided."""

    def ends(self, entry: Entry) -> tuple[bytes, bytes]:
        """The text's first and last bytes: the whole text twice, or what its elision keeps."""
        ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is in force at one evaluation. Tokens."""

    policy: Policy
    limit: int
    overhead: int
    """System prompt and tool schemas."""
    reserve: int
    """Room kept for our own text."""
    recall: bool
    """Whether markers show ids."""


class Evaluation:
    """One evaluation of the fold: the stages on a ledger, with the inputs of one call."""

    def __init__(
        self,
        ledger: Ledger,
        inputs: Inputs,
        texts: Texts,
        count: Callable[[str], int],
        count_many: Callable[[Sequence[str]], Sequence[int]] | None = None,
    ) -> None:
        self._ledger = ledger
        self._inputs = inputs
        self._policy = inputs.policy
        self._texts = texts
        self._count = count
        self._count_many = count_many or (lambda texts: [count(text) for text in texts])
        self._clipped_tokens: dict[tuple[int, int], int] = {}
        """Tokens of placeholders that were counted ahead, by message and item."""
        self._changed = False

    @property
    def used(self) -> int:
        """Tokens of the prompt as decided so far."""
        return self._inputs.overhead + self._inputs.reserve + self._ledger.total

    def run(self) -> None:
        """Evaluate the history as it is now.

        Evaluating the same history again changes nothing, unless the limit has come down since.
        """
        ledger = self._ledger
        for index in range(ledger.evaluated, len(ledger)):
            self._cap(index)
        ledger.evaluated = len(ledger)
        self._changed = False
        high = self._policy.fit_high * self._inputs.limit
        if self._policy.fit_stage is not FitStage.OFF and self.used > high:
            self._fit(high)
        if self._changed:
            ledger.batches += 1
            ledger.batch_end = len(ledger)
            ledger.batch_group = len(ledger.groups) - 1

    # -- cap ---------------------------------------------------------------------------------------------------------

    def _cap(self, index: int) -> None:
        """Elide the results of one message that has just been seen, and clip images past their own cap."""
        record = self._ledger.records[index]
        if record.pinned:
            return
        results = {entry.result for entry in record.entries if entry.result >= 0}
        for result in results:
            of_result = [entry for entry in record.entries if entry.result == result]
            self._cap_text([entry for entry in of_result if entry.kind is ItemKind.RESULT and entry.holdable])
            self._cap_media([entry for entry in of_result if entry.kind is ItemKind.IMAGE and entry.holdable])

    def _cap_text(self, entries: list[Entry]) -> None:
        cap = self._policy.cap_text_bytes
        if sum(entry.size for entry in entries) <= cap:
            return
        level = _water_level([entry.size for entry in entries], cap)
        for entry in entries:
            if entry.size <= level:
                continue
            head, tail = self._texts.ends(entry)
            kept = elide.cut(
                head,
                tail,
                entry.size,
                budget=level,
                head_share=self._policy.cap_head_share,
                stash_id=self._label(entry),
            )
            if kept is None:
                self._clip(entry, Reason.CAP, least=0)
            else:
                text = elide.elided(head, tail, entry.size, kept, self._label(entry))
                self._decide(entry, Action.ELIDED, kept, self._count(text), Reason.CAP)

    def _cap_media(self, entries: list[Entry]) -> None:
        room = self._policy.cap_media_bytes
        for entry in entries:
            room -= entry.size
            if room < 0:
                self._clip(entry, Reason.CAP, least=0)

    # -- fit ---------------------------------------------------------------------------------------------------------

    def _fit(self, high: float) -> None:
        limit, policy = self._inputs.limit, self._policy
        low = policy.fit_low * limit
        keep = policy.age_keep_iterations
        if policy.fit_stage is FitStage.LARGEST_FIRST:
            self._elide_largest(low)
        self._clip_old(keep, low)
        self._drop_residue(keep, limit)
        if policy.fit_stage is FitStage.OLDEST_FIRST:
            self._elide_largest(low)
        if self.used > high:
            self._clip_old(1, high)
            self._drop_old(high)
            self._clip_newest(high)

    def _clip_old(self, keep: int, target: float) -> None:
        """Clip items of all but the newest `keep` groups, oldest first, until the target is met."""
        ledger = self._ledger
        newest = len(ledger.groups) - max(keep, 1)  # the newest assistant block is never touched
        while ledger.light_done < len(ledger.light) and self.used > target:
            entry = ledger.light[ledger.light_done]
            if ledger.records[entry.message].group >= newest:
                break
            self._count_ahead(ledger.light, ledger.light_done)
            ledger.light_done += 1
            self._clip(entry, Reason.FIT)
        newest = len(ledger.groups) - keep
        while ledger.heavy_done < len(ledger.heavy) and self.used > target:
            entry = ledger.heavy[ledger.heavy_done]
            if ledger.records[entry.message].group >= newest:
                break
            self._count_ahead(ledger.heavy, ledger.heavy_done)
            ledger.heavy_done += 1
            self._clip(entry, Reason.FIT)

    def _clip_newest(self, target: float) -> None:
        """The last resort: clip the newest results, oldest first."""
        ledger = self._ledger
        for entry in ledger.heavy[ledger.heavy_done :]:
            if self.used <= target:
                break
            self._clip(entry, Reason.FIT)

    def _elide_largest(self, target: float) -> None:
        """Elide results, largest first, each to what is needed or to half, until the target is met."""
        ledger = self._ledger
        put_back: list[Entry] = []
        while self.used > target:
            entry = ledger.pop_largest()
            if entry is None:
                break
            if entry.tokens <= ELIDE_FLOOR:
                put_back.append(entry)
                break
            need = int(self.used - target) + 1
            wanted = max(ELIDE_FLOOR, min(entry.tokens // 2, entry.tokens - need))
            if entry.holdable and self._elide(entry, wanted):
                ledger.offer(entry)
        for entry in put_back:
            ledger.offer(entry)

    def _elide(self, entry: Entry, target: int) -> bool:
        head, tail = self._texts.ends(entry)
        shown = entry.size if entry.kept is None else entry.kept.head + entry.kept.tail
        budget = min(shown - 1, entry.size * target // max(entry.full_tokens, 1))
        label = self._label(entry)
        for _ in range(ELIDE_PASSES):
            kept = elide.cut(
                head, tail, entry.size, budget=budget, head_share=self._policy.fit_head_share, stash_id=label
            )
            if kept is None:
                return False
            tokens = self._count(elide.elided(head, tail, entry.size, kept, label))
            if tokens <= target:
                break
            budget = budget * target // (tokens + 1)
        if entry.tokens - tokens < MIN_SAVING:
            return False
        self._decide(entry, Action.ELIDED, kept, tokens, Reason.FIT)
        self._changed = True
        return True

    # -- drop --------------------------------------------------------------------------------------------------------

    def _drop_residue(self, keep: int, limit: int) -> None:
        """Drop the oldest iterations when what clipping has left of those it has passed exceeds its share."""
        ledger = self._ledger
        passed = min(self._group_at(ledger.light, ledger.light_done), self._group_at(ledger.heavy, ledger.heavy_done))
        passed = min(passed, len(ledger.groups) - keep)
        residue = sum(
            record.tokens
            for group in range(ledger.drop_done, passed)
            for record in (ledger.records[index] for index in ledger.members(group))
            if not record.dropped
        )
        if residue <= self._policy.fit_residue_high * limit:
            return
        target = self._policy.fit_residue_low * limit
        while ledger.drop_done < passed and residue > target:
            before = ledger.total
            if not self._drop_next(passed, Reason.RESIDUE):
                break
            residue -= before - ledger.total

    def _drop_old(self, target: float) -> None:
        while self.used > target and self._drop_next(len(self._ledger.groups) - 1, Reason.FIT):
            pass

    def _drop_next(self, bound: int, reason: Reason) -> bool:
        """Pass the next group that may be dropped, with those that answer its calls; False at the bound."""
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
        if all(
            entry.holdable
            for group in groups
            for index in ledger.members(group)
            for entry in ledger.records[index].entries
        ):
            for group in groups:
                self._changed |= ledger.drop(group, reason)
        return True

    def _group_at(self, entries: list[Entry], done: int) -> int:
        """The group that the first entry not yet passed belongs to."""
        if done < len(entries):
            return self._ledger.records[entries[done].message].group
        return len(self._ledger.groups)

    # -- one item ----------------------------------------------------------------------------------------------------

    def _clip(self, entry: Entry, reason: Reason, least: int = MIN_SAVING) -> None:
        record = self._ledger.records[entry.message]
        if record.dropped or record.pinned or not entry.holdable or entry.action is Action.CLIPPED:
            return
        text = elide.placeholder(entry.kind, self._label(entry), entry.size)
        known = self._clipped_tokens.pop((entry.message, entry.item), None)
        tokens = EMPTY_ARGUMENTS_TOKENS if text is None else self._count(text) if known is None else known
        if entry.tokens - tokens < least:
            return
        self._decide(entry, Action.CLIPPED, None, tokens, reason)
        self._changed |= reason is not Reason.CAP

    def _count_ahead(self, entries: list[Entry], done: int) -> None:
        """Count the placeholders of the entries that clipping comes to next, many in one call."""
        first = entries[done]
        if (first.message, first.item) in self._clipped_tokens or first.kind is ItemKind.ARGUMENTS:
            return
        ahead = [entry for entry in entries[done : done + COUNT_AHEAD] if entry.kind is not ItemKind.ARGUMENTS]
        texts = [elide.placeholder(entry.kind, self._label(entry), entry.size) or "" for entry in ahead]
        for entry, tokens in zip(ahead, self._count_many(texts), strict=True):
            self._clipped_tokens[entry.message, entry.item] = tokens

    def _decide(self, entry: Entry, action: Action, kept: elide.Kept | None, tokens: int, reason: Reason) -> None:
        if entry.action is None:
            entry.advertised = self._inputs.recall
        self._ledger.set_entry(entry, action, kept, tokens, reason)

    def _label(self, entry: Entry) -> str:
        advertised = entry.advertised if entry.action is not None else self._inputs.recall
        return entry.stash_id if advertised else ""


def _water_level(sizes: list[int], budget: int) -> int:
    """The level to which the larger sizes must come down so that all together fit the budget."""
    left = budget
    for position, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - position)
        if size > share:
            return share
        left -= size
    return budget
