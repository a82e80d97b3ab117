"""Whose turn it is among callers and their connections, and how much each has.

Theory. What has a turn is a caller, and within it each of its connections. Where callers are not distinguished, as on
loopback without tokens, each connection is taken for one. It is fair queueing (Golestani, "A self-clocked fair queueing
scheme for broadband applications", 1994), in which each turn costs the same: a key that had one gets the next when the
time of the queue has gone on by one, which it does while each that waits has one turn. One that had none for so long is
ahead by one. So a key that asks for less than its share is next, however many others there are and however much they
ask for, where in a plain round it would wait for one turn of each of them; and new keys, however many come, pass those
that wait at most once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

LEFT: Final = 7
"""Times what is left that one caller may have: seven eighths of all, by which two have nearly a half each. It bounds
what many connections of one caller take, and costs little where there is only one caller."""

_AHEAD: Final = 1.0
"""Turns by which a key is ahead that had none for a while."""


class Owner(NamedTuple):
    """Whose a call is."""

    share: str
    """The caller; where callers are not distinguished, the connection."""
    connection: str


T = TypeVar("T", bound=Hashable)


class _Order:
    """Keys in the order in which they have a turn."""

    __slots__ = ("_entries", "_next", "_number", "_order", "_time")

    def __init__(self) -> None:
        self._order: list[tuple[float, int, str]] = []
        self._entries: dict[str, tuple[float, int, str]] = {}
        """Of the keys that wait."""
        self._next: OrderedDict[str, float] = OrderedDict()
        """When each key that had a turn not long ago may have the next."""
        self._time = 0.0
        self._number = 0

    def enter(self, key: str) -> None:
        """Wait for a turn."""
        self._number += 1
        entry = max(self._time - _AHEAD, self._next.get(key, -_AHEAD)), self._number, key
        self._entries[key] = entry
        insort(self._order, entry)

    def leave(self, key: str) -> float:
        """Wait no more; return when the turn would have been."""
        entry = self._entries.pop(key)
        del self._order[bisect_left(self._order, entry)]
        if not self._order:
            self._next.clear()  # nobody is ahead of anybody
        return entry[0]

    def had(self, key: str) -> None:
        """Record that a key had a turn; it waits no more."""
        waited = len(self._order)
        turn = self.leave(key)
        self._time = max(turn, self._time + 1 / waited)
        self._next[key] = max(turn + 1, self._time)
        self._next.move_to_end(key)
        while self._next and next(iter(self._next.values())) <= self._time - _AHEAD:
            self._next.popitem(last=False)

    def __iter__(self) -> Iterator[str]:
        return (key for _, _, key in self._order)


class WaitingTurns(Generic[T]):
    """What waits for a turn, by owner; of each owner the oldest is first. Not thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, OrderedDict[T, None]]] = {}
        self._shares = _Order()
        self._connections: dict[str, _Order] = {}
        self._count = 0

    def __len__(self) -> int:
        """How much waits."""
        return self._count

    def add(self, owner: Owner, item: T) -> None:
        """Let something wait, behind what its owner has."""
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
        """Take something out; return whether it was there."""
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

    def take(self, has: OwnerCounts | None = None, left: int = 0) -> tuple[Owner, T] | None:
        """Take out what is next; with `has` only of the owners that may have one of what is `left`. None: nothing."""
        for share in self._shares:
            if has is not None and not has.share_may(share, left):
                continue  # however many connections it has
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
        """Return an owner's first; None: it has none."""
        items = self._waiting.get(owner.share, {}).get(owner.connection)
        return next(iter(items)) if items else None


class OwnerCounts:
    """How much each owner has. Not thread-safe."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}
        self._shares: dict[str, int] = {}
        self.total = 0
        """Of all owners."""

    def add(self, owner: Owner, more: int) -> None:
        """Count so much more; what is 0 is left out."""
        self.total += more
        connections = self._of.setdefault(owner.share, {})
        now = connections.get(owner.connection, 0) + more
        if now:
            connections[owner.connection] = now
        else:
            connections.pop(owner.connection, None)
        self._shares[owner.share] = self._shares.get(owner.share, 0) + more
        if not connections:
            del self._of[owner.share], self._shares[owner.share]

    def of(self, owner: Owner) -> int:
        """Return what a connection has."""
        return self._of.get(owner.share, {}).get(owner.connection, 0)

    def of_share(self, share: str) -> int:
        """Return what all connections of a caller have."""
        return self._shares.get(share, 0)

    def share_may(self, share: str, left: int) -> bool:
        """Whether a caller may have one of what is left: it has less than `LEFT` times that."""
        return self.of_share(share) < LEFT * left

    def have_most(self) -> list[Owner]:
        """Return the owners that have the most: of the callers that do, the connections that do."""
        most = max(self._shares.values(), default=0)
        found = list[Owner]()
        for share, count in self._shares.items():
            if count == most:
                connections = self._of[share]
                largest = max(connections.values())
                found += [Owner(share, each) for each, has in connections.items() if has == largest]
        return found
