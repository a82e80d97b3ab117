"""Feedback that is not collapsed yet, and which of it is old enough to be.

The newest of each kind is kept, and so is the only old one of a stretch while it is shorter than the stretch's label.
A batch point examines the feedback that became old since the last one and the entries affected by it: the former newest
of each kind, and single ones whose stretch gained another. So the work of all batch points together is linear in the
feedback, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prompt_sidecar.trim.entries import Entry, Feedback, Record


class Waiting:
    """One run's feedback that is not collapsed."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """Start with these entries, oldest first."""
        self._entries: list[Entry] = []
        self._done = 0
        """Number of old entries."""
        self._of_kind: dict[Feedback | None, list[Entry]] = {}
        self._newest: list[Entry] = []
        """Old entries that are kept as the newest of their kind."""
        self._alone: dict[int, Entry] = {}
        """Old entries that are kept because their label would be longer, by stretch."""
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Add feedback that follows all other."""
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
