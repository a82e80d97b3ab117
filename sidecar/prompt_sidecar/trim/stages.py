"""The stages of one evaluation of the fold: condense and cap new results, age, fit under pressure.

An evaluation reads the history so far and the inputs in force, and records decisions in the ledger. It reads nothing
else: no clock, no stash, no earlier prompt. The tokens used are

    system prompt and tool schemas + messages as they are now + the room kept for our own text

and above the high-water mark these steps are taken in order, each only as far as needed:

    oldest_first (cache_first)                      largest_first (fit_only)
    1  clip old items, oldest first, down to        elide results, largest first, down to the
       the low-water mark: arguments and text       low-water mark
       before results, and results of more
       than `LARGE` tokens before smaller ones;
       those of up to `SMALL` stay until their
       iteration is dropped;
       the last is elided if that is enough.
       Results of the oldest iterations, and
       arguments and text of the newest, are
       kept (`oldest`)
    2  drop the oldest iterations if their labels     as 1 and 2 of cache_first
       take too much
    3  elide the largest of the rest, down to the   -
       middle of the marks: stopping at the
       high one would make the next prompt a
       batch point again. Not those of the
       newest iteration, which the model has
       not seen yet, if there is room for them
    4  both, if the prompt still exceeds the high-water mark: clip all but the newest iteration, drop the labels
       of the others; elide the newest iteration's results, only as far as needed; drop the label that counts
       what was dropped; clip the newest results
    5  both, if the prompt still exceeds the limit, so that the provider would refuse it: drop what users said,
       oldest first, except the newest

Before these steps, texts that a framework put into the history and that a later one of their kind supersedes are
clipped (`prompt.injected`), from the place on where the cut begins; and after them those behind the first change, if it
is in front of that place. One in front of both goes where that pays (`Evaluation._clip_superseded`).

With a ceiling (`Inputs.ceiling`) marks and shares are of that instead of the limit, and the steps are the same. Only
what becomes of users' own words (step 5, and their share) goes by the limit. In steps 1 to 3 a condensed result counts
as it was before, so that condensing puts off no cut (`Evaluation.used`).

Old means older than the newest `age_keep_iterations` iterations, or the policy's number for the item's kind. Of these
`cache_first` keeps fewer, at least two, where they do not fit below the low-water mark. With
`age_stage` ALWAYS (`lean`) every evaluation clips all old items, however much of the limit is used, and takes step 2.
Where old items are clipped, old feedback is collapsed too, and with `age_hard_cap_iterations` the oldest iterations
are dropped.

Reasoning is removed before anything else, where the provider lets it be absent (`ReasoningRule`), and always whole:

    CLOSED_TURNS  of finished turns, oldest first, down to the low-water mark
    BOUND         everything from the first message that a batch changes on: a block is valid only under the prompt that
                  it was produced under. It is removed before the batch starts, so that the freed tokens count, and
                  again at its end. Between batches nothing before a kept block changes. Reasoning of model calls
                  whose prompts the sidecar did not return is removed too (`Record.foreign`)

The opening (except page snapshots after the task), the newest assistant block, pinned messages and users' own text are
never changed, with these exceptions: a framework's text that is superseded is none of a user's; users' texts are
dropped in step 5, and the longest of them are elided where they exceed a quarter of the limit. An item that the stash
could not store is not trimmed.

Every step only moves forward along the history or down a heap, except for one restart when the oldest results are
released; so the work of all evaluations together is linear in the history, not quadratic.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import HEAVY, LARGE, LIGHT, SMALL, Action, Ageing, Condensing, Entry, Feedback, Reason
from prompt_sidecar.trim.inputs import Inputs, aim, used
from prompt_sidecar.trim.ledger import Ledger
from prompt_sidecar.trim.ledger.queues import Largest, Queue
from prompt_sidecar.trim.names import label_names, list_names
from prompt_sidecar.trim.oldest import hold_oldest, newest_light, newest_that_fit
from prompt_sidecar.trim.policy import AgeStage, Arguments, FitStage
from prompt_sidecar.trim.reasoning import Reasoning
from prompt_sidecar.trim.residue import Residue

MIN_SAVING: Final = 12
"""Least tokens that an edit must save: less is not worth the lost content and the rewritten cache."""
ELIDE_FLOOR: Final = 256
"""Least tokens that eliding leaves of a result: head and tail of a screenful. Smaller results are clipped instead."""
ELIDE_PASSES: Final = 4
"""Attempts to meet a token target with a byte budget; tokens per byte vary within a text, mostly by less than 2."""
REGISTRY_PAYS: Final = 0.05
"""Share of the limit that rewriting a registry before the history may invalidate in the cache: the part of the system
prompt, the tools and the messages behind it that the cut does not change. A longer prefix stays cached across cuts
instead, which is worth more than a complete list: in recorded runs of Codex, whose instructions take 3,000 tokens, it
costs 4 to 12 % less at limits of 15 and 30 % of the run, and shows as much of what the next action needs."""
WORDS_SHARE: Final = 0.25
"""Share of the limit that users' own texts after the opening may take. In recorded runs they take a few per cent; more
than a quarter are usually pasted logs, and the longest are elided as results are."""
SUPERSEDED_LOOKS: Final = 32
"""Superseded texts in front of a cut that are looked at, so that a run with thousands of them takes linear time."""
SUPERSEDED_LABEL: Final = 30
"""Tokens, roughly, of the label that is left of a superseded text."""
SUPERSEDED_MARGIN: Final = 2
"""How many times the cost of rewriting must be saved: runs end, and the next cut may rewrite that part anyway."""
NOTHING: Final = -1.0
"""A token target that is never met, so that all old items are clipped."""
_NOT_AHEAD: Final = frozenset({ItemKind.ARGUMENTS, ItemKind.SNAPSHOT})
"""Kinds whose placeholders are not counted ahead: arguments become `{}`; a snapshot's needs the text."""
COUNT_AHEAD: Final = 16
"""Placeholders that are counted in one call: a batch point clips some tens of items."""
_CARRIERS: Final = frozenset({ItemKind.RESULT, ItemKind.TEXT})
"""Kinds of items whose label may count dropped iterations."""
EMPTY_ARGUMENTS_TOKENS: Final = 1
"""Tokens of `{}`."""


class Texts(Protocol):
    """Source of an item's text, for eliding and for finding names that are no longer shown."""

    def ends(self, entry: Entry, most: int | None = None) -> tuple[bytes, bytes]:
        """The text's first and last bytes: the whole text twice, or the parts that its elision keeps.

        For a condensed result, these are bytes of the condensed text.

        With `most`, at least that many bytes and one more of each end of a whole text, if it has them.
        """
        ...

    def condensed(self, entry: Entry) -> Condensing | None:
        """Return how a new result is condensed; None if it stays unchanged."""
        ...

    def has(self, entry: Entry) -> bool:
        """Whether the current prompt holds the item, whole or trimmed."""
        ...

    def shown(self, entry: Entry) -> str:
        """Return the text as it is decided now; empty if nothing is left."""
        ...

    def arguments(self, entry: Entry, label: str) -> str | None:
        """Return arguments that keep their short strings; None if they become empty."""
        ...


class Evaluation:
    """One evaluation of the fold: the stages on a ledger, with the inputs of one call."""

    def __init__(
        self,
        ledger: Ledger,
        inputs: Inputs,
        texts: Texts,
        count: Callable[[str], int],
        count_many: Callable[[Sequence[str]], Sequence[int]] | None = None,
        *,
        since_9: bool = True,
        since_10: bool = True,
    ) -> None:
        self._ledger = ledger
        self._inputs = inputs
        self._policy = inputs.policy
        self._texts = texts
        self._count = count
        self._count_many = count_many or (lambda texts: [count(text) for text in texts])
        self._clipped_tokens: dict[tuple[int, int], int] = {}
        """Tokens of placeholders that were counted ahead, by message and item."""
        self._light_from = len(ledger)
        """The message from which on arguments and text are not clipped, however old they are."""
        self._most_kept = self._largest_keep = max(self._policy.keep(kind) for kind in Ageing)
        """The most newest groups that are not clipped; see `_newest_below`."""
        self._aim = inputs.limit
        """Tokens that marks and shares refer to: the limit, or a ceiling below it."""
        batches = self._policy.fit_stage is FitStage.OLDEST_FIRST and self._policy.age_stage is AgeStage.PRESSURE
        self._since_9 = since_9
        """Whether the run began under rules 9 or later; an earlier one goes on by its rules."""
        self._labels_name = since_10 and inputs.recall and self._policy.cuts_in_batches
        """Whether labels list names where a cut leaves the registry as it is."""
        ledger.drops.round_counts(rounds=since_9)
        self._small_stay = since_9 and batches
        """Whether cuts leave small results whole."""
        self._passes_small = False
        """Whether the step that is taken does."""
        self._whole = False
        """Whether condensed results count with their original size; see `used`."""
        self._changed = False
        self._decide = partial(ledger.decisions.decide, advertised=inputs.recall)
        self._residue = Residue(ledger, inputs)
        self._reasoning = Reasoning(ledger, inputs, count)

    @property
    def used(self) -> int:
        """Tokens of the prompt as decided so far, as marks see them.

        Below a ceiling, whose purpose is to save, tokens removed by condensing count too: cuts happen when they would
        without it, and each prompt is smaller. At the limit, where room is short, cuts come later instead.
        """
        return self._tokens + (self._ledger.decisions.condensed if self._whole else 0)

    @property
    def _tokens(self) -> int:
        """Tokens of the prompt as decided so far."""
        return used(self._ledger, self._inputs)

    def run(self) -> None:
        """Evaluate the current history.

        Evaluating the same history again changes nothing, unless the limit has decreased since.
        """
        ledger = self._ledger
        placeholder_needed = bool(ledger.drops.by_placeholder)
        new = ledger.decisions.begin()
        for index in new:
            self._condense(index)
            self._cap(index)
        ledger.drops.write_count(self._count)  # a rewind may have restored some
        self._changed = self._residue.changed = self._reasoning.changed = False
        ledger.decisions.watch()
        self._light_from = len(ledger)
        self._most_kept = self._largest_keep
        self._aim = self._residue.aim = aim(ledger, self._inputs)
        self._whole = self._aim < self._inputs.limit
        if ledger.thinking.reopened:
            self._reasoning.restore_open(self._texts.has)
        bound = self._inputs.reasoning is ReasoningRule.BOUND
        places = self._reasoning.own_places() if bound else (0, 0, 0)
        if bound:
            self._reasoning.remove_invalid(new)
        if self._policy.age_stage is AgeStage.ALWAYS:
            self._age()
        high = self._policy.fit_high * self._aim
        if self._policy.fit_stage is not FitStage.OFF and self.used > high:
            self._fit(high)
        if self._changed or self._residue.changed or self._reasoning.changed:
            self._clip_superseded(ledger.decisions.changed_from)
            ledger.drops.write_count(self._count)
            # Otherwise only messages of the newest iteration were trimmed, which no earlier prompt holds.
            listing = bool(ledger.groups) and ledger.decisions.changed_from < ledger.groups[-1].start
            listing = listing and self._batch(placeholder_needed=placeholder_needed)
            if bound:
                self._reasoning.unbind(places, listing=listing)
            if listing:
                unchanged = ledger.decisions.tokens_between(0, ledger.decisions.changed_from)
                stays = self._inputs.behind_registry + unchanged
                cheap = stays <= REGISTRY_PAYS * self._aim and not (bound and ledger.thinking.left)
                if not ledger.registry.listed or cheap:
                    ledger.registry.list_all()
                listed = self._inputs.own_in_history or ledger.registry.listed == ledger.iteration
                if self._policy.registry_share and listed:
                    list_names(ledger, self._texts)
                elif self._labels_name:
                    room = min(self._policy.registry_share * self._aim, high - self.used)
                    label_names(ledger, self._texts, self._count, int(room))

    def _batch(self, *, placeholder_needed: bool) -> bool:
        """Count a batch, which changes messages of earlier prompts; return whether to rewrite the registry with it.

        While no prompt can be made to fit, every call is a batch, and rewriting the registry each time would cost the
        prefix for nothing. So it stays as written at the first such batch until a later prompt fits, except for the
        placeholder, which is added when first needed. `placeholder_needed`: whether it was needed before.
        """
        ledger = self._ledger
        ledger.registry.batch()
        fits = self._tokens <= self._aim
        if not fits and ledger.registry.unfit_since and bool(ledger.drops.by_placeholder) == placeholder_needed:
            return False
        ledger.registry.rewrite(self._group_after_registry(), fits=fits)
        return True

    def _group_after_registry(self) -> int:
        """The group before which the registry is placed: the newest one before which our message may be placed.

        Where it must follow a user's message, agents may have put a system message of their own there, and two in a row
        are not taken everywhere. If there is no such group it is the newest, and the registry is not written.
        """
        ledger = self._ledger
        newest = group = len(ledger.groups) - 1
        while self._inputs.own_after_user and group >= ledger.own_from:
            start = ledger.groups[group].start
            before = ledger.decisions.live_before(start)
            if before < 0:
                break
            if ledger.records[before].role is Role.USER and not ledger.records[start].dropped:
                return group
            group = ledger.records[before].group
        return newest

    # -- condense ----------------------------------------------------------------------------------------------------

    def _condense(self, index: int) -> None:
        """Condense the results of one new message that no earlier prompt held."""
        record = self._ledger.records[index]
        if record.pinned:
            return
        for entry in record.entries:
            if not entry.condensable or entry.action is not None:
                continue
            self._ledger.decisions.condense(entry, self._texts.condensed(entry), advertised=self._inputs.recall)

    # -- cap ---------------------------------------------------------------------------------------------------------

    def _cap(self, index: int) -> None:
        """Elide the results of one new message, and clip images beyond their own cap."""
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
        if sum(entry.base_size for entry in entries) <= cap:
            return
        level = elide.water_level([entry.base_size for entry in entries], cap)
        for entry in entries:
            size = entry.base_size
            if size <= level:
                continue
            head, tail = self._texts.ends(entry, level)
            kept = elide.cut(
                head,
                tail,
                size,
                budget=level,
                head_share=self._policy.cap_head_share,
                stash_id=self._label(entry),
            )
            if kept is None:
                self._clip(entry, Reason.CAP, least=0)
            else:
                text = elide.elided(head, tail, size, kept, self._label(entry))
                self._decide(entry, Action.ELIDED, kept, self._count(text), Reason.CAP)

    def _cap_media(self, entries: list[Entry]) -> None:
        room = self._policy.cap_media_bytes
        for entry in entries:
            room -= entry.size
            if room < 0:
                self._clip(entry, Reason.CAP, least=0)

    # -- reasoning ---------------------------------------------------------------------------------------------------

    def _before_cut(self) -> None:
        """Remove bound reasoning, which is removed before anything else."""
        if self._inputs.reasoning is ReasoningRule.BOUND:
            self._changed |= self._reasoning.remove_from(self._cut_place())

    def _cut_place(self) -> int:
        """Return the first message that a cut will change; 0 if nothing is old."""
        old = (self._oldest(kinds, None, least) for kinds, least in ((LIGHT, 1), (HEAVY, 0)))
        return min((queue.head.message for queue in old if queue is not None and queue.head is not None), default=0)

    # -- age ---------------------------------------------------------------------------------------------------------

    def _age(self) -> None:
        """Clip all old items, however much of the limit is used."""
        self._ledger.release()
        self._reasoning.remove_closed(NOTHING)
        self._point_to_newer()
        self._clip_old(NOTHING)
        self._settle_old()
        if self._policy.fit_stage is not FitStage.OFF:
            self._residue.begin(self._carry)  # otherwise the labels would add up to the high-water mark

    def _settle_old(self) -> None:
        """Collapse old feedback and drop iterations beyond the hard cap, as every batch point does."""
        self._collapse_feedback()
        cap = self._policy.age_hard_cap_iterations
        if cap:
            while self._residue.drop_next(len(self._ledger.groups) - cap, Reason.AGE, self._carry):
                pass

    def _collapse_feedback(self) -> None:
        """Collapse old feedback, except the newest of each kind and a single one that is shorter than its label."""
        ledger = self._ledger
        stretches = ledger.stretches
        for stretch in stretches.waiting.take_old(len(ledger.groups) - self._policy.keep(None), ledger.records):
            first = stretch[0]
            if len(stretch) == 1 and not stretches.has_label(first.stretch) and self._shorter_than_label(first):
                stretches.waiting.leave(first)
                continue
            for entry in stretch:
                stretches.collapse(entry, self._count, advertised=self._inputs.recall)
                self._changed = True

    def _shorter_than_label(self, entry: Entry) -> bool:
        return entry.tokens <= self._count(elide.collapsed([kind is entry.feedback for kind in Feedback]))

    def _point_to_newer(self) -> None:
        """Clip results that were returned again to a pointer to the newer copy."""
        if not self._policy.age_repeats:
            return
        for entry, iteration in self._ledger.queues.take_repeated():
            if self._done(entry):
                continue
            tokens = self._count(elide.repeated(self._label(entry), entry.size, iteration))
            if entry.tokens - tokens >= MIN_SAVING:
                self._decide(entry, Action.CLIPPED, None, tokens, Reason.REPEATED, again=iteration)
                self._changed = True

    # -- fit ---------------------------------------------------------------------------------------------------------

    def _fit(self, high: float) -> None:
        policy, ledger = self._policy, self._ledger
        low = policy.fit_low * self._aim
        middle = (low + high) / 2
        self._passes_small = self._small_stay
        if policy.age_stage is AgeStage.PRESSURE:
            self._light_from = newest_light(ledger, policy.fit_keep_light * self._aim)
            if policy.fit_stage is FitStage.OLDEST_FIRST and self._has_room_for_unseen(high):
                self._most_kept = self._newest_below(low)
        self._before_cut()
        if place := self._cut_place():
            self._clip_superseded(place)
        if policy.fit_stage is FitStage.LARGEST_FIRST:
            self._reasoning.remove_closed(low)
            self._elide_largest(low)
        if policy.age_stage is not AgeStage.OFF:
            fixed = self._inputs.overhead + self._inputs.reserve
            hold_oldest(ledger, policy, self._aim, fixed, framing=self._since_9)
            self._settle_old()
            self._shorten_words()
            self._residue.begin(self._carry)
            self._reasoning.remove_closed(low - (self.used - self._tokens), self._cut_place())
            self._clip_old(low, drop=True)
            for give_up in (self._give_up_light, ledger.release):  # rather than clip newer results
                if self.used > middle and give_up():
                    self._residue.begin(self._carry)
                    self._clip_old(low, drop=True)
        newest = len(ledger.groups) - 1
        if policy.fit_stage is FitStage.OLDEST_FIRST:
            spared = newest if self._has_room_for_unseen(high) else None
            self._elide_largest(middle if policy.age_stage is AgeStage.PRESSURE else low, before=spared)
        self._whole = False  # what is new is made smaller only if there is no room for it
        if self.used > high:
            if self._inputs.reasoning is ReasoningRule.BOUND:
                # Done now, as the same prompt sent again has nothing else to cut.
                self._changed |= self._reasoning.remove_from(0)
            ledger.release()
            self._passes_small = False
            self._clip_old(high, keep=1)
            self._clip_small(high)
            while self.used > high and self._residue.drop_next(newest, Reason.FIT):
                pass
            if not self._since_9 and self.used > high:
                self._residue.drop_carrier()
            self._elide_unseen(high)
            if self.used > high:  # last, as it changes what is before the history, or near its beginning
                self._residue.drop_carrier()
            self._clip_newest(high)
            while self.used > self._inputs.limit and self._residue.drop_next_words():
                pass

    def _clip_superseded(self, first: int) -> None:
        """Clip frameworks' texts that a later one of their kind supersedes, in a cut that begins at message `first`.

        Those in front of it are clipped too if rewriting the prompt costs no more than keeping them as cached input
        from here on: for as many calls as there were so far, as nobody knows how long a run will last.
        """
        ledger, policy, place = self._ledger, self._policy, first
        calls, tokens = policy.price_cached * ledger.iteration, 0
        for entry in ledger.superseded.last(SUPERSEDED_LOOKS):
            if entry.message >= place:
                continue
            tokens += max(0, entry.tokens - SUPERSEDED_LABEL)
            again = ledger.decisions.tokens_between(entry.message, place)
            if SUPERSEDED_MARGIN * (policy.price_written - policy.price_cached) * again <= calls * tokens:
                first = entry.message
        for entry in ledger.superseded.take(first):
            self._clip(entry, Reason.SUPERSEDED)

    def _newest_below(self, low: float) -> int:
        """Return how many of the newest groups fit below the low-water mark, next to what is never trimmed."""
        ledger = self._ledger
        opening = ledger.decisions.tokens_between(0, ledger.messages.first_trimmable) if ledger.groups else 0
        return newest_that_fit(ledger, self._largest_keep, low - self._inputs.overhead - self._inputs.reserve - opening)

    def _give_up_light(self) -> bool:
        """Stop keeping the newest arguments and text; return whether any were kept."""
        light, self._light_from = self._light_from, len(self._ledger)
        return light < len(self._ledger)

    def _clip_old(self, target: float, keep: int | None = None, *, drop: bool = False) -> None:
        """Clip items of old groups, oldest first, light before heavy, until the target is met.

        `keep`: number of newest groups to keep in place of the policy's. `drop`: also drop iterations on the way.
        """
        for kinds, least in ((LIGHT, 1), (HEAVY, 0)):  # the newest assistant block is never changed
            if drop and kinds is HEAVY and self._policy.fit_stage is FitStage.OLDEST_FIRST:
                self._clip_large(target)
            while self.used > target:
                queue = self._oldest(kinds, keep, least)
                if queue is None:
                    break
                entry = queue.entries[queue.done]
                if drop and self._shorten(entry, target):
                    break
                stays = self._passes_small and _is_small(entry)
                if not stays:
                    self._count_ahead(queue)
                queue.advance()
                if not stays:
                    self._clip(entry, Reason.AGE if target == NOTHING else Reason.FIT)
                if drop:
                    self._residue.drop(self._carry)

    def _clip_large(self, target: float) -> None:
        """Clip old results of more than `LARGE` tokens, oldest first, until the target is met.

        Results that were visited are clipped, protected, kept as the oldest, or small by now. They are not visited
        again, unless the oldest are released.
        """
        ledger, queue = self._ledger, self._ledger.queues.large
        old = len(ledger.groups) - self._keep(Ageing.RESULTS)
        while self.used > target and queue.head is not None:
            entry = queue.head
            group = ledger.records[entry.message].group
            if group >= old:
                break
            if group >= ledger.queues.held and entry.tokens > LARGE:
                if self._shorten(entry, target):
                    break
                self._clip(entry, Reason.FIT)
                self._residue.drop(self._carry)
            queue.advance()

    def _clip_small(self, target: float) -> None:
        """Clip small results that cuts have left whole, oldest first, until the target is met; not the newest."""
        ledger, queue = self._ledger, self._ledger.queues.small
        while self.used > target and (entry := queue.head) is not None:
            if ledger.records[entry.message].group >= len(ledger.groups) - 1:
                break
            self._clip(entry, Reason.FIT)
            queue.advance()

    def _keep(self, kind: Ageing) -> int:
        """Return how many of the newest groups keep their entries of a queue."""
        return min(self._policy.keep(kind), self._most_kept)

    def _shorten_words(self) -> None:
        """Elide the longest of users' own texts where all of them exceed their share, except in the newest message."""
        ledger, left = self._ledger, WORDS_SHARE * self._inputs.limit
        newest: list[Entry] = []
        while ledger.decisions.words > left:
            entry = ledger.queues.longest.take()
            if entry is None or entry.tokens <= ELIDE_FLOOR:
                break
            if entry.message >= ledger.thinking.closed:
                newest.append(entry)
                continue
            wanted = max(ELIDE_FLOOR, min(entry.tokens // 2, entry.tokens - int(ledger.decisions.words - left)))
            if self._elide(entry, wanted):
                ledger.queues.longest.offer(entry)
        for entry in newest:
            ledger.queues.longest.offer(entry)

    def _shorten(self, entry: Entry, target: float) -> bool:
        """Elide a result that is larger than the tokens still to be freed; return whether that met the target.

        It is clipped in the next batch. Clipping a large one now would take the prompt far below the low-water mark.
        """
        wanted = entry.tokens - max(int(self.used - target) + 1, MIN_SAVING)
        if entry.kind is not ItemKind.RESULT or wanted < ELIDE_FLOOR or self._done(entry):
            return False
        if self._elide(entry, wanted):
            self._ledger.queues.largest.offer(entry)
        return self.used <= target

    def _oldest(self, kinds: Sequence[Ageing], keep: int | None, least: int) -> Queue | None:
        """Return the queue among these kinds whose next entry is old and the oldest of all."""
        ledger = self._ledger
        found: Queue | None = None
        oldest = (len(ledger), 0)
        for kind in kinds:
            queue = ledger.queues.by_age[kind]
            newest = len(ledger.groups) - max(self._keep(kind) if keep is None else keep, least)
            head = queue.head
            if head is None or (head.message, head.item) >= oldest:
                continue
            if keep is None and kind in LIGHT and head.message >= self._light_from:
                continue
            if ledger.records[head.message].group < newest:
                found, oldest = queue, (head.message, head.item)
        return found

    def _clip_newest(self, target: float) -> None:
        """Clip the newest results, oldest first, as the last resort."""
        queues = [self._ledger.queues.by_age[kind] for kind in HEAVY]
        left = heapq.merge(*(queue.entries[queue.done :] for queue in queues), key=lambda it: (it.message, it.item))
        for entry in left:
            if self.used <= target:
                break
            self._clip(entry, Reason.FIT)

    def _elide_largest(self, target: float, before: int | None = None) -> None:
        """Elide results, largest first, each as far as needed and at least by half, until the target is met.

        `before`: only those of groups before this one.
        """
        ledger = self._ledger
        spared: list[Entry] = []
        while self.used > target:
            entry = ledger.queues.pop_largest()
            if entry is None:
                break
            if entry.tokens <= ELIDE_FLOOR:
                spared.append(entry)
                break
            if before is not None and ledger.records[entry.message].group >= before:
                spared.append(entry)
                continue
            need = int(self.used - target) + 1
            wanted = max(ELIDE_FLOOR, min(entry.tokens // 2, entry.tokens - need))
            if entry.holdable and self._elide(entry, wanted):
                ledger.queues.largest.offer(entry)
        for entry in spared:
            ledger.queues.largest.offer(entry)

    def _has_room_for_unseen(self, high: float) -> bool:
        """Whether the newest iteration can stay whole next to what is never trimmed, if everything else is removed.

        If not, its results are elided like others, so that at least the results of earlier iterations stay.
        """
        ledger = self._ledger
        if not ledger.groups:
            return False
        first, newest = ledger.messages.first_trimmable, ledger.groups[-1].start
        others = ledger.decisions.tokens_between(min(first, newest), newest)
        return self._tokens - others <= high

    def _elide_unseen(self, target: float) -> None:
        """Elide the newest iteration's results, largest first, each as far as needed and at most by half at a time.

        The model asked for them and has not seen them yet, so everything else is trimmed first.
        """
        ledger = self._ledger
        newest = ledger.groups[-1].start if ledger.groups else len(ledger)
        results = ledger.queues.by_age[Ageing.RESULTS].entries
        unseen = itertools.takewhile(lambda it: it.message >= newest, reversed(results))
        largest = Largest(ledger.records, (entry for entry in unseen if not self._done(entry)))
        while self.used > target:
            entry = largest.take()
            if entry is None or entry.tokens <= ELIDE_FLOOR:
                break
            wanted = max(ELIDE_FLOOR, entry.tokens // 2, entry.tokens - int(self.used - target) - 1)
            if self._elide(entry, wanted):
                ledger.queues.largest.offer(entry)
                largest.offer(entry)

    def _elide(self, entry: Entry, target: int) -> bool:
        head, tail = self._texts.ends(entry)
        size = entry.base_size
        shown = size if entry.kept is None else entry.kept.head + entry.kept.tail
        budget = min(shown - 1, size * target // max(entry.base_tokens, 1))
        label = self._label(entry)
        for _ in range(ELIDE_PASSES):
            kept = elide.cut(head, tail, size, budget=budget, head_share=self._policy.fit_head_share, stash_id=label)
            if kept is None:
                return False
            tokens = self._count(elide.elided(head, tail, size, kept, label))
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
        leaves = entry.kind is ItemKind.ARGUMENTS and self._policy.age_arguments is Arguments.LEAVES
        self._decide(entry, Action.CLIPPED, None, tokens, reason, leaves=leaves)
        self._changed |= reason is not Reason.CAP

    def _done(self, entry: Entry) -> bool:
        """Whether an item is clipped or dropped, or must not be changed."""
        record = self._ledger.records[entry.message]
        return record.dropped or record.pinned or not entry.holdable or entry.action is Action.CLIPPED

    def _placeholder(self, entry: Entry) -> str | None:
        """Return the text that replaces an entry when it is clipped; None for arguments."""
        if entry.kind is ItemKind.SNAPSHOT:
            text = self._texts.ends(entry)[0].decode(errors="replace")
            return elide.clipped_snapshot(text, self._label(entry), entry.size)
        if entry.kind is ItemKind.ARGUMENTS and self._policy.age_arguments is Arguments.LEAVES:
            return self._texts.arguments(entry, self._label(entry))
        return elide.placeholder(entry.kind, self._label(entry), entry.size)

    def _count_ahead(self, queue: Queue) -> None:
        """Count the placeholders of the entries that will be clipped next in one call."""
        first = queue.entries[queue.done]
        if (first.message, first.item) in self._clipped_tokens or first.kind in _NOT_AHEAD:
            return
        ahead = queue.entries[queue.done : queue.done + COUNT_AHEAD]
        ahead = [entry for entry in ahead if not (self._passes_small and _is_small(entry))]
        texts = [self._placeholder(entry) or "" for entry in ahead]
        for entry, tokens in zip(ahead, self._count_many(texts), strict=True):
            self._clipped_tokens[entry.message, entry.item] = tokens

    def _carry(self, entries: Sequence[Entry], reason: Reason) -> Entry | None:
        """Clip an iteration's items, and choose the one whose label will count the dropped iterations.

        Instructions and users' own texts are not clipped. None if none is suitable.
        """
        records = self._ledger.records
        entries = [
            entry
            for entry in entries
            if not (records[entry.message].dropped or (records[entry.message].words and entry.kind is ItemKind.TEXT))
            and records[entry.message].role is not Role.SYSTEM
        ]
        for entry in entries:
            if not entry.fixed and entry.kind is not ItemKind.REASONING:
                self._clip(entry, reason)
        clipped = (entry for entry in entries if entry.action is Action.CLIPPED and not entry.again)
        able = [entry for entry in clipped if entry.kind in _CARRIERS]
        return max(able, key=lambda entry: (entry.kind is ItemKind.RESULT, entry.size), default=None)

    def _label(self, entry: Entry) -> str:
        advertised = entry.advertised if entry.action is not None else self._inputs.recall
        return entry.stash_id if advertised else ""


def _is_small(entry: Entry) -> bool:
    """Whether a cut leaves a result whole while its iteration stays."""
    return entry.kind is ItemKind.RESULT and entry.full_tokens <= SMALL
