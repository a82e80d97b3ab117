"""Feedback that is not collapsed, and which of it has grown old enough to be.

The newest of each kind stays, and so does one that would be shorter than the label of its stretch as long as it is the
only old one there. A batch point looks at what has grown old since the last one and at what that may change: those that
were the newest, and those alone in the stretch of one that came. So the work of all batch points together grows with
the feedback, however often they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prompt_sidecar.trim.entries import Entry, Feedback, Record


class Waiting:
    """One run's feedback that is not collapsed."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """Begin with these entries, oldest first."""
        self._entries: list[Entry] = []
        self._done = 0
        """Entries that have grown old."""
        self._of_kind: dict[Feedback | None, list[Entry]] = {}
        self._newest: list[Entry] = []
        """Old ones that stay as the newest of their kind."""
        self._alone: dict[int, Entry] = {}
        """Old ones that stay because their label would be longer, by stretch."""
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Take feedback that comes after all other."""
        self._entries.append(entry)
        self._of_kind.setdefault(entry.feedback, []).append(entry)

    def take_old(self, newest: int, records: Sequence[Record]) -> list[list[Entry]]:
        """Take what may be collapsed of the feedback before group `newest`, stretch by stretch, oldest first.

        What is taken is not asked for again, but for what `leave` gives back.
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
    """Whether an entry is collapsed, or stands in a message that is dropped or must not change."""
    record = records[entry.message]
    return entry.action is not None or record.dropped or record.pinned
