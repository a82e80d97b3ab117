"""Pairs of tool calls and results across groups, and the units of groups that are dropped together.

A result answers the newest open call with its id. Dropping a call without its result, or the reverse, would leave an
orphan; so a group is dropped only together with all groups up to the newest one that answers its calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from prompt_sidecar.trim.entries import Group, Record


class Pairs:
    """The open calls of a history, and the last unit that was asked for."""

    def __init__(self, groups: list[Group]) -> None:
        """Start without messages; `groups` is the ledger's own list, which it goes on changing."""
        self._groups = groups
        self._open_calls: dict[str, list[int]] = {}
        """For each call id the groups of its unanswered calls, oldest first."""
        self._unit = 0
        self._unit_seen = 0
        self._unit_end = -1
        """The last argument of `unit_end`, the first group that it has not examined yet, and its result so far."""

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
            if self._unit <= group < self._unit_seen:
                self._unit_end = max(self._unit_end, record.group)
            self._groups[record.group].back = min(self._groups[record.group].back, group)

    def rebuild(self, records: Iterable[Record]) -> None:
        """Match the calls and answers of all messages again."""
        self._open_calls, self._unit_end = {}, -1
        for index, group in enumerate(self._groups):
            group.reach, group.back, group.unanswered = index, index, 0
        for record in records:
            self.add(record)

    def unit_end(self, group: int) -> int:
        """The last group that must be dropped together with `group` and those between.

        A repeated call for the same group continues where the last one ended, as a unit may span the whole history.
        """
        if self._unit != group or self._unit_end < group:
            self._unit, self._unit_seen, self._unit_end = group, group, group
        while self._unit_seen <= self._unit_end:
            self._unit_end = max(self._unit_end, self._groups[self._unit_seen].reach)
            self._unit_seen += 1
        return self._unit_end
