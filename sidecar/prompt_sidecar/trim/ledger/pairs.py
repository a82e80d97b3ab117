"""Pairs of tool calls and results across groups, and the units of groups that are dropped together.

A result answers the newest open call with its id. Dropping a call without its result, or the reverse, would leave an
orphan; so a group is dropped only together with all groups up to the newest one that answers its calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prompt_sidecar.trim.entries import BlockGroup, Record


@dataclass(slots=True)
class _Unit:
    """The known part of a unit: its first group, the first one not examined yet, its last so far."""

    first: int = 0
    seen: int = 0
    end: int = -1


class Pairs:
    """The open calls of a history, and the last requested unit."""

    def __init__(self, groups: list[BlockGroup]) -> None:
        """Start without messages; `groups` is the ledger's own list, which it goes on changing."""
        self._groups = groups
        self._open_calls: dict[str, list[int]] = {}
        """For each call id the groups of its unanswered calls, oldest first."""
        self._units = (_Unit(), _Unit())
        """The last requested unit, with users' words kept and without."""

    def add(self, record: Record) -> None:
        """Match the calls and answers of a message at the end of the history."""
        for call_id in record.calls:
            self._open_calls.setdefault(call_id, []).append(record.group)
            if record.group >= 0:
                self._groups[record.group].unanswered += 1
        for call_id in record.answers:
            waiting = self._open_calls.get(call_id)
            if not waiting:
                continue
            group = waiting.pop()
            if group < 0:
                continue
            self._groups[group].unanswered -= 1
            self._groups[group].reach = max(self._groups[group].reach, record.group)
            for unit in self._units:
                if unit.first <= group < unit.seen:
                    unit.end = max(unit.end, record.group)
            self._groups[record.group].back = min(self._groups[record.group].back, group)

    def rebuild(self, records: Iterable[Record]) -> None:
        """Match the calls and answers of all messages again."""
        self._open_calls, self._units = {}, (_Unit(), _Unit())
        for index, group in enumerate(self._groups):
            group.reach, group.back, group.unanswered = index, index, 0
        for record in records:
            self.add(record)

    def unit_end(self, group: int, *, words: bool = False) -> int:
        """Return the last group that must be dropped together with `group` and those between.

        A repeated call for the same group continues where the last one ended, as a unit may span the whole history;
        with `words` it continues separately, as users' words are dropped by a position of their own.
        """
        unit = self._units[words]
        if unit.first != group or unit.end < group:
            unit.first, unit.seen, unit.end = group, group, group
        while unit.seen <= unit.end:
            unit.end = max(unit.end, self._groups[unit.seen].reach)
            unit.seen += 1
        return unit.end
