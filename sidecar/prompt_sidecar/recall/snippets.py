"""Choosing the part of an original that a search shows, around the passage that it found.

Theory. A passage is cut to be ranked; a snippet is cut to be read. It is the passage with most of the query's words,
together with neighbours that have a term too; a short one gets some lines around it. What is too long for a snippet is
cut down to the surroundings of the piece of the passage (a line, or part of a long one) with the most of the query's
terms by weight: at line ends if some are near, else between characters. Only a window of a few bytes a token is ever
decoded or counted, so an original of one 5 MB line costs as much as one of 5 KB.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.recall.analysis import plain, terms

Range = tuple[int, int]

WINDOW_BYTES_PER_TOKEN: Final = 8
"""Text has 2.6 (logs) to 4 (prose) bytes a token; a snippet of text with more may stay short."""
LIKELY_BYTES_PER_TOKEN: Final = 3
"""The first guess of bytes for each token."""
CONTEXT_BYTES_PER_TOKEN: Final = 1
"""A stretch shorter than this gets lines around it: about a third of a snippet."""
PIECE_BYTES: Final = 160
"""Bytes of a piece: a long line of code. A longer line is examined in parts."""
FULL: Final = 0.85
"""Share of its tokens from which a snippet counts as full."""
NEAR: Final = 0.3
"""Share of its bytes that a snippet gives up to begin or end with a line."""
ROUNDS: Final = 6
"""Counts spent on filling a snippet."""

_WORD: Final = re.compile(rb"\S+")


@dataclass(frozen=True, slots=True)
class SnippetRange:
    """A stretch to show: bytes from 0, end excluded; lines from 1, both included."""

    start: int
    end: int
    first_line: int
    last_line: int
    total_lines: int
    text: str
    tokens: int


def neighbourhood(  # noqa: PLR0917 - text, its passages, the best one, the query, the size
    original: bytes,
    content_type: str,
    passages: Sequence[Range],
    best: Range,
    weights: Mapping[str, float],
    most_tokens: int,
) -> Range:
    """Return the bytes around a passage that are worth showing: neighbours with a term, or some lines of context."""
    reach = most_tokens * LIKELY_BYTES_PER_TOKEN
    start, end = best
    at = bisect_right(passages, (start, len(original))) - 1
    before, after = at - 1, at + 1

    def holds_term(number: int) -> bool:
        stretch = original[slice(*passages[number])]
        return any(term in weights for term in terms(plain(stretch, content_type)))

    while before >= 0 and best[0] - passages[before][0] <= reach and holds_term(before):
        start = passages[before][0]
        before -= 1
    while after < len(passages) and passages[after][1] - best[1] <= reach and holds_term(after):
        end = passages[after][1]
        after += 1
    missing = most_tokens * CONTEXT_BYTES_PER_TOKEN - (end - start)
    if missing > 0:
        # Whole lines only: the first line feed on the way there, the last one on the way back.
        line = original.find(b"\n", max(0, start - missing // 2 - 1), start)
        start = 0 if start <= missing // 2 else line + 1 if line >= 0 else start
        line = original.rfind(b"\n", end, end + missing // 2)
        end = len(original) if len(original) - end <= missing // 2 else line + 1 if line >= 0 else end
    return start, end


def anchor(original: bytes, content_type: str, within: Range, weights: Mapping[str, float], most_tokens: int) -> Range:
    """Return the piece with the most of the terms by weight; of equal ones the first; without any, the start.

    If a snippet is too short for the piece, return the word in it with the most.
    """

    def best(pieces: Iterator[Range], start: int) -> Range:
        found, most = (start, start), 0.0
        for piece in pieces:
            weight = sum(weights.get(term, 0.0) for term in set(terms(plain(original[slice(*piece)], content_type))))
            if weight > most:
                found, most = piece, weight
        return found

    start, end = best(_pieces(original, *within), within[0])
    if end - start > most_tokens * LIKELY_BYTES_PER_TOKEN:
        words = ((start + word.start(), start + word.end()) for word in _WORD.finditer(original[start:end]))
        return best(words, start)
    return start, end


def cut(original: bytes, within: Range, around: Range, most_tokens: int, count: Callable[[str], int]) -> SnippetRange:
    """Return the part of `within` around `around` that takes at most `most_tokens`; at least one character.

    `count` gives the tokens of a text; it is called a few times, with about a snippet.
    """
    window = most_tokens * WINDOW_BYTES_PER_TOKEN
    low = _character(original, max(within[0], around[0] - window))
    high = _character(original, min(within[1], around[0] + window))

    def tokens(start: int, end: int) -> int:
        return count(original[start:end].decode("utf-8", "replace"))

    # Always a stretch that was counted whole and found to fit: token counts need be neither additive nor monotone.
    fits, used, over = (around[0], around[0]), 0, high - low + 1
    size = high - low if high - low <= window // 2 else most_tokens * LIKELY_BYTES_PER_TOKEN
    for _ in range(ROUNDS):
        tried = _aligned(original, (low, high), around, size)
        needed = tokens(*tried)
        if needed <= most_tokens:
            if tried[1] - tried[0] >= fits[1] - fits[0]:
                fits, used = tried, needed
            if size >= high - low or needed >= most_tokens * FULL:
                break
        else:
            over = size
        least = fits[1] - fits[0]
        size = min(high - low, int(size * most_tokens * (1 + FULL) / 2 / max(needed, 1)))
        if not least < size < over:
            size = (least + over) // 2
        if not least < size < over:
            break
    while fits[0] == fits[1] and low < high:
        size = max(1, min(size, over) // 2)
        over = size
        tried = _aligned(original, (low, high), around, size)
        needed = tokens(*tried)
        if needed <= most_tokens or size == 1:
            fits, used = tried, needed
    return _described(original, fits, used)


def _aligned(original: bytes, bounds: Range, around: Range, size: int) -> Range:
    """Return about `size` bytes around a piece, within bounds: whole lines if some end near, else characters."""
    low, high = bounds
    if size >= high - low:
        return bounds
    middle = (around[0] + min(around[1], high)) // 2
    start = max(low, min(middle - size // 2, high - size))
    end = min(high, start + size)
    slack = int(size * NEAR)
    if start > low:
        line = original.find(b"\n", start - 1, min(start + slack, max(start, around[0]))) + 1
        start = line or _character(original, start)
    if end < high:
        line = original.rfind(b"\n", max(end - slack, min(end, around[1] - 1)), end) + 1
        end = line if line > start else _character(original, end)
    if end <= start:  # a character longer than `size`
        start = _character(original, start)
        end = start + 1
        while end < high and original[end] & 0xC0 == 0x80:
            end += 1
    return start, end


def _described(original: bytes, shown: Range, tokens: int) -> SnippetRange:
    start, end = shown
    first = 1 + original.count(b"\n", 0, start)
    return SnippetRange(
        start=start,
        end=end,
        first_line=first,
        last_line=first + original.count(b"\n", start, max(start, end - 1)),
        total_lines=original.count(b"\n") + (not original.endswith(b"\n") and len(original) > 0),
        text=original[start:end].decode("utf-8", "replace"),
        tokens=tokens,
    )


def _pieces(original: bytes, start: int, end: int) -> Iterator[Range]:
    """Yield the lines of a stretch; a long one in parts that end at a space or at least between characters."""
    while start < end:
        line = original.find(b"\n", start, min(end, start + PIECE_BYTES)) + 1
        if not line:
            line = min(end, start + PIECE_BYTES)
            if line < end:
                line = original.rfind(b" ", start + 1, line) + 1 or max(_character(original, line), start + 1)
        yield start, line
        start = line


def _character(original: bytes, at: int) -> int:
    """Return `at`, or the first byte of the UTF-8 character that it would split."""
    for back in range(min(3, at) + 1):
        if at - back >= len(original) or original[at - back] & 0xC0 != 0x80:
            return at - back
    return at
