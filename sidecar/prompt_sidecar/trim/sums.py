"""Sums of a list's beginnings, kept while single values change: a Fenwick tree.

Decisions ask for the tokens of many messages in a row, and change those of one, at every iteration of a run. A plain
list of values would make one of the two linear in the run's length, and a whole run quadratic. Here both take a step
for each binary digit of the length.

Source: P. Fenwick, "A new data structure for cumulative frequency tables", Software: Practice and Experience, 1994.
"""

from __future__ import annotations

from collections.abc import Iterable


class Sums:
    """Values by index, and the sum of those before an index."""

    __slots__ = ("_tree",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        """Begin with these values."""
        self._tree = [0]
        """At place n, counted from 1, the sum of the last `n & -n` of the first n values."""
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        return len(self._tree) - 1

    def append(self, value: int) -> None:
        """Take a value at the end."""
        place = len(self._tree)
        step = 1
        while step < place & -place:
            value += self._tree[place - step]
            step <<= 1
        self._tree.append(value)

    def add(self, index: int, change: int) -> None:
        """Change one value by so much."""
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
