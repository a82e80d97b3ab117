"""One run's search index: passages ranked by BM25; the cost of appending is proportional to the new text.

Theory. The score is BM25+ (Lv and Zhai, "Lower-Bounding Term Frequency Normalization", 2011) as the library rank_bm25
computes it in BM25Plus, passage by passage and to ten decimals: for a passage d, over the query's terms q with
repeats,

    score(d) = sum of idf(q) * (delta + tf(q,d) * (k1 + 1) / (k1 * (1 - b + b * |d| / avgdl) + tf(q,d)))
    idf(q)   = log((N + 1) / df(q)), for terms that occur at all

Here N, avgdl and df change with every append, so nothing that depends on them is stored: a posting is term, passage and
frequency, a passage has its length, and all else is computed when a query comes, for the passages that hold one of its
terms. (The library keeps weights for each term and cannot be appended to.) BM25Plus was chosen for its idf, which is
positive on one passage as on a million; BM25Okapi's is zero or below for a term in half of them, and needs a floor that
depends on all terms. The library adds delta for a term also where a passage lacks it, so delta ranks nothing there; we
do the same, so that scores are equal, but a passage with none of the terms is no hit. A passage without any term, such
as the arguments `{}` that every other call has, is left out of the statistics: it would distort the average length and
the rarity of terms.

Postings are kept in segments (`prompt_sidecar.recall.segment`), each of neighbouring passages: a step of indexing
appends to the newest one as long as it is small, and eight of these become a larger one, up to a bound. So a posting
is rewritten once or twice in its life, no rewriting takes longer than that of the largest segment, and a query looks
into a few dozen segments at most.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from operator import add
from typing import Final

from prompt_sidecar.recall import analysis
from prompt_sidecar.recall.passages import passages
from prompt_sidecar.recall.segment import FRESH_PASSAGES, MOST_PASSAGES, Fresh, PackedPostings, Segment, hash_of, merged

STEP_BYTES: Final = 7_168
"""Least bytes that a step indexes, unless the item ends; at most one passage more: about a millisecond of work."""
FAN_OUT: Final = 8
"""Segments of a level that become one of the next: more rewrites each posting less often, and makes queries look into
more segments."""
_PURGE_SHARE: Final = 0.5
"""Share of a segment's passages that may be removed ones before it is rewritten without them."""
_PASSAGE_BYTES: Final = 13 * 1.06
"""Start, item, length and state of a passage, in arrays that grow by a sixteenth."""
_ITEM_BYTES: Final = 16 * 1.06
_OWN_BYTES: Final = 2_000
"""The index and its empty arrays."""

_EQUAL: Final = 1e-10
"""Scores that differ by less may be equal in `_DECIMALS` decimals."""
_DECIMALS: Final = 10
"""Decimals of a score: sums of the same parts in another order differ beyond the twelfth, and should compare equal."""

_LIVE, _REMOVED, _PURGED = 0, 1, 2

Analyse = Callable[[bytes, str], list[str]]
"""The terms of a passage, given its bytes and the content type of its item."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best items of a query."""

    hits: Sequence[Hit]
    """The best passage of each item, best first."""
    neighbours: Sequence[Hit]
    """Hits of the items that were named as neighbours, if they match and are not among the hits."""
    total: int
    """Number of items that match."""
    constant: float
    """The part of the score that all hits share."""


def _nobody(_: Sequence[int]) -> Iterable[int]:
    """Return no neighbours."""
    return ()


@dataclass(frozen=True, slots=True)
class Bm25:
    """The parameters of the score; the defaults are the library's. `k1` and `b` as in BM25, `delta` as in BM25+."""

    k1: float = 1.5
    b: float = 0.75
    delta: float = 1.0


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that holds at least one of the terms: bytes `start` to `end` of its item's original."""

    item: int
    passage: int
    """Its number within the item, from 0."""
    start: int
    end: int
    score: float
    """As computed by rank_bm25's BM25Plus."""
    of: int = field(default=1, compare=False)
    """Number of passages of its item, as far as it is indexed."""


class Index:
    """The passages of one run's items. Not thread-safe: its owner locks.

    Items have numbers that only grow, passages are numbered in the order in which they were added.
    """

    def __init__(self, parameters: Bm25 | None = None, analyse: Analyse | None = None) -> None:
        self._bm25 = parameters or Bm25()
        self._analyse = analyse or _terms
        self._segments: list[Segment] = []
        self._segment_bytes = 0
        # For each passage.
        self._starts = array("I")
        self._item_of = array("I")
        self._lengths = array("I")
        self._states = bytearray()
        # For each item.
        self._items = array("I")
        self._firsts = array("I")
        self._sizes = array("Q")
        # Counted over all postings.
        self._counted = 0
        self._terms = 0
        self._removed = 0
        self._longest = 0
        """Terms of the longest passage."""

    def add(self, item: int, original: bytes, content_type: str) -> Iterator[int]:
        """Index an item step by step: each step indexes a bounded stretch of it and yields the number of bytes.

        Between steps what was indexed so far can be found; if the remaining steps are never taken, the rest is left
        out. Indexing ends if the item was removed in the meantime. Raises ValueError, at the first step, for a number
        that is not larger than all before it, and RuntimeError for a step after a later item was begun: the passages of
        an item lie together.
        """
        if self._items and item <= self._items[-1]:
            raise ValueError(f"item {item} is not above {self._items[-1]}, the last one added")
        self._items.append(item)
        self._firsts.append(len(self._starts))
        self._sizes.append(0)
        ranges: list[tuple[int, int]] = []
        for start, end in passages(original):
            ranges.append((start, end))
            if end - ranges[0][0] >= STEP_BYTES or end == len(original):
                if self._items[-1] != item:
                    raise RuntimeError(f"item {item} was not finished when item {self._items[-1]} was begun")
                if len(self._starts) > self._firsts[-1] and self._states[-1] != _LIVE:
                    return
                self._step(item, original, content_type, ranges)
                yield end - ranges[0][0]
                ranges = []

    def remove(self, item: int) -> None:
        """Remove an item's passages from results; unknown or removed items change nothing.

        Until a segment is rewritten without them (when half of its passages are removed ones, when it is merged, or by
        `compact`) they still count in the statistics of the scores: N, avgdl and df.
        """
        at = self._place(item)
        if at is None:
            return
        first, last = self._range(at)
        self._states[first:last] = bytes([_REMOVED]) * (last - first)
        self._removed += last - first
        for number, segment in enumerate(self._segments):
            if segment.first < last and first < segment.first + segment.count:
                states = self._states[segment.first : segment.first + segment.count]
                counted = segment.count - states.count(_PURGED)
                if states.count(_REMOVED) >= _PURGE_SHARE * counted:
                    self._rewrite(number, number + 1, segment.level)

    def compact(self) -> None:
        """Forget removed passages in all statistics: scores are then those of an index that never had them."""
        for number, segment in enumerate(self._segments):
            if _REMOVED in self._states[segment.first : segment.first + segment.count]:
                self._rewrite(number, number + 1, segment.level)

    def best(self, terms: Sequence[str], most: int, allowed: Sequence[int] | None = None) -> list[Hit]:
        """Return the best passages by score, at most `most`; of equal ones the newest (the last added) first.

        `terms` may repeat: a repeated term counts each time. `allowed` has a value for each item
        number up to the last one added; without it all items are.
        """
        scores, constant = self._matching(terms, allowed)
        return [self._hit(number, score + constant) for number, score in _top(scores, most)]

    def best_of_items(
        self,
        terms: Sequence[str],
        most: int,
        allowed: Sequence[int] | None = None,
        behind: AbstractSet[int] = frozenset(),
        neighbours: Callable[[Sequence[int]], Iterable[int]] = _nobody,
    ) -> Best:
        """Return the best passage of each of the best items, at most `most`, ordered as by `best`.

        The items `behind` come after all others, at most `most` of them too. `neighbours` returns the neighbours of
        items.
        """
        scores, constant = self._matching(terms, allowed)
        best: dict[int, tuple[int, float]] = {}
        item_of = self._item_of
        for number in sorted(scores):
            item, score = item_of[number], scores[number]
            known = best.get(item)
            # Of an item's equally good passages the last one is taken.
            if known is None or score >= known[1] - _EQUAL:
                best[item] = number, score
        last = {item: best[item] for item in best.keys() & behind}
        first = (found for item, found in best.items() if item not in last) if last else best.values()
        top = _top(dict(first), most) + _top(dict(last.values()), most)
        found = dict.fromkeys(item_of[number] for number, _ in top)
        others = [best[item] for item in dict.fromkeys(neighbours(list(found))) if item in best and item not in found]
        return Best(
            hits=[self._hit(number, score + constant) for number, score in top],
            neighbours=[self._hit(number, score + constant) for number, score in others],
            total=len(best),
            constant=constant,
        )

    def document_frequencies(self, terms: Sequence[str]) -> list[int]:
        """Return the number of passages with each term."""
        counts = []
        for head in map(hash_of, terms):
            found = (segment.find(head) for segment in self._segments)
            counts.append(sum(end - begin for begin, end in found))
        return counts

    def passages_of(self, item: int) -> Sequence[tuple[int, int]]:
        """Return the byte ranges of an item's passages that were indexed so far, by passage number.

        Empty for an item that was never added or is removed.
        """
        at = self._place(item)
        if at is None:
            return ()
        first, last = self._range(at)
        starts = self._starts[first:last].tolist()
        return list(pairwise([*starts, self._sizes[at]])) if starts else ()

    def holding(self, item: int, terms: Iterable[str]) -> list[tuple[tuple[int, int], set[str]]]:
        """Return an item's passages with at least one of the terms, as byte ranges in order, each with its terms."""
        at = self._place(item)
        if at is None:
            return []
        first, last = self._range(at)
        found: dict[int, set[str]] = {}
        segments = [one for one in self._segments if one.first < last and first < one.first + one.count]
        for term in terms:
            head = hash_of(term)
            for segment in segments:
                places, _ = segment.postings(head, *segment.find(head))
                for place in places[bisect_left(places, first) : bisect_left(places, last)]:
                    found.setdefault(place, set()).add(term)
        ends = {last - 1: self._sizes[at]}
        return [
            ((self._starts[place], ends.get(place) or self._starts[place + 1]), found[place]) for place in sorted(found)
        ]

    @property
    def passages(self) -> int:
        """Number of passages that can be found."""
        return len(self._starts) - self._removed

    def _step(self, item: int, original: bytes, content_type: str, ranges: Sequence[tuple[int, int]]) -> None:
        found = [self._analyse(original[start:end], content_type) for start, end in ranges]
        lengths = [len(terms) for terms in found]
        last = self._segments[-1] if self._segments else None
        if isinstance(last, Fresh) and last.count + len(ranges) <= FRESH_PASSAGES:
            self._segment_bytes -= last.bytes
        else:
            if last is not None:
                self._settle()
            last = Fresh(len(self._starts))
            self._segments.append(last)
        last.append(found)
        self._segment_bytes += last.bytes
        self._starts.extend(start for start, _ in ranges)
        self._item_of.extend([item] * len(ranges))
        self._lengths.extend(lengths)
        self._longest = max(self._longest, *lengths)
        self._states.extend(bytes([_LIVE]) * len(ranges))
        self._sizes[-1] = ranges[-1][1]
        self._counted += len(lengths) - lengths.count(0)
        self._terms += sum(lengths)

    def _settle(self) -> None:
        """Merge the newest segments as long as enough of them are no larger than the newest, by their levels."""
        while True:
            level = self._segments[-1].level
            begin = end = len(self._segments)
            while begin and self._segments[begin - 1].level <= level:
                begin -= 1
            if end - begin < FAN_OUT:
                return
            count, take = 0, begin
            while take < end and count + self._segments[take].count <= MOST_PASSAGES:
                count += self._segments[take].count
                take += 1
            self._rewrite(begin, take, level + 1)

    def _rewrite(self, begin: int, end: int, level: int) -> None:
        """Replace segments by one without removed passages, which no longer count in the statistics."""
        old = self._segments[begin:end]
        first, last = old[0].first, old[-1].first + old[-1].count
        states = self._states[first:last]
        if len(old) == 1 and isinstance(old[0], PackedPostings) and _REMOVED not in states:
            self._segments[begin] = replace(old[0], level=level)  # there is nothing to merge it with
            return
        new = merged(old, states, level)  # passages that are not removed have the state 0
        self._segments[begin:end] = [new]
        self._segment_bytes += new.bytes - sum(segment.bytes for segment in old)
        if _REMOVED in states:
            lengths = [
                length for length, state in zip(self._lengths[first:last], states, strict=True) if state == _REMOVED
            ]
            self._counted -= len(lengths) - lengths.count(0)
            self._terms -= sum(lengths)
            self._states[first:last] = states.replace(bytes([_REMOVED]), bytes([_PURGED]))

    def _place(self, item: int) -> int | None:
        """Return the position of an item; None if it was never added or is removed."""
        at = bisect_left(self._items, item)
        if at == len(self._items) or self._items[at] != item:
            return None
        first, last = self._range(at)
        return None if first < last and self._states[first] != _LIVE else at

    def _range(self, at: int) -> tuple[int, int]:
        """Return the range of an item's passage numbers, the end excluded."""
        return self._firsts[at], self._firsts[at + 1] if at + 1 < len(self._firsts) else len(self._starts)

    def _matching(self, terms: Sequence[str], allowed: Sequence[int] | None) -> tuple[dict[int, float], float]:
        """Return the scores of the passages with at least one of the terms, and the constant to add to all."""
        average = self._terms / self._counted if self._terms else 1.0
        k1, b = self._bm25.k1, self._bm25.b
        least, each = k1 * (1 - b), k1 * b / average
        norms = [least + each * length for length in range(self._longest + 1)]
        lengths, constant = self._lengths, 0.0
        scores: dict[int, float] = {}
        for term, times in Counter(terms).items():
            head = hash_of(term)
            found = [(segment, *segment.find(head)) for segment in self._segments]
            frequency = sum(end - begin for _, begin, end in found)
            if not frequency:
                continue
            weight = times * math.log((self._counted + 1) / frequency)
            constant += weight
            weight *= k1 + 1
            for segment, begin, end in found:
                if begin == end:
                    continue
                places, tfs = segment.postings(head, begin, end)
                gains = [weight * tf / (norms[lengths[place]] + tf) for place, tf in zip(places, tfs, strict=True)]
                if scores:
                    sums = map(add, map(scores.get, places, repeat(0.0)), gains)
                    scores.update(zip(places, sums, strict=True))
                else:
                    scores = dict(zip(places, gains, strict=True))
        if self._removed:
            states = self._states
            scores = {number: score for number, score in scores.items() if states[number] == _LIVE}
        if allowed is not None:
            item_of = self._item_of
            scores = {number: score for number, score in scores.items() if allowed[item_of[number]]}
        return scores, self._bm25.delta * constant

    def _hit(self, number: int, score: float) -> Hit:
        at = bisect_right(self._firsts, number) - 1
        first, last = self._range(at)
        end = self._starts[number + 1] if number + 1 < last else self._sizes[at]
        return Hit(self._items[at], number - first, self._starts[number], end, score, last - first)

    @property
    def bytes(self) -> int:  # defined last: for anything after it in the class, the name would refer to this property
        """Memory of the index in bytes, estimated."""
        rows = _PASSAGE_BYTES * len(self._starts) + _ITEM_BYTES * len(self._items)
        return _OWN_BYTES + int(rows) + self._segment_bytes


def _top(scores: Mapping[int, float], most: int) -> list[tuple[int, float]]:
    """Return the highest scores with their passages; of equal ones the highest passage first. Linear in `scores`."""
    if most <= 0:
        return []
    candidates: Iterable[tuple[int, float]] = scores.items()
    if len(scores) > most:
        least = heapq.nlargest(most, scores.values())[-1] - _EQUAL
        candidates = [(number, score) for number, score in candidates if score >= least]
    ordered = sorted(((round(score, _DECIMALS), number) for number, score in candidates), reverse=True)
    return [(number, score) for score, number in ordered[:most]]


def _terms(original: bytes, content_type: str) -> list[str]:
    return analysis.terms(analysis.plain(original, content_type))
