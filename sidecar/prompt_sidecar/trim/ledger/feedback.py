"""Feedback, which is collapsed by stretches: feedback messages without another text of the user's between them.

The newest of each kind is kept, and so is the only old one of a stretch while it is shorter than the stretch's label.
A batch point examines the feedback that became old since the last one and the entries affected by it: the former newest
of each kind, and single ones whose stretch gained another. So the work of all batch points together is linear in the
feedback, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim import elide
from prompt_sidecar.trim.entries import FEEDBACK_PLACES, Action, Entry, Feedback, Reason, Record
from prompt_sidecar.trim.ledger.decisions import Decisions
from prompt_sidecar.trim.ledger.messages import Messages


class Waiting:
    """One run's feedback that is not collapsed."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._done = 0
        """Number of old entries."""
        self._of_kind: dict[Feedback | None, list[Entry]] = {}
        self._newest: list[Entry] = []
        """Old entries that are kept as the newest of their kind."""
        self._alone: dict[int, Entry] = {}
        """Old entries that are kept because their stretch's label would be longer, by stretch."""

    def append(self, entry: Entry) -> None:
        """Add feedback that follows all other feedback."""
        self._entries.append(entry)
        self._of_kind.setdefault(entry.feedback, []).append(entry)

    def take_old(self, newest: int, records: Sequence[Record]) -> list[list[Entry]]:
        """Remove and return the feedback before group `newest` that may be collapsed, by stretch, oldest first.

        It is not returned again, unless `leave` gives it back.
        """
        last = {kind: self._last(kind, records) for kind in self._of_kind}
        taken = [entry for entry in self._newest if entry is not last[entry.feedback]]
        self._newest = [entry for entry in self._newest if entry is last[entry.feedback]]
        while self._done < len(self._entries) and records[self._entries[self._done].message].group < newest:
            entry = self._entries[self._done]
            self._done += 1
            (self._newest if entry is last[entry.feedback] else taken).append(entry)
        for stretch in {entry.stretch for entry in taken}:
            alone = self._alone.pop(stretch, None)
            if alone is not None:
                (self._newest if alone is last[alone.feedback] else taken).append(alone)
        stretches: dict[int, list[Entry]] = {}
        for entry in sorted(taken, key=lambda entry: (entry.message, entry.item)):
            if entry.holdable and not _gone(entry, records):
                stretches.setdefault(entry.stretch, []).append(entry)
        return list(stretches.values())

    def leave(self, entry: Entry) -> None:
        """Leave an entry as it is until another of its stretch is old."""
        self._alone[entry.stretch] = entry

    def _last(self, kind: Feedback | None, records: Sequence[Record]) -> Entry | None:
        entries = self._of_kind[kind]
        while entries and _gone(entries[-1], records):
            entries.pop()
        return entries[-1] if entries else None


def _gone(entry: Entry, records: Sequence[Record]) -> bool:
    """Whether an entry is collapsed, or its message is dropped or pinned."""
    record = records[entry.message]
    return entry.action is not None or record.dropped or record.pinned


class Stretches:
    """The feedback of a run. All of it follows from the history and the decisions, so nothing is saved."""

    def __init__(self, messages: Messages, decisions: Decisions) -> None:
        self._messages = messages
        self._decisions = decisions
        self.waiting = Waiting()
        """Feedback that is not collapsed yet."""
        self._labels: dict[int, Entry] = {}
        """The first collapsed entry of each stretch."""
        self._user_texts = 0
        """User messages with text that is neither snapshot nor feedback; each ends a stretch."""

    def append(self, record: Record) -> None:
        """Assign a user's texts to stretches."""
        if record.role is not Role.USER:
            return
        texts = [entry for entry in record.entries if entry.kind is ItemKind.TEXT]
        may_collapse = record.group >= 0 and not record.pinned
        self._user_texts += any(entry.feedback is None for entry in texts)
        for entry in texts:
            entry.stretch = self._user_texts
            if entry.counts and entry.action is Action.COLLAPSED:
                self._labels[entry.stretch] = entry
            elif entry.feedback is not None and entry.action is None and may_collapse and not entry.fixed:
                self.waiting.append(entry)

    def derive(self) -> None:
        """Find the stretches again; the counts of their labels stay as they were written."""
        self.waiting, self._labels, self._user_texts = Waiting(), {}, 0
        for record in self._messages.records:
            self.append(record)

    def has_label(self, stretch: int) -> bool:
        """Whether a stretch has a label in the prompt."""
        head = self._labels.get(stretch)
        return head is not None and not self._messages.records[head.message].dropped

    def collapse(self, entry: Entry, count: Callable[[str], int], *, advertised: bool) -> None:
        """Count feedback in the label of its stretch, which replaces the stretch's first collapsed message.

        Later messages are dropped if they hold nothing else and their neighbours may be adjacent.
        """
        assert entry.feedback is not None
        if not self.has_label(entry.stretch):
            self._labels[entry.stretch] = entry
        head = self._labels[entry.stretch]
        counts = list(head.counts or (0,) * len(Feedback))
        counts[FEEDBACK_PLACES[entry.feedback]] += 1
        head.counts = tuple(counts)
        self._collapse(head, count(elide.collapsed(head.counts)), advertised)
        if entry is head:
            return
        self._collapse(entry, count(elide.COLLAPSED), advertised)
        record = self._messages.records[entry.message]
        alone = not (record.calls or record.answers) and all(
            each.action is Action.COLLAPSED and not each.counts for each in record.entries
        )
        if alone and self._can_drop(entry.message):
            self._decisions.drop_record(entry.message, self._messages.iteration, Reason.FEEDBACK)

    def _collapse(self, entry: Entry, tokens: int, advertised: bool) -> None:
        self._decisions.decide(entry, Action.COLLAPSED, None, tokens, Reason.FEEDBACK, advertised=advertised)

    def _can_drop(self, index: int) -> bool:
        """Whether dropping a message leaves no invalid pair of neighbours, such as two assistant messages."""
        records = self._messages.records
        before, after = self._decisions.live_before(index), self._decisions.next_live(index + 1)
        accepted = (Role.USER, Role.TOOL)
        return before >= 0 and (
            records[before].role in accepted or (after < len(records) and records[after].role in accepted)
        )
