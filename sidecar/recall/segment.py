"""Postings: which terms occur in which passages, and how often; some thousand passages, packed into sorted arrays.

Theory. A posting is one 64-bit number: 48 bits of its term's hash, 12 bits for the passage within the segment, 4 bits
for the term's frequency there. Sorted, the postings of a term lie together, in the order of passages; merging segments
is sorting numbers, which numpy does at memory speed and without the interpreter's lock. Kept, each different hash is
stored once (8 bytes, and 4 that say where its postings begin) and each posting as its lower 16 bits. So a term that
occurs once takes 14 bytes, where a dict of strings takes 150, and one that occurs everywhere takes two bytes a passage.

Terms themselves are not kept: a hash stands for its term. Python's own hash of a string is used: it is cached in the
string, and keyed at random in each process, so that nobody can prepare terms that collide. Among a million different
terms one is mistaken for an asked one with a probability of 4e-9. Where the environment fixes Python's hash seed, the
probability is the same for text that was not written to collide.

A frequency that 4 bits cannot say (15 or more) stands in a short list beside: exact, not cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_PASSAGES: Final = 4_096
"""Passages of a segment: what 12 bits can number, about 2 MB of text."""

_FREQUENCY_BITS: Final = 4
_HASH: Final = 0xFFFF_FFFF_FFFF_0000
_TAIL: Final = 0xFFFF
_LONG: Final = 15
"""The frequency that says: see the list beside."""
_MOST_FREQUENCY: Final = 0xFFFF
"""More than the bytes of a passage, so never cut off."""
_OBJECT_BYTES: Final = 800
"""The segment and its arrays besides their contents: five arrays of 112 bytes, allocation rounded up."""

Numbers = NDArray[np.uint64]
Tails = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Segment:
    """The postings of `count` passages from passage `first` on."""

    first: int
    count: int
    level: int
    """How often it was merged, or as if; see `sidecar.recall.index`."""
    heads: Numbers
    """The different hashes, ascending."""
    begins: NDArray[np.uint32]
    """Where each one's postings begin; one more for the end."""
    tails: Tails
    """The postings: passage and frequency."""
    long: Numbers
    """Postings whose frequency is in `long_frequencies`, ascending, their frequency bits 0."""
    long_frequencies: NDArray[np.uint16]

    @property
    def bytes(self) -> int:
        """What it holds in memory, estimated."""
        arrays = (self.heads, self.begins, self.tails, self.long, self.long_frequencies)
        return _OBJECT_BYTES + sum(array.nbytes for array in arrays)

    def find(self, hashes: Numbers) -> list[tuple[int, int]]:
        """For each hash from where to where its postings lie in `tails`."""
        if not len(self.heads):
            return [(0, 0)] * len(hashes)
        at = self.heads.searchsorted(hashes)
        at[at == len(self.heads)] = 0
        found = self.heads[at] == hashes
        return list(zip((self.begins[at] * found).tolist(), (self.begins[at + 1] * found).tolist(), strict=True))

    def true_frequencies(self, head: np.uint64, tails: Tails) -> NDArray[np.uint16]:
        """The frequencies in these postings of the term of that hash; their 4 bits say to look in the list beside."""
        return self.long_frequencies[self.long.searchsorted(head | (tails & (_TAIL - _LONG)).astype(np.uint64))]

    def numbers(self) -> Numbers:
        """The postings as sorted numbers."""
        return np.repeat(self.heads, np.diff(self.begins)) | self.tails


def gathered(segments: Sequence[Segment], hashes: Numbers) -> tuple[list[int], NDArray[np.intp], NDArray[np.float64]]:
    """The postings of some terms in all segments, one term after another.

    In how many passages each term occurs; of each posting the passage's number in the whole index, and the frequency.
    """
    places = [segment.find(hashes) for segment in segments]
    slices = [
        (segment, number, *place[number])
        for number in range(len(hashes))
        for segment, place in zip(segments, places, strict=True)
        if place[number][0] < place[number][1]
    ]
    counts = [0] * len(hashes)
    for _, number, begin, end in slices:
        counts[number] += end - begin
    if not slices:
        return counts, np.zeros(0, np.intp), np.zeros(0)
    tails = np.concatenate([segment.tails[begin:end] for segment, _, begin, end in slices])
    firsts = np.array([segment.first for segment, *_ in slices], np.intp)
    sizes = [end - begin for _, _, begin, end in slices]
    where = np.repeat(firsts, sizes)
    where += tails >> _FREQUENCY_BITS
    short = tails & _LONG
    frequencies = short.astype(np.float64)
    long = np.flatnonzero(short == _LONG)
    if len(long):
        slice_of = np.cumsum(sizes).searchsorted(long, "right")
        for which in np.unique(slice_of).tolist():
            segment, number, *_ = slices[which]
            at = long[slice_of == which]
            frequencies[at] = segment.true_frequencies(hashes[number], tails[at])
    return counts, where, frequencies


def hashes_of(terms: Sequence[str]) -> Numbers:
    """The hashes of terms, in the upper 48 bits."""
    return np.fromiter(map(hash, terms), np.int64, len(terms)).view(np.uint64) & np.uint64(_HASH)


def from_terms(first: int, terms: Sequence[str], lengths: Sequence[int]) -> Segment:
    """A segment of new passages: all their terms, one passage after another, and how many each one has."""
    places = np.repeat(np.arange(len(lengths), dtype=np.uint64) << np.uint64(_FREQUENCY_BITS), lengths)
    numbers = hashes_of(terms) | places
    numbers.sort()
    begins = _changes(numbers)
    frequencies = np.diff(begins, append=len(numbers))
    numbers = numbers[begins]
    at = np.flatnonzero(frequencies >= _LONG)
    return _packed(
        first,
        len(lengths),
        numbers | np.minimum(frequencies, _LONG).astype(np.uint64),
        numbers[at],
        np.minimum(frequencies[at], _MOST_FREQUENCY).astype(np.uint16),
    )


def merged(segments: Sequence[Segment], gone: NDArray[np.bool_], level: int) -> Segment:
    """One segment in place of neighbouring ones, without the postings of the passages that are gone.

    `gone` has a value for each passage from the first segment's first on.
    """
    first = segments[0].first
    shifts = [np.uint64((segment.first - first) << _FREQUENCY_BITS) for segment in segments]
    numbers = np.concatenate([each.numbers() + shift for each, shift in zip(segments, shifts, strict=True)])
    long = np.concatenate([each.long + shift for each, shift in zip(segments, shifts, strict=True)])
    long_frequencies = np.concatenate([each.long_frequencies for each in segments])
    if gone.any():
        numbers = numbers[~gone[_places(numbers)]]
        kept = ~gone[_places(long)]
        long, long_frequencies = long[kept], long_frequencies[kept]
    if len(segments) > 1:
        numbers.sort()
        order = np.argsort(long)
        long, long_frequencies = long[order], long_frequencies[order]
    return _packed(first, sum(segment.count for segment in segments), numbers, long, long_frequencies, level)


def _packed(  # noqa: PLR0917 - a segment's own fields, in their order
    first: int, count: int, numbers: Numbers, long: Numbers, long_frequencies: NDArray[np.uint16], level: int = 0
) -> Segment:
    heads = numbers & np.uint64(_HASH)
    begins = _changes(heads)
    return Segment(
        first=first,
        count=count,
        level=level,
        heads=heads[begins],
        begins=np.append(begins, len(heads)).astype(np.uint32),
        tails=(numbers & np.uint64(_TAIL)).astype(np.uint16),
        long=long,
        long_frequencies=long_frequencies,
    )


def _changes(numbers: Numbers) -> NDArray[np.intp]:
    """Where a number differs from the one before it; the first always does."""
    if not len(numbers):
        return np.zeros(0, np.intp)
    return np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))


def _places(numbers: Numbers) -> NDArray[np.intp]:
    """The passages of postings, within their segment."""
    return ((numbers & np.uint64(_TAIL)) >> np.uint64(_FREQUENCY_BITS)).astype(np.intp)
