"""Prefix sums of a list whose values change: a Fenwick tree.

Every iteration of a run asks for the tokens of many consecutive messages, and changes those of single ones. With a
plain list one of the two would be linear in the run's length, and a whole run quadratic. Here both are logarithmic.

Source: P. Fenwick, "A new data structure for cumulative frequency tables", Software: Practice and Experience, 1994.
"""

from __future__ import annotations

from collections.abc import Iterable


class Sums:
    """Values by index, and the sum of those before an index."""

    __slots__ = ("_tree",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        """Start with these values."""
        self._tree = [0]
        """At index n, counted from 1, the sum of the last `n & -n` of the first n values."""
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        return len(self._tree) - 1

    def append(self, value: int) -> None:
        """Add a value at the end."""
        place = len(self._tree)
        step = 1
        while step < place & -place:
            value += self._tree[place - step]
            step <<= 1
        self._tree.append(value)

    def cut(self, length: int) -> None:
        """Forget the values from index `length` on."""
        del self._tree[length + 1 :]

    def add(self, index: int, change: int) -> None:
        """Add `change` to one value."""
        place = index + 1
        while place < len(self._tree):
            self._tree[place] += change
            place += place & -place

    def before(self, index: int) -> int:
        """The sum of the values before `index`."""
        total = 0
        while index:
            total += self._tree[index]
            index &= index - 1
        return total
