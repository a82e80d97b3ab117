"""The stages: cap at first sight, age, fit under pressure. One evaluation of the fold.

An evaluation looks at the history so far and at what is in force, and writes decisions into the ledger. Nothing else
enters: no clock, no stash, no earlier prompt. What is used of the limit is

    system prompt and tool schemas + messages as they are now + the room kept for our own text

and above the high-water mark the steps below are taken in order, each going no further than it must:

    oldest_first (cache_first)                      largest_first (fit_only)
    1  clip old items, oldest first, down to        elide results, largest first, down to the
       the low-water mark: arguments and text       low-water mark
       before results; the last is elided if it
       holds more than must go. Results of the
       oldest iterations stay (`oldest`)
    2  drop the oldest iterations if what clipping  as 1 and 2 of cache_first
       left takes too much
    3  elide the largest of the rest, down to       -
       the low-water mark: stopping at the high
       one would make the next prompt a batch
       point again
    4  both, if the limit itself is still passed: clip all but the newest iteration, drop what is left of the
       others, clip the newest results

Old means older than the newest `age_keep_iterations` iterations, or what the policy says for its kind. With
`age_stage` ALWAYS (`lean`) all that is old is clipped at every evaluation, whatever is used, and step 2 is taken. Where
old items are clipped, old feedback is collapsed too, and with `age_hard_cap_iterations` the oldest iterations are
dropped.

Reasoning is removed before anything else, where the provider lets it be absent (`ReasoningRule`), and always whole:

    CLOSED_TURNS  of turns that are over, oldest first, down to the low-water mark
    BOUND         all that stands at or after the first place that a batch changes: each block is valid only under the
                  prompt that it was produced under. It goes before the batch begins, so that its room counts, and is
                  looked at again at the end. Between batches nothing before a kept block changes. Also that of model
                  calls whose prompts the sidecar did not return (`Record.foreign`)

The opening (but for page snapshots after the task), the newest assistant block, pinned messages and users' own text are
never touched; an item that the stash could not hold is not trimmed.

Every step moves along the history or down a heap and never back, but once, when the oldest are let go; so the work of
all evaluations together grows with the history, not with its square.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import HEAVY, LIGHT, Action, Ageing, Entry, Feedback, Queue, Reason
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.oldest import hold_oldest
from prompt_sidecar.trim.own_text import DROPPED_TOKENS
from prompt_sidecar.trim.policy import AgeStage, FitStage, Policy
from prompt_sidecar.trim.residue import Residue, count_dropped

MIN_SAVING: Final = 12
"""Tokens that an edit must save: below it the marker's loss of meaning and the rewritten cache are not worth it."""
ELIDE_FLOOR: Final = 256
"""Tokens that eliding to fit leaves of a result: head and tail of a screenful. Smaller ones are clipped if need be."""
ELIDE_PASSES: Final = 4
"""Tries to meet a token target with a byte budget; tokens for each byte vary within a text, mostly by less than 2."""
REGISTRY_PAYS: Final = 0.05
"""Share of the limit that writing a registry anew may rewrite, where it stands before the history: what stands between
the two is else kept from cut to cut, and worth more than a list that is complete."""
COUNT_TOKENS: Final = 10
"""Room for the count in the carrier's label; a number of seven digits takes no more."""
NOTHING: Final = -1.0
"""A target in tokens that nothing meets: all that is old is clipped."""
_NOT_AHEAD: Final = frozenset({ItemKind.ARGUMENTS, ItemKind.SNAPSHOT})
"""Arguments become `{}`; a snapshot's text is needed to tell what is left of it."""
COUNT_AHEAD: Final = 16
"""Placeholders that are counted in one call: a batch point clips some tens of items."""
_CARRIERS: Final = frozenset({ItemKind.RESULT, ItemKind.TEXT})
"""Items whose label may count what was dropped."""
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
    reasoning: ReasoningRule = ReasoningRule.KEPT
    """When reasoning may be absent."""
    reasoning_messages: bool = False
    """Whether reasoning is a message of its own."""
    own_in_history: bool = False
    """Whether registry and placeholder stand inside the history; else before it, or nowhere."""
    opaque_factor: float = 1.0
    """What to multiply tokens of encrypted text with: their calibration factor, over that of all other tokens."""


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
        self._residue = Residue(ledger, inputs.policy, inputs.limit, self._carry)

    @property
    def used(self) -> int:
        """Tokens of the prompt as decided so far."""
        ledger, own = self._ledger, self._inputs.reserve
        if ledger.uncarried and self._inputs.recall:  # by a message of ours, even where nothing is kept for our text
            own = max(own, DROPPED_TOKENS)
        if ledger.carrier is not None:  # its count is written last, and must not pass a mark then
            own += max(0, COUNT_TOKENS - ledger.carried)
        return self._inputs.overhead + own + ledger.weight(self._inputs.opaque_factor)

    def run(self) -> None:
        """Evaluate the history as it is now.

        Evaluating the same history again changes nothing, unless the limit has come down since.
        """
        ledger = self._ledger
        uncarried = bool(ledger.uncarried)
        new = range(ledger.evaluated, len(ledger))
        for index in new:
            self._cap(index)
        ledger.evaluated = len(ledger)
        count_dropped(ledger, self._count)  # a rewind may have brought some back
        self._changed, self._residue.changed = False, False
        ledger.changed_from = len(ledger)
        bound = self._inputs.reasoning is ReasoningRule.BOUND
        places = self._own_places() if bound else (0, 0, 0)
        if bound:
            self._remove_invalid(new)
        if self._policy.age_stage is AgeStage.ALWAYS:
            self._age()
        high = self._policy.fit_high * self._inputs.limit
        if self._policy.fit_stage is not FitStage.OFF and self.used > high:
            self._fit(high)
        if self._changed or self._residue.changed:
            count_dropped(ledger, self._count)
            # Else only what came with the newest iteration was trimmed, and no earlier prompt holds it.
            listing = bool(ledger.groups) and ledger.changed_from < ledger.groups[-1].start
            listing = listing and self._batch(uncarried=uncarried)
            if bound:
                self._unbind(places, listing=listing)
            if listing:
                stays = ledger.tokens_between(0, ledger.changed_from)
                cheap = stays <= REGISTRY_PAYS * self._inputs.limit and not (bound and ledger.reasoning)
                if not ledger.listed or cheap:
                    ledger.listed = ledger.iteration

    def _batch(self, *, uncarried: bool) -> bool:
        """Messages of earlier prompts have changed; whether what tells of the trimmed is written anew with them.

        Not where a prompt cannot be made to fit: every call is a batch then, and rewriting the registry at each would
        cost a prefix and help nothing. What was written at the first such batch stays until a later one fits, but for
        the placeholder, which comes when it is needed first. `uncarried`: whether it was before.
        """
        ledger = self._ledger
        ledger.batches += 1
        too_large = self.used > self._inputs.limit
        if too_large and ledger.stuck and bool(ledger.uncarried) == uncarried:
            return False
        ledger.stuck = ledger.iteration if too_large else 0
        ledger.listings += 1
        ledger.batch_end = len(ledger)
        ledger.batch_group = len(ledger.groups) - 1
        return True

    # -- cap ---------------------------------------------------------------------------------------------------------

    def _cap(self, index: int) -> None:
        """Elide the results of one message that has just been seen, and clip images past their own cap."""
        record = self._ledger.records[index]
        if record.pinned:
            return
        results: dict[int, list[Entry]] = {}
        for entry in record.entries:
            if entry.result >= 0 and entry.holdable and not entry.fixed:
                results.setdefault(entry.result, []).append(entry)
        for of_result in results.values():
            self._cap_text([entry for entry in of_result if entry.kind is ItemKind.RESULT])
            self._cap_media([entry for entry in of_result if entry.kind is ItemKind.IMAGE])

    def _cap_text(self, entries: list[Entry]) -> None:
        cap = self._policy.cap_text_bytes
        if sum(entry.size for entry in entries) <= cap:
            return
        level = elide.water_level([entry.size for entry in entries], cap)
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

    # -- reasoning ---------------------------------------------------------------------------------------------------

    def _remove_invalid(self, new: range) -> None:
        """Remove bound reasoning that is not valid under this prompt, whatever is trimmed.

        That is what has come of a model call whose prompt the sidecar did not return, or in parts of which the first
        was changed already; and all of it, where a rewind moved our own text.
        """
        ledger = self._ledger
        if ledger.moved:
            ledger.moved = False
            self._remove_reasoning(0)
        invalid = (
            index
            for index in new
            if ledger.records[index].foreign
            or (ledger.records[index].role is Role.ASSISTANT and ledger.records[index].group == ledger.mid_block)
        )
        self._remove_reasoning(next(invalid, len(ledger)))

    def _own_places(self) -> tuple[int, int, int]:
        """Where registry and placeholder stand in the history, and what that counts; -1: it gives no number."""
        ledger = self._ledger
        registry = self._start(ledger.batch_group) if ledger.batch_group >= 0 else len(ledger)
        counted = -1 if ledger.uncarried and ledger.stuck else ledger.uncarried
        return registry, self._start(max(ledger.held, 0)), counted

    def _start(self, group: int) -> int:
        groups = self._ledger.groups
        return groups[group].start if group < len(groups) else len(self._ledger)

    def _unbind(self, before: tuple[int, int, int], *, listing: bool) -> None:
        """Remove all reasoning that stands after what was changed, our own text among it.

        `before`: its places before the evaluation. `listing`: whether it is written anew.
        """
        ledger = self._ledger
        now = self._own_places()
        first = min(ledger.changed_from, before[0], now[0]) if listing else ledger.changed_from
        if before[1:] != now[1:] and (before[2] or now[2]):
            first = min(first, before[1], now[1])
        if listing and not self._inputs.own_in_history and (not ledger.listed or before[2] != now[2]):
            first = 0  # our own text stands before the history, and changes
        self._remove_reasoning(first)
        last = ledger.records[-1]
        ledger.mid_block = last.group if last.role is Role.ASSISTANT else -1

    def _before_cut(self) -> None:
        """Remove bound reasoning, which goes before anything else."""
        if self._inputs.reasoning is ReasoningRule.BOUND:
            self._changed |= self._remove_reasoning(self._cut_place())

    def _cut_place(self) -> int:
        """The message that a cut is going to change first; 0 where nothing is old."""
        old = (self._oldest(kinds, None, least) for kinds, least in ((LIGHT, 1), (HEAVY, 0)))
        return min((queue.head.message for queue in old if queue is not None and queue.head is not None), default=0)

    def _remove_closed(self, target: float, first: int = 0) -> None:
        """Remove the reasoning of turns that are over, oldest first, until the target is met.

        What stands before message `first` stays, until its iteration goes: to remove it would have all that follows
        written anew, of which the cut leaves most as it is.
        """
        ledger, inputs = self._ledger, self._inputs
        if inputs.reasoning is not ReasoningRule.CLOSED_TURNS or (inputs.reasoning_messages and ledger.identified):
            return
        while ledger.reasoning and ledger.reasoning[0].message < ledger.closed and self.used > target:
            message = ledger.reasoning[0].message
            while ledger.reasoning and ledger.reasoning[0].message == message:
                entry = ledger.reasoning.popleft()
                record = ledger.records[message]
                if not (record.dropped or record.pinned or entry.fixed) and entry.holdable and message >= first:
                    self._remove(entry)
                    self._changed = True

    def _remove_reasoning(self, first: int) -> bool:
        """Remove all reasoning at or after a message; whether there was any.

        Whether the stash can hold it or not: the provider would refuse the prompt with it.
        """
        ledger = self._ledger
        any_removed = False
        while ledger.reasoning and ledger.reasoning[-1].message >= first:
            self._remove(ledger.reasoning.pop())
            any_removed = True
        return any_removed

    def _remove(self, entry: Entry) -> None:
        record = self._ledger.records[entry.message]
        drop = self._inputs.reasoning_messages and record.only_reasoning
        labelled = record.only_reasoning and not drop and entry is record.entries[0]
        label = self._placeholder(entry) if labelled else None
        self._ledger.remove_reasoning(entry, self._count(label) if label else 0, drop=drop)

    # -- age ---------------------------------------------------------------------------------------------------------

    def _age(self) -> None:
        """Clip all that is old, whatever is used of the limit."""
        self._ledger.release()
        self._remove_closed(NOTHING)
        self._point_to_newer()
        self._clip_old(NOTHING)
        self._settle_old()
        if self._policy.fit_stage is not FitStage.OFF:
            self._residue.begin()  # else what each iteration leaves would add up to the high-water mark

    def _settle_old(self) -> None:
        """Collapse old feedback and drop iterations past the hard cap, which batch points do whatever they need."""
        self._collapse_feedback()
        cap = self._policy.age_hard_cap_iterations
        if cap:
            while self._residue.drop_next(len(self._ledger.groups) - cap, Reason.AGE):
                pass

    def _collapse_feedback(self) -> None:
        """Collapse old feedback, but for the newest of each kind, and what alone is shorter than its label."""
        ledger = self._ledger
        for stretch in ledger.feedback.take_old(len(ledger.groups) - self._policy.keep(None), ledger.records):
            if len(stretch) == 1 and not ledger.has_label(stretch[0].stretch) and self._shorter_than_label(stretch[0]):
                ledger.feedback.leave(stretch[0])
                continue
            for entry in stretch:
                entry.advertised = self._inputs.recall
                ledger.collapse(entry, self._count)
                self._changed = True

    def _shorter_than_label(self, entry: Entry) -> bool:
        return entry.tokens <= self._count(elide.collapsed([kind is entry.feedback for kind in Feedback]))

    def _point_to_newer(self) -> None:
        """Clip results that came again to a pointer to the newer one."""
        if not self._policy.age_repeats:
            return
        for entry, iteration in self._ledger.take_repeated():
            if self._done(entry):
                continue
            tokens = self._count(elide.repeated(self._label(entry), entry.size, iteration))
            if entry.tokens - tokens >= MIN_SAVING:
                self._decide(entry, Action.CLIPPED, None, tokens, Reason.REPEATED)
                entry.again = iteration
                self._changed = True

    # -- fit ---------------------------------------------------------------------------------------------------------

    def _fit(self, high: float) -> None:
        policy, ledger = self._policy, self._ledger
        low = policy.fit_low * self._inputs.limit
        self._before_cut()
        if policy.fit_stage is FitStage.LARGEST_FIRST:
            self._remove_closed(low)
            self._elide_largest(low)
        if policy.age_stage is not AgeStage.OFF:
            hold_oldest(ledger, policy, self._inputs.limit, self._inputs.overhead + self._inputs.reserve)
            self._settle_old()
            self._residue.begin()
            self._remove_closed(low, self._cut_place())
            self._clip_old(low, drop=True)
            if self.used > (low + high) / 2 and ledger.release():  # rather than the newest results
                self._residue.begin()
                self._clip_old(low, drop=True)
        if policy.fit_stage is FitStage.OLDEST_FIRST:
            self._elide_largest(low)
        if self.used > high:
            ledger.release()
            self._clip_old(high, keep=1)
            newest = len(ledger.groups) - 1
            while self.used > high and self._residue.drop_next(newest, Reason.FIT, carry=False):
                pass
            if self.used > high:
                self._residue.drop_carrier()
            self._clip_newest(high)

    def _clip_old(self, target: float, keep: int | None = None, *, drop: bool = False) -> None:
        """Clip items of old groups, oldest first, light before heavy, until the target is met.

        `keep`: newest groups that stay, whatever the policy says. `drop`: what is left of them is dropped on the way.
        """
        for kinds, least in ((LIGHT, 1), (HEAVY, 0)):  # the newest assistant block is never touched
            while self.used > target:
                queue = self._oldest(kinds, keep, least)
                if queue is None:
                    break
                entry = queue.entries[queue.done]
                if drop and self._shorten(entry, target):
                    break
                self._count_ahead(queue)
                queue.done += 1
                self._clip(entry, Reason.AGE if target == NOTHING else Reason.FIT)
                if drop:
                    self._residue.drop()

    def _shorten(self, entry: Entry, target: float) -> bool:
        """Elide a result that holds more than is still to be freed; whether that met the target.

        It is clipped in the next batch. Clipped at once, a large one would take the prompt far below its low mark.
        """
        wanted = entry.tokens - max(int(self.used - target) + 1, MIN_SAVING)
        if entry.kind is not ItemKind.RESULT or wanted < ELIDE_FLOOR or self._done(entry):
            return False
        if self._elide(entry, wanted):
            self._ledger.offer(entry)
        return self.used <= target

    def _oldest(self, kinds: Sequence[Ageing], keep: int | None, least: int) -> Queue | None:
        """The queue whose next entry is old, and older than those of the other kinds."""
        ledger = self._ledger
        found: Queue | None = None
        oldest = (len(ledger), 0)
        for kind in kinds:
            queue = ledger.queues[kind]
            head = queue.head
            if head is None or (head.message, head.item) >= oldest:
                continue
            newest = len(ledger.groups) - max(self._policy.keep(kind) if keep is None else keep, least)
            if ledger.records[head.message].group < newest:
                found, oldest = queue, (head.message, head.item)
        return found

    def _clip_newest(self, target: float) -> None:
        """The last resort: clip the newest results, oldest first."""
        queues = [self._ledger.queues[kind] for kind in HEAVY]
        left = heapq.merge(*(queue.entries[queue.done :] for queue in queues), key=lambda it: (it.message, it.item))
        for entry in left:
            if self.used <= target:
                break
            self._clip(entry, Reason.FIT)

    def _elide_largest(self, target: float) -> None:
        """Elide results, largest first, each to what is needed or to half, until the target is met."""
        ledger = self._ledger
        while self.used > target:
            entry = ledger.pop_largest()
            if entry is None:
                break
            if entry.tokens <= ELIDE_FLOOR:
                ledger.offer(entry)
                break
            need = int(self.used - target) + 1
            wanted = max(ELIDE_FLOOR, min(entry.tokens // 2, entry.tokens - need))
            if entry.holdable and self._elide(entry, wanted):
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

    # -- one item ----------------------------------------------------------------------------------------------------

    def _clip(self, entry: Entry, reason: Reason, least: int = MIN_SAVING) -> None:
        if self._done(entry):
            return
        text = self._placeholder(entry)
        known = self._clipped_tokens.pop((entry.message, entry.item), None)
        tokens = EMPTY_ARGUMENTS_TOKENS if text is None else self._count(text) if known is None else known
        if entry.tokens - tokens < least:
            return
        self._decide(entry, Action.CLIPPED, None, tokens, reason)
        self._changed |= reason is not Reason.CAP

    def _done(self, entry: Entry) -> bool:
        """Whether an item is clipped or gone, or may not be touched."""
        record = self._ledger.records[entry.message]
        return record.dropped or record.pinned or not entry.holdable or entry.action is Action.CLIPPED

    def _placeholder(self, entry: Entry) -> str | None:
        """What an entry's text becomes when it is clipped."""
        if entry.kind is ItemKind.SNAPSHOT:
            text = self._texts.ends(entry)[0].decode(errors="replace")
            return elide.clipped_snapshot(text, self._label(entry), entry.size)
        return elide.placeholder(entry.kind, self._label(entry), entry.size)

    def _count_ahead(self, queue: Queue) -> None:
        """Count the placeholders of the entries that clipping comes to next, many in one call."""
        first = queue.entries[queue.done]
        if (first.message, first.item) in self._clipped_tokens or first.kind in _NOT_AHEAD:
            return
        ahead = queue.entries[queue.done : queue.done + COUNT_AHEAD]
        texts = [self._placeholder(entry) or "" for entry in ahead]
        for entry, tokens in zip(ahead, self._count_many(texts), strict=True):
            self._clipped_tokens[entry.message, entry.item] = tokens

    def _decide(self, entry: Entry, action: Action, kept: elide.Kept | None, tokens: int, reason: Reason) -> None:
        if entry.action is None:
            entry.advertised = self._inputs.recall
        self._ledger.set_entry(entry, action, kept, tokens, reason)

    def _carry(self, entries: Sequence[Entry], reason: Reason) -> Entry | None:
        """Clip an iteration's items, and choose the one of them whose label is to count what is dropped.

        None if there is none, or a user's text, which is not clipped, would stay with it.
        """
        records = self._ledger.records
        if any(entry.kind is ItemKind.TEXT and records[entry.message].role is not Role.ASSISTANT for entry in entries):
            return None
        for entry in entries:
            if not entry.fixed and entry.kind is not ItemKind.REASONING:
                self._clip(entry, reason)
        clipped = (entry for entry in entries if entry.action is Action.CLIPPED and not entry.again)
        able = [entry for entry in clipped if entry.kind in _CARRIERS]
        return max(able, key=lambda entry: (entry.kind is ItemKind.RESULT, entry.size), default=None)

    def _label(self, entry: Entry) -> str:
        advertised = entry.advertised if entry.action is not None else self._inputs.recall
        return entry.stash_id if advertised else ""
