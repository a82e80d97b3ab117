"""Postings: which terms occur in which passages, and how often; some thousand passages, packed into sorted arrays.

Theory. A posting is one 64-bit number: 48 bits of its term's hash, 12 bits for the passage within the segment, 4 bits
for the term's frequency there. Sorted, the postings of a term lie together, in the order of passages; merging segments
is sorting numbers, of which Python's sort finds the runs that are in order already. Kept, each different hash is stored
once (8 bytes, and 4 that say where its postings begin) and each posting as its lower 16 bits. So a term that occurs
once takes 14 bytes, where a dict of strings takes 150, and one that occurs everywhere takes two bytes a passage.

The numbers of the newest passages are kept unsorted, 8 bytes each, and are sorted when they are first needed: a run
that is indexed and not searched sorts and packs each of its postings once.

Terms themselves are not stored, only their hashes. Python's own hash of a string is used: it is cached in the string,
and keyed at random in each process, so that colliding terms cannot be prepared. Among a million different terms, one
collides with a query's term with a probability of 4e-9. Where the environment fixes Python's hash seed, the probability
is the same for text that was not written to collide.

A frequency that does not fit 4 bits (15 or more) is stored exactly in a separate map.

The arrays are those of the standard library. numpy sorts and gathers ten times as fast, off the answer's path and in
queries of the commonest words; but it takes 73 MB on disk, 11 in memory and a tenth of a second at every start.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from operator import add, sub
from typing import Final, Protocol, TypeAlias

FRESH_PASSAGES: Final = 128
"""Passages that are appended to one segment, about 64 KB of text: a query sorts these in one to three milliseconds."""
MOST_PASSAGES: Final = 1_024
"""Passages of a segment, about half a megabyte of text: merging as many takes some 40 ms of the interpreter, a query
looks into some forty segments of a run of 10 MB, and 12 bits could number four times as many."""

_PLACE_BITS: Final = 12
_FREQUENCY_BITS: Final = 4
_TAIL_BITS: Final = _PLACE_BITS + _FREQUENCY_BITS
_HASH: Final = 0xFFFF_FFFF_FFFF_0000
_TAIL: Final = 0xFFFF
_LONG: Final = 15
"""The frequency value that refers to the separate map."""
_OBJECT_BYTES: Final = 600
"""Bytes of the segment and its arrays without their contents, allocation rounded up."""
_GROWN: Final = 1.06
"""Factor for the free room of a growing array: a sixteenth at most."""
_LONG_BYTES: Final = 150
"""Memory of an entry of the separate map."""
_LOWEST: Final = 0 if sys.byteorder == "little" else 3
"""Which 16 bits of a number are its lowest, in memory order."""

Numbers: TypeAlias = "array[int]"
"""64-bit numbers."""
Tails: TypeAlias = "array[int]"
"""16-bit numbers: passage and frequency."""


class Segment(Protocol):
    """The postings of `count` passages from passage `first` on."""

    @property
    def first(self) -> int:
        """The number of its first passage in the whole index."""

    @property
    def count(self) -> int:
        """Number of its passages."""

    @property
    def level(self) -> int:
        """How often it was merged, or counts as merged; see `prompt_sidecar.recall.index`."""

    @property
    def long(self) -> Mapping[int, int]:
        """Frequencies of `_LONG` and more, by the posting's number."""

    @property
    def bytes(self) -> int:
        """Memory in bytes, estimated."""

    def find(self, head: int) -> tuple[int, int]:
        """Return the range of a hash's postings among all."""

    def postings(self, head: int, begin: int, end: int) -> tuple[list[int], list[int]]:
        """Return the passage numbers in the whole index, and the frequencies, of postings from `find`."""

    def numbers(self, shift: int = 0) -> list[int]:
        """Return the postings as numbers, with passages numbered `shift` higher, in any order."""


class Fresh:
    """The postings of the newest passages, which are appended to."""

    __slots__ = ("_numbers", "_sorted", "count", "first", "level", "long")

    def __init__(self, first: int) -> None:
        """Begin without passages; the next one is `first`."""
        self.first = first
        self.count = 0
        self.level = 0
        self.long: dict[int, int] = {}
        self._numbers: Numbers = array("Q")
        self._sorted = True

    def append(self, passages: Sequence[Sequence[str]]) -> None:
        """Append passages, given the terms of each one."""
        hashes, tails = array("q"), array("H")
        long: dict[int, int] = {}
        for place, terms in enumerate(passages, self.count):
            counts = Counter(terms)
            frequencies: Collection[int] = counts.values()
            low = place << _FREQUENCY_BITS
            if max(frequencies, default=0) >= _LONG:
                often = ((term, frequency) for term, frequency in counts.items() if frequency >= _LONG)
                long.update((hash_of(term) | low | _LONG, frequency) for term, frequency in often)
                frequencies = [min(frequency, _LONG) for frequency in frequencies]
            hashes.extend(map(hash, counts))
            tails.extend(map(low.__or__, frequencies))
        if hashes:
            memoryview(hashes).cast("B").cast("H")[_LOWEST::4] = memoryview(tails)
            self._numbers.frombytes(hashes.tobytes())
            self._sorted = False
        self.long.update(long)
        self.count += len(passages)

    @property
    def bytes(self) -> int:
        """Memory in bytes, estimated."""
        return _OBJECT_BYTES + int(_GROWN * self._numbers.itemsize * len(self._numbers)) + _LONG_BYTES * len(self.long)

    def find(self, head: int) -> tuple[int, int]:
        """As in any segment; sorts what was appended since the last time."""
        if not self._sorted:
            self._numbers = array("Q", sorted(self._numbers))
            self._sorted = True
        begin = bisect_left(self._numbers, head)
        return begin, bisect_right(self._numbers, head | _TAIL, begin)

    def postings(self, head: int, begin: int, end: int) -> tuple[list[int], list[int]]:
        """As in any segment."""
        return _read(self.first, self.long, head, [number & _TAIL for number in self._numbers[begin:end]])

    def numbers(self, shift: int = 0) -> list[int]:
        """As in any segment."""
        low = shift << _FREQUENCY_BITS
        return list(map(low.__add__, self._numbers)) if low else self._numbers.tolist()


@dataclass(frozen=True, slots=True)
class PackedPostings:
    """The postings of older passages, which do not change any more."""

    first: int
    count: int
    level: int
    heads: Numbers
    """The different hashes, ascending."""
    begins: array[int]
    """Where each hash's postings begin; one more for the end."""
    tails: Tails
    """The postings: passage and frequency."""
    long: Mapping[int, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Memory in bytes, estimated."""
        held = sum(array.itemsize * len(array) for array in (self.heads, self.begins, self.tails))
        return _OBJECT_BYTES + held + _LONG_BYTES * len(self.long)

    def find(self, head: int) -> tuple[int, int]:
        """As in any segment."""
        at = bisect_left(self.heads, head)
        if at == len(self.heads) or self.heads[at] != head:
            return 0, 0
        return self.begins[at], self.begins[at + 1]

    def postings(self, head: int, begin: int, end: int) -> tuple[list[int], list[int]]:
        """As in any segment."""
        return _read(self.first, self.long, head, self.tails[begin:end])

    def numbers(self, shift: int = 0) -> list[int]:
        """As in any segment, in order."""
        counts = map(sub, self.begins[1:], self.begins)
        heads = chain.from_iterable(map(repeat, self.heads, counts))
        low = shift << _FREQUENCY_BITS
        return list(map(add, heads, [tail + low for tail in self.tails] if low else self.tails))


def hash_of(term: str) -> int:
    """Return the hash of a term, in the upper 48 bits of 64."""
    return hash(term) & _HASH


def _read(first: int, long: Mapping[int, int], head: int, tails: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the passages and frequencies of a hash's postings, from their lower 16 bits."""
    places = [first + (tail >> _FREQUENCY_BITS) for tail in tails]
    frequencies = [tail & _LONG for tail in tails]
    if long and _LONG in frequencies:
        frequencies = [
            long[head | tail] if short == _LONG else short for tail, short in zip(tails, frequencies, strict=True)
        ]
    return places, frequencies


def merged(segments: Sequence[Segment], gone: Sequence[int], level: int) -> PackedPostings:
    """Merge neighbouring segments into one, without the postings of removed passages.

    `gone` has a value for each passage from the first segment's first on.
    """
    first = segments[0].first
    numbers: list[int] = []
    long: dict[int, int] = {}
    for segment in segments:
        shift = segment.first - first
        numbers += segment.numbers(shift)
        low = shift << _FREQUENCY_BITS
        long.update((number + low, frequency) for number, frequency in segment.long.items())
    if any(gone):
        numbers = [number for number in numbers if not gone[(number & _TAIL) >> _FREQUENCY_BITS]]
        long = {
            number: frequency for number, frequency in long.items() if not gone[(number & _TAIL) >> _FREQUENCY_BITS]
        }
    numbers.sort()
    return _packed(first, sum(segment.count for segment in segments), numbers, long, level)


def _packed(first: int, count: int, numbers: list[int], long: Mapping[int, int], level: int) -> PackedPostings:
    counts = Counter(map(_HASH.__and__, numbers))  # in the order of the numbers
    tails = array("H")
    tails.frombytes(memoryview(array("Q", numbers)).cast("B").cast("H")[_LOWEST::4].tobytes())
    return PackedPostings(
        first=first,
        count=count,
        level=level,
        heads=array("Q", counts),
        begins=array("I", accumulate(counts.values(), initial=0)),
        tails=tails,
        long=long,
    )
