"""Fair turns among callers and their connections, and how much each of them has.

Theory. Callers take turns, and within a caller its connections. If callers are not distinguished, as on loopback
without tokens, each connection counts as a caller. It is fair queueing (Golestani, "A self-clocked fair queueing scheme
for broadband applications", 1994), in which each turn costs the same: after a turn a key gets the next one when the
queue's virtual time has advanced by one, which takes one turn of each waiting key. A key without a turn for that long
is ahead by one. So a key that asks for less than its share is next, however many others there are and however much they
ask for; in round robin it would wait for one turn of each of them. New keys, however many, overtake each waiting key at
most once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

LEFT: Final = 7
"""One caller may have this many times what is left: seven eighths of all; two callers have nearly half each. It limits
the connections of one caller together, and costs little if there is only one caller."""

_AHEAD: Final = 1.0
"""Turns by which a key is ahead that had none for a while."""


class Owner(NamedTuple):
    """The owner of a call: the caller and the connection."""

    share: str
    """The caller; the connection if callers are not distinguished."""
    connection: str


T = TypeVar("T", bound=Hashable)


class _Order:
    """Keys in the order of their turns."""

    __slots__ = ("_entries", "_next", "_number", "_order", "_time")

    def __init__(self) -> None:
        self._order: list[tuple[float, int, str]] = []
        self._entries: dict[str, tuple[float, int, str]] = {}
        """Entries of the waiting keys."""
        self._next: OrderedDict[str, float] = OrderedDict()
        """Virtual time from which a key that had a turn recently may have the next one."""
        self._time = 0.0
        self._number = 0

    def enter(self, key: str) -> None:
        """Add a waiting key."""
        self._number += 1
        entry = max(self._time - _AHEAD, self._next.get(key, -_AHEAD)), self._number, key
        self._entries[key] = entry
        insort(self._order, entry)

    def leave(self, key: str) -> float:
        """Remove a waiting key; return the virtual time of its turn."""
        entry = self._entries.pop(key)
        del self._order[bisect_left(self._order, entry)]
        if not self._order:
            self._next.clear()  # no key is ahead of another
        return entry[0]

    def had(self, key: str) -> None:
        """Record a key's turn, and remove it."""
        waited = len(self._order)
        turn = self.leave(key)
        self._time = max(turn, self._time + 1 / waited)
        self._next[key] = max(turn + 1, self._time)
        self._next.move_to_end(key)
        while self._next and next(iter(self._next.values())) <= self._time - _AHEAD:
            self._next.popitem(last=False)

    def had_alone(self, key: str) -> None:
        """Record the turn of a key that enters and is taken while no other waits: as `enter` and `had`."""
        turn = max(self._time - _AHEAD, self._next.get(key, -_AHEAD))
        self._time = max(turn, self._time + 1)
        self._next.clear()
        self._next[key] = max(turn + 1, self._time)

    def __iter__(self) -> Iterator[str]:
        return (key for _, _, key in self._order)


class WaitingTurns(Generic[T]):
    """Items that wait for a turn, by owner; for each owner the oldest is first. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, OrderedDict[T, None]]] = {}
        self._shares = _Order()
        self._connections: dict[str, _Order] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of waiting items."""
        return self._count

    def add(self, owner: Owner, item: T) -> None:
        """Add an item, behind the owner's other items."""
        connections = self._waiting.get(owner.share)
        if connections is None:
            connections = self._waiting[owner.share] = {}
            self._connections[owner.share] = _Order()
            self._shares.enter(owner.share)
        items = connections.get(owner.connection)
        if items is None:
            items = connections[owner.connection] = OrderedDict()
            self._connections[owner.share].enter(owner.connection)
        items[item] = None
        self._count += 1

    def remove(self, owner: Owner, item: T) -> bool:
        """Remove an item; return whether it was there."""
        connections = self._waiting.get(owner.share, {})
        items = connections.get(owner.connection)
        if items is None or item not in items:
            return False
        del items[item]
        self._count -= 1
        if not items:
            del connections[owner.connection]
            self._connections[owner.share].leave(owner.connection)
        if not connections:
            del self._waiting[owner.share], self._connections[owner.share]
            self._shares.leave(owner.share)
        return True

    def pass_by(self, owner: Owner, has: OwnerCounts, left: int) -> bool:
        """Give an owner its turn at once, if nothing waits and it may have one of `left` units; as `add` and `take`."""
        if self._count or not has.share_may(owner.share, left) or has.of(owner) >= left:
            return False
        self._shares.had_alone(owner.share)
        return True

    def take(self, has: OwnerCounts | None = None, left: int = 0) -> tuple[Owner, T] | None:
        """Remove and return the next item, or None; with `has`, only of owners that may have one of `left` units."""
        if not self._count:
            return None
        for share in self._shares:
            if has is not None and not has.share_may(share, left):
                continue  # however many connections the caller has
            order = self._connections[share]
            for connection in order:
                owner = Owner(share, connection)
                if has is None or has.of(owner) < left:
                    return owner, self._taken(owner, order)
        return None

    def _taken(self, owner: Owner, order: _Order) -> T:
        share, connection = owner
        connections = self._waiting[share]
        items = connections[connection]
        item, _ = items.popitem(last=False)
        self._count -= 1
        order.had(connection)
        if items:
            order.enter(connection)
        else:
            del connections[connection]
        self._shares.had(share)
        if connections:
            self._shares.enter(share)
        else:
            del self._waiting[share], self._connections[share]
        return item

    def oldest(self, owner: Owner) -> T | None:
        """Return an owner's oldest item, or None."""
        items = self._waiting.get(owner.share, {}).get(owner.connection)
        return next(iter(items)) if items else None


class OwnerCounts:
    """How many units each owner has. Not thread-safe."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}
        self._shares: dict[str, int] = {}
        self.total = 0
        """Units of all owners."""

    def add(self, owner: Owner, more: int) -> None:
        """Add so many units; owners without units are removed."""
        if not more:
            return
        self.total += more
        share, connection = owner
        connections = self._of.get(share)
        if connections is None:
            self._of[share], self._shares[share] = {connection: more}, more
            return
        now = connections.get(connection, 0) + more
        if now:
            connections[connection] = now
        else:
            connections.pop(connection, None)
            if not connections:
                del self._of[share], self._shares[share]
                return
        self._shares[share] += more

    def of(self, owner: Owner) -> int:
        """Return the units of a connection."""
        return self._of.get(owner.share, {}).get(owner.connection, 0)

    def of_share(self, share: str) -> int:
        """Return the units of all connections of a caller."""
        return self._shares.get(share, 0)

    def share_may(self, share: str, left: int) -> bool:
        """Whether a caller may have one of the units left: it has fewer than `LEFT` times as many."""
        return self.of_share(share) < LEFT * left

    def have_most(self) -> list[Owner]:
        """Return the connections with the most units, among the callers with the most units."""
        most = max(self._shares.values(), default=0)
        found = list[Owner]()
        for share, count in self._shares.items():
            if count == most:
                connections = self._of[share]
                largest = max(connections.values())
                found += [Owner(share, each) for each, has in connections.items() if has == largest]
        return found
