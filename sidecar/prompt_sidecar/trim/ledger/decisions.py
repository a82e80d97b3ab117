"""What was decided about each message and item, and the tokens that are left."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.condense.condensing import Level
from prompt_sidecar.trim.elide import KeptBytes
from prompt_sidecar.trim.entries import CUTS, Action, Condensing, Entry, ListedNames, Reason, Record
from prompt_sidecar.trim.ledger.messages import Messages
from prompt_sidecar.trim.ledger.sums import Sums


class Fit(Protocol):
    """Adapts decisions to texts that have been masked since."""

    def kept(self, entry: Entry, kept: KeptBytes) -> KeptBytes | None:
        """Return what an elision keeps; None: the text stays whole, or condensed."""
        ...

    def condensed(self, entry: Entry, how: Condensing) -> Condensing:
        """Return how a result is condensed."""
        ...


BESIDE_PINNED: Final = 60
"""Tokens, roughly, that clipping leaves of an iteration in addition to a pinned message: its call, other labels."""
_ACTIONS: Final = (None, Action.ELIDED, Action.CLIPPED, Action.COLLAPSED, Action.CONDENSED)
"""Actions by their number in revisions."""
_REASONS: Final = tuple(Reason)
_ACTION_NUMBERS: Final = {action: number for number, action in enumerate(_ACTIONS)}
_REASON_NUMBERS: Final = {reason: number for number, reason in enumerate(_REASONS)}


class CondensingState(msgspec.Struct, frozen=True, array_like=True):
    """How a result was condensed, as saved."""

    version: int
    level: int
    page: bool
    size: int
    tokens: int


class EntryState(msgspec.Struct, frozen=True, array_like=True):
    """What was decided about one item, as saved."""

    message: int
    item: int
    action: int
    head: int
    tail: int
    tokens: int
    reason: int
    decided: int
    first: int
    advertised: bool
    counts: tuple[int, ...]
    again: int
    leaves: bool
    condensed: CondensingState | None = None
    """How it was condensed; version 7 was the first to do so."""
    listed: list[tuple[int, int]] = []
    """Places of the names that its label lists; version 10 was the first to do so."""
    listed_tokens: int = 0
    """Tokens that they add to the label."""


class DecisionsState(msgspec.Struct, frozen=True, array_like=True):
    """All decisions, as saved."""

    entries: list[EntryState]
    dropped: list[tuple[int, int, int, int]]
    """Each range: first record, the one after the last, the iteration in which they were dropped, and the reason."""


def weighed(opaque: int, factor: float) -> int:
    """Return the tokens to add for encrypted text, whose calibration factor is `factor` times that of other text."""
    return round(opaque * (factor - 1.0))


def _state_of(how: Condensing | None) -> CondensingState | None:
    return None if how is None else CondensingState(how.version, how.level, how.page, how.size, how.tokens)


def _condensing(was: CondensingState) -> Condensing:
    return Condensing(was.version, Level(was.level), was.page, was.size, was.tokens)


def is_words(entry: Entry) -> bool:
    """Whether an item of a user's message after the opening is the user's own text."""
    return entry.kind is ItemKind.TEXT and entry.feedback is None


def _condensed_away(entry: Entry) -> int:
    """Return the tokens that condensing saves in a result, if it is condensed and nothing else."""
    return entry.full_tokens - entry.tokens if entry.action is Action.CONDENSED else 0


def _stays(record: Record) -> bool:
    """Whether a message after the opening stays whole, whatever its kind, and is not a user's own text."""
    return (record.pinned or record.kept) and record.group >= 0 and not record.words


class Decisions:
    """The decisions about a history, and the tokens that are left."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._records = messages.records
        self.total = 0
        """Current tokens of all records."""
        self.opaque = 0
        """The part of `total` that is encrypted text."""
        self.condensed = 0
        """Tokens that condensing saves in results that are condensed and nothing else."""
        self.words = 0
        """Tokens of users' own texts after the opening."""
        self.pinned = 0
        """Tokens of other messages after the opening that are pinned or results of tools that are never trimmed, and of
        the rest of their iterations, which are not dropped."""
        self._live = Sums()
        """Tokens of each record, 0 once dropped."""
        self._spoken = Sums()
        """The same for records with a user's own text after the opening, 0 for the others."""
        self._next_live: dict[int, int] = {}
        self._live_before: dict[int, int] = {}
        """For a dropped record, an index up to which (or down to which) all records are dropped too."""
        self.dirty: set[int] = set()
        """Records whose rendering has changed since the last prompt that was returned."""
        self.evaluated = 0
        """Number of records at the last evaluation."""
        self.changed_from = 0
        """The first record that the current evaluation has changed."""

    # -- life --------------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Count a message that was added to `Messages`."""
        record.words = record.role is Role.USER and record.group >= 0 and any(map(is_words, record.entries))
        live = 0 if record.dropped else record.tokens
        self._live.append(live)
        self._spoken.append(live if record.words else 0)
        self._count(record, 1)

    def _count(self, record: Record, sign: int) -> None:
        """Count a record's remaining tokens in (1) or out (-1)."""
        if record.dropped:
            return
        self.total += sign * record.tokens
        self.condensed += sign * sum(map(_condensed_away, record.entries))
        self.opaque += sign * record.opaque
        if record.words:
            self.words += sign * sum(entry.tokens for entry in record.entries if is_words(entry))
        if _stays(record):
            self.pinned += sign * (record.tokens + BESIDE_PINNED)

    def pin(self, index: int) -> None:
        """Count a message that is pinned, before `Messages` pins it."""
        record = self._records[index]
        if not record.dropped and not _stays(record):
            self.pinned += record.tokens + BESIDE_PINNED if record.group >= 0 and not record.words else 0

    def rewind(self, length: int) -> None:
        """Forget the messages from `length` on, before `Messages` does."""
        for record in self._records[length:]:
            self._count(record, -1)
        self._live.cut(length)
        self._spoken.cut(length)
        self._next_live, self._live_before = {}, {}
        self.dirty = {index for index in self.dirty if index < length}
        self.evaluated = min(self.evaluated, length)

    def save(self) -> DecisionsState:
        """Return the decisions for saving."""
        entries = [
            EntryState(
                entry.message,
                entry.item,
                _ACTION_NUMBERS[entry.action],
                entry.kept.head if entry.kept is not None else 0,
                entry.kept.tail if entry.kept is not None else 0,
                entry.tokens,
                _REASON_NUMBERS[entry.reason or Reason.FIT],
                entry.decided,
                entry.first,
                entry.advertised,
                entry.counts,
                entry.again,
                entry.leaves,
                _state_of(entry.condensed),
                list(entry.listed.places) if entry.listed is not None else [],
                entry.listed.tokens if entry.listed is not None else 0,
            )
            for record in self._records
            if record.touched
            for entry in record.entries
            if entry.action is not None
        ]
        dropped: list[tuple[int, int, int, int]] = []
        for index, record in enumerate(self._records):
            if not record.dropped:
                continue
            how = record.dropped_in, _REASON_NUMBERS[record.dropped_for]
            if dropped and dropped[-1][1:] == (index, *how):
                dropped[-1] = (dropped[-1][0], index + 1, *how)
            else:
                dropped.append((index, index + 1, *how))
        return DecisionsState(entries, dropped)

    def load(self, state: DecisionsState, fit: Fit | None = None) -> None:
        """Load decisions that were made elsewhere about the same history, about which none was made here."""
        self.total = self.opaque = self.condensed = self.words = self.pinned = 0
        self._live, self._spoken = Sums(), Sums()
        for record in self._records:  # again, as annotations decide what kind of text a user's text is
            self.append(record)
        for was in state.entries:
            entry = self._records[was.message].entries[was.item]
            if was.condensed is not None:
                entry.advertised = was.advertised  # as its label, which is part of the text that an elision starts from
                entry.condensed = _condensing(was.condensed)
                entry.condensed = entry.condensed if fit is None else fit.condensed(entry, entry.condensed)
            kept = KeptBytes(was.head, was.tail) if _ACTIONS[was.action] is Action.ELIDED else None
            if kept is None or fit is None or (kept := fit.kept(entry, kept)) is not None:
                self._load_entry(entry, was, kept, keep_names=fit is None)
            elif entry.condensed is not None:
                self.decide(entry, Action.CONDENSED, None, entry.condensed.tokens, Reason.CONDENSE)
                entry.decided = was.decided
        for first, end, iteration, reason in state.dropped:
            for index in range(first, end):
                self.drop_record(index, iteration, _REASONS[reason])
        self.evaluated = len(self._records)

    def _load_entry(self, entry: Entry, was: EntryState, kept: KeptBytes | None, *, keep_names: bool) -> None:
        action = _ACTIONS[was.action]
        if action is None:
            return
        if entry.kind is ItemKind.REASONING:
            self.remove_reasoning(entry, was.tokens, drop=False)
        else:
            self.decide(entry, action, kept, was.tokens, _REASONS[was.reason])
        entry.decided, entry.first, entry.advertised = was.decided, was.first, was.advertised
        entry.counts, entry.again, entry.leaves = was.counts, was.again, was.leaves
        if was.listed:
            self._load_names(entry, was, keep=keep_names)

    def _load_names(self, entry: Entry, was: EntryState, *, keep: bool) -> None:
        """Load the names that a label lists; without `keep`, or where one is not there any more, it lists none."""
        known = [(self._records[message].names, place) for message, place in was.listed]
        if keep and all(place < len(names) for names, place in known):
            listed = tuple(names[place] for names, place in known)
            entry.listed = ListedNames(tuple(was.listed), listed, was.listed_tokens)
        else:
            self._set_tokens(entry, entry.tokens - was.listed_tokens)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def begin(self) -> range:
        """Begin an evaluation. Returns the indices of the messages that the last one has not seen."""
        new = range(self.evaluated, len(self._records))
        self.evaluated = len(self._records)
        return new

    def watch(self) -> None:
        """Make `changed_from` show changes from here on."""
        self.changed_from = len(self._records)

    def decide(
        self,
        entry: Entry,
        action: Action,
        kept: KeptBytes | None,
        tokens: int,
        reason: Reason,
        *,
        advertised: bool = True,
        again: int = 0,
        leaves: bool = False,
    ) -> None:
        """Record a decision about an item; see the fields of `Entry`."""
        if entry.action is None:
            entry.advertised = advertised
        elif entry.decided != self._messages.iteration:
            entry.earlier = (*entry.earlier, (entry.decided, entry.tokens))
        stands = not self._records[entry.message].dropped
        self.condensed -= _condensed_away(entry) if stands else 0
        entry.action, entry.kept, entry.reason, entry.again, entry.leaves = action, kept, reason, again, leaves
        entry.decided = self._messages.iteration
        entry.first = entry.first or (entry.decided if action in CUTS else 0)
        self._set_tokens(entry, tokens)
        self.condensed += _condensed_away(entry) if stands else 0

    def condense(self, entry: Entry, how: Condensing | None, *, advertised: bool) -> None:
        """Record how a new result is condensed; None: it stays unchanged, and its call is no longer needed."""
        if how is None:
            entry.call = None
            return
        self.decide(entry, Action.CONDENSED, None, how.tokens, Reason.CONDENSE, advertised=advertised)
        entry.condensed = how

    def set_tokens(self, entry: Entry, tokens: int) -> None:
        """Set an item's remaining tokens, without a decision."""
        stands = not self._records[entry.message].dropped
        self.condensed -= _condensed_away(entry) if stands else 0
        self._set_tokens(entry, tokens)
        self.condensed += _condensed_away(entry) if stands else 0

    def _set_tokens(self, entry: Entry, tokens: int) -> None:
        record = self._records[entry.message]
        change = tokens - entry.tokens
        entry.tokens = tokens
        record.tokens += change
        if record.words and is_words(entry) and not record.dropped:
            self.words += change
        self._change(entry.message, change)

    def label(self, entry: Entry, counts: tuple[int, ...], change: int) -> None:
        """Set the counts in an item's label; `change`: tokens that are added to its message."""
        entry.counts = counts
        self._records[entry.message].tokens += change
        self._change(entry.message, change)

    def list_names(self, entry: Entry, listed: ListedNames | None) -> None:
        """Have a clipped result's label list names, or none any more."""
        before = entry.listed.tokens if entry.listed is not None else 0
        entry.listed = listed
        self.set_tokens(entry, entry.tokens - before + (listed.tokens if listed is not None else 0))

    def remove_reasoning(self, entry: Entry, tokens: int, *, drop: bool) -> None:
        """Remove an item of reasoning.

        Args:
            entry: the item.
            tokens: tokens of the label that replaces it.
            drop: whether its message, which holds nothing else, is dropped.
        """
        record = self._records[entry.message]
        self.decide(entry, Action.CLIPPED, None, tokens, Reason.REASONING, advertised=False)
        record.opaque -= entry.opaque
        if record.dropped:  # its tokens were subtracted when its message was dropped
            return
        self.opaque -= entry.opaque
        if drop:
            self.drop_record(entry.message, self._messages.iteration, Reason.REASONING)

    def restore_reasoning(self, entry: Entry) -> None:
        """Undo the removal of an item of reasoning, and of its message if that went with it."""
        record = self._records[entry.message]
        if record.dropped and record.dropped_for is Reason.REASONING:
            self.bring_back(entry.message)
        record.opaque += entry.opaque
        if not record.dropped:
            self.opaque += entry.opaque
        entry.action, entry.reason = None, None
        entry.decided, entry.first, entry.earlier = 0, 0, ()
        self.set_tokens(entry, entry.full_tokens)
        self.mark_dirty(entry.message)

    def drop_record(self, index: int, iteration: int, reason: Reason = Reason.RESIDUE) -> None:
        """Drop one message."""
        record = self._records[index]
        for entry in record.entries:
            if entry.listed is not None:  # should it come back, its names have been listed elsewhere
                self.list_names(entry, None)
        self._count(record, -1)
        self._shift(index, -record.tokens)
        record.dropped, record.dropped_in, record.dropped_for = True, iteration, reason
        self.mark_dirty(index)

    def redate(self, index: int, iteration: int, reason: Reason) -> None:
        """Change the time and the reason of a dropped message's drop."""
        record = self._records[index]
        record.dropped_in, record.dropped_for = iteration, reason
        self.mark_dirty(index)

    def bring_back(self, index: int) -> None:
        """Undo the drop of a message."""
        record = self._records[index]
        record.dropped = False
        self._count(record, 1)
        self._shift(index, record.tokens)
        self._next_live, self._live_before = {}, {}
        self.mark_dirty(index)

    def mark_dirty(self, index: int) -> None:
        """Mark a record as changed, so that it is rendered again."""
        self._records[index].touched += 1
        self.dirty.add(index)
        self.changed_from = min(self.changed_from, index)

    def rendered(self) -> None:
        """Record that a prompt with all changes was returned."""
        self.dirty = set()

    def _change(self, index: int, change: int) -> None:
        """Add a change of a record's tokens, unless it is dropped."""
        if not self._records[index].dropped:
            self.total += change
            self.pinned += change if _stays(self._records[index]) else 0
            self._shift(index, change)
            self.mark_dirty(index)

    def _shift(self, index: int, change: int) -> None:
        self._live.add(index, change)
        if self._records[index].words:
            self._spoken.add(index, change)

    # -- questions ---------------------------------------------------------------------------------------------------

    def weight(self, opaque_factor: float) -> int:
        """Current tokens of all records. `opaque_factor`: factor of encrypted text over that of other text."""
        return self.total + weighed(self.opaque, opaque_factor)

    def tokens_between(self, first: int, last: int) -> int:
        """Current tokens of the records from index `first` up to, not including, `last`."""
        return self._live.before(last) - self._live.before(first)

    def spoken_between(self, first: int, last: int) -> int:
        """The part of `tokens_between` in messages with a user's own text, which stay without their iteration."""
        return self._spoken.before(last) - self._spoken.before(first)

    def next_live(self, index: int) -> int:
        """The first record from `index` on that is not dropped; the history's length if there is none."""
        passed: list[int] = []
        while index < len(self._records) and self._records[index].dropped:
            passed.append(index)
            index = self._next_live.get(index, index + 1)
        self._next_live.update(dict.fromkeys(passed, index))
        return index

    def live_before(self, index: int) -> int:
        """The last record before `index` that is not dropped; -1 if there is none."""
        index -= 1
        passed: list[int] = []
        while index >= 0 and self._records[index].dropped:
            passed.append(index)
            index = self._live_before.get(index, index - 1)
        self._live_before.update(dict.fromkeys(passed, index))
        return index
