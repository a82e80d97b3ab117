"""Texts that a framework put into the history in mid-run, and which of them a later one of their kind supersedes."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from prompt_sidecar.trim.entries import Action, Entry, Record
from prompt_sidecar.trim.ledger.messages import Messages


class Superseded:
    """The texts that are superseded by a later one of their kind. All of it follows from the history."""

    def __init__(self, messages: Messages) -> None:
        self._records = messages.records
        self._newest: dict[bytes, Entry] = {}
        self._agents: set[str] = set()
        """The agents that the run is known to belong to."""
        self._waiting: list[Entry] = []
        """Superseded texts that were not taken yet, by their places."""

    def append(self, record: Record) -> None:
        """Add the texts of a new message, whose group is known."""
        for entry in record.entries:
            known = entry.injected
            if known is None:
                continue
            if known.certain or record.group < 0:
                self._agents.add(known.agent)
            if known.agent not in self._agents:
                continue
            before = self._newest.get(known.kind)
            self._newest[known.kind] = entry
            if before is not None:
                insort(self._waiting, before, key=_place)

    def rewind(self) -> None:
        """Derive everything again from what is left of the history, after `Messages` has forgotten the rest."""
        self._newest, self._agents, self._waiting = {}, set(), []
        for record in self._records:
            self.append(record)

    def last(self, number: int) -> Sequence[Entry]:
        """Return those among the last `number` that may still be clipped, the last one first."""
        return [entry for entry in reversed(self._waiting[-number:]) if self._may_be_clipped(entry)]

    def take(self, first: int) -> Sequence[Entry]:
        """Remove and return those of messages from `first` on that may be clipped."""
        taken: list[Entry] = []
        while self._waiting and self._waiting[-1].message >= first:
            taken.append(self._waiting.pop())
        return [entry for entry in taken if self._may_be_clipped(entry)]

    def _may_be_clipped(self, entry: Entry) -> bool:
        record = self._records[entry.message]
        if record.group < 0 or record.pinned or record.kept or record.settled or record.dropped:
            return False
        return entry.holdable and not entry.fixed and entry.action is not Action.CLIPPED


def _place(entry: Entry) -> tuple[int, int]:
    return entry.message, entry.item
