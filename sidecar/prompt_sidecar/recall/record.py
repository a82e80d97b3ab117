"""The facts of a run's items in columns by number, so that a filter is one comparison for each item.

Items are numbered in the order of recording, and numbers only grow: the index refers to items by them. An item that is
recorded again gets a new number. Each property that filters use is a column; 100,000 items are filtered in some
milliseconds.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from operator import and_
from typing import Final

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.lending import (
    CALL_SHARE,
    MESSAGE_SHARE,
    MOST_OF_CALL,
    NEIGHBOUR_REACH,
    OF_CALLS,
    Lender,
    is_message,
)
from prompt_sidecar.trim.own_text import plain_name

Allowed = bytes
"""For each number 1 if it passes, else 0."""

_ROLES: Final = {role: code for code, role in enumerate(Role)}


class ItemRecords:
    """The facts of one run's items. Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._items: list[HistoryItem | None] = []
        """By number; None once discarded."""
        self._numbers: dict[str, int] = {}
        self._calls: dict[str, list[str]] = {}
        """Stash ids by call id, in the order of recording."""
        self._tools: dict[str, list[int]] = {}
        """Codes by tool name; `other` also has the codes of all names that are not plain, as these are displayed as
        `other`."""
        self._codes: dict[str, int] = {}
        self._oldest = 0
        self._role_column = array("B")
        self._tool_column = array("i")
        self._iterations = array("i")

    def __len__(self) -> int:
        """Return the number of known items."""
        return len(self._numbers)

    @property
    def end(self) -> int:
        """The next number."""
        return len(self._items)

    def number(self, stash_id: str) -> int:
        """Return the number of an id, or -1 if it is not known."""
        return self._numbers.get(stash_id, -1)

    def item(self, number: int) -> HistoryItem | None:
        """Return the item with a number, or None if it is no longer in use."""
        return self._items[number]

    def iterations(self) -> Sequence[int]:
        """The iteration of each number, in use or not."""
        return self._iterations

    def add(self, item: HistoryItem) -> int:
        """Give an item a number. An earlier item with the same id loses its number."""
        number = len(self._items)
        code = self._codes.get(item.tool)
        if code is None:
            code = self._codes[item.tool] = len(self._codes)
            for name in {item.tool, plain_name(item.tool)}:
                self._tools.setdefault(name, []).append(code)
        # If memory runs out, all columns keep the same length.
        try:
            self._items.append(item)
            self._role_column.append(_ROLES[item.role])
            self._tool_column.append(code)
            self._iterations.append(item.iteration)
            known = self._numbers.get(item.stash_id)
            self._numbers[item.stash_id] = number
        except BaseException:
            for column in (self._items, self._role_column, self._tool_column, self._iterations):
                del column[number:]
            raise
        if known is not None:
            self._items[known] = None
        elif item.call_id:
            self._calls.setdefault(item.call_id, []).append(item.stash_id)
        return number

    def correct(self, number: int, item: HistoryItem) -> None:
        """Correct an item's facts, except those that filters use."""
        self._items[number] = item

    def forget(self, number: int) -> None:
        """Remove an item."""
        item = self._items[number]
        if item is None:
            return
        self._items[number] = None
        del self._numbers[item.stash_id]
        if item.call_id:
            ids = self._calls[item.call_id]
            ids.remove(item.stash_id)  # the oldest is forgotten first, and is at the front
            if not ids:
                del self._calls[item.call_id]

    def oldest(self) -> int:
        """Return the lowest number in use; there must be one. All calls together visit each number once."""
        while self._items[self._oldest] is None:
            self._oldest += 1
        return self._oldest

    def named(self, name: str) -> list[int]:
        """Return numbers of items whose stash id or call id is exactly this, newest first.

        An empty call id matches none.
        """
        if not name:
            return []
        ids = [name, *reversed(self._calls.get(name, ()))]
        return list(dict.fromkeys(self._numbers[stash_id] for stash_id in ids if stash_id in self._numbers))

    def lenders(self, number: int) -> list[Lender]:
        """Return the items that lend to one: the call of a result, the messages before and after a message."""
        item = self._items[number]
        if item is None:
            return []
        if item.kind is ItemKind.RESULT:
            numbers = [self._numbers[stash_id] for stash_id in self._calls.get(item.call_id, ())[:MOST_OF_CALL]]
            return [Lender(other, CALL_SHARE) for other in numbers if self._is_call(other)]
        if not is_message(item):
            return []
        before = range(number - 1, max(number - NEIGHBOUR_REACH, 0) - 1, -1)
        after = range(number + 1, min(number + NEIGHBOUR_REACH + 1, len(self._items)))
        found = [self._first_message(side) for side in (before, after)]
        return [Lender(other, MESSAGE_SHARE) for other in found if other is not None]

    def _is_call(self, number: int) -> bool:
        item = self._items[number]
        return item is not None and item.kind is ItemKind.ARGUMENTS

    def _first_message(self, numbers: Iterable[int]) -> int | None:
        """Return the first of some numbers that is a message, or None if a part of a call comes before it."""
        for number in numbers:
            item = self._items[number]
            if item is not None and item.kind in OF_CALLS:
                return None
            if item is not None and is_message(item):
                return number
        return None

    def allowed(self, query: SearchQuery) -> Allowed | None:
        """Return which numbers pass the query's filters; None if all do."""
        if not (query.roles or query.tools or query.first_iteration or query.last_iteration or query.stash_ids):
            return None
        masks: list[Allowed] = []
        if query.roles:
            masks.append(_among(self._role_column, {_ROLES[role] for role in query.roles}))
        if query.tools:
            masks.append(
                _among(self._tool_column, {code for tool in query.tools for code in self._tools.get(tool, ())})
            )
        if query.first_iteration > 0:
            masks.append(bytes(map(query.first_iteration.__le__, self._iterations)))
        if query.last_iteration > 0:
            masks.append(bytes(map(query.last_iteration.__ge__, self._iterations)))
        if query.stash_ids:
            masks.append(self.only([self._numbers[name] for name in query.stash_ids if name in self._numbers]))
        return _all_of(masks)

    def within(self, numbers: Sequence[int], query: SearchQuery) -> list[int]:
        """Return those of the numbers that pass the query's filters; linear in `numbers`."""
        roles = {_ROLES[role] for role in query.roles}
        tools = {code for tool in query.tools for code in self._tools.get(tool, ())}
        chosen = {self._numbers[name] for name in query.stash_ids if name in self._numbers}
        last = query.last_iteration if query.last_iteration > 0 else math.inf
        return [
            number
            for number in numbers
            if (not query.roles or self._role_column[number] in roles)
            and (not query.tools or self._tool_column[number] in tools)
            and query.first_iteration <= self._iterations[number] <= last
            and (not query.stash_ids or number in chosen)
        ]

    def only(self, numbers: Sequence[int]) -> Allowed:
        """Return a mask of these numbers."""
        allowed = bytearray(len(self._items))
        for number in numbers:
            allowed[number] = 1
        return bytes(allowed)


def _among(column: array[int], codes: AbstractSet[int]) -> Allowed:
    """Return where a column has one of the codes."""
    return bytes(map(codes.__contains__, column))


def _all_of(masks: Sequence[Allowed]) -> Allowed:
    """Return the bitwise and of masks of one length, computed on whole masks as integers, which is fastest."""
    if len(masks) == 1:
        return masks[0]
    numbers = (int.from_bytes(mask, "little") for mask in masks)
    return reduce(and_, numbers).to_bytes(len(masks[0]), "little")
