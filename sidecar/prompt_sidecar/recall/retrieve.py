"""Pages of an original: a selection of its bytes, cut so that each page takes at most so many tokens.

Theory. A selection is a list of byte ranges, each of whole characters. Pages cut it further, and never change it: the
pages' bytes one after another are the selection's bytes. An offset is a byte of the original, so that a page can be
found again from the same selection alone; the sidecar keeps no cursor.

How many bytes fill a page is found by counting the tokens of a prefix and correcting it by the result: two or three
counts of about a page each, on a window of eight bytes a token. What lies beyond the window is scanned only for line
feeds, at memory speed, so a page of a 50 MB original costs little more than one of a 50 KB one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from prompt_sidecar import slots
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.recall.pattern import Hold, matching_stretches
from prompt_sidecar.recall.selection import ByteRange, LineRange, Page, PatternMatch, Selection, Stretch

MIN_PAGE_TOKENS: Final = 16
"""A character takes at most four tokens, one for each byte, and twice that by the largest calibration factor: so one
fits."""
MAX_PAGE_TOKENS: Final = 200_000
"""Tokens of a page: a common large window. Programs, which may want more, can request several pages."""
WINDOW_BYTES_PER_TOKEN: Final = 8
"""Text has 2.6 (logs) to 4 (prose) bytes a token; more than 8 are runs of spaces or the like, and such a page may stay
short."""
LIKELY_BYTES_PER_TOKEN: Final = 3
"""The first guess, near the low end for text, so that it seldom needs a correction downwards."""
FULL: Final = 0.95
"""Share of its tokens from which a page counts as full."""
NEAR: Final = 0.75
"""A page is cut at a line end if that keeps at least this share of its bytes."""
ROUNDS: Final = 6
"""Counts spent on filling a page. Recorded text takes two or three; more are needed for rare mixtures only."""

_LINE_BLOCK: Final = 65_536
"""Bytes whose line feeds are counted at once on the way to a line."""


def _never() -> None:
    """Check nothing: the call cannot be cancelled."""


def select(  # noqa: PLR0917 - the usual order: original, selection, offset, size
    original: bytes,
    content_type: str,
    selection: Selection,
    offset: int,
    page_tokens: int,
    count: Callable[[str], int],
    check: Callable[[], None] = _never,
    hold: Hold = slots.holding,
) -> Page:
    """Return one page of a selection of an original.

    `offset` is 0 or the `next_offset` of the page before, with the same selection; one inside a character or between
    matching stretches is moved to the nearest byte that can be shown. `count` gives the tokens of a text; it is called
    with about a page at a time. The page takes at most `page_tokens`, and at least one character. `check` is called
    now and then while a pattern is searched for, and may raise; `hold` waits there for its turn.

    Raises InvalidRequest, naming the field, for a selection, offset or page outside its bounds.
    """
    if not MIN_PAGE_TOKENS <= page_tokens <= MAX_PAGE_TOKENS:
        raise InvalidRequest(
            f"page_tokens is {page_tokens}; accepted: {MIN_PAGE_TOKENS} to {MAX_PAGE_TOKENS:,}, "
            "0 for the configured page",
            field="page_tokens",
        )
    ranges, matching = _ranges(original, selection, check, hold)
    rest = _from_offset(original, ranges, offset, anywhere=isinstance(selection, PatternMatch))
    window = _window(original, rest, page_tokens * WINDOW_BYTES_PER_TOKEN)
    remaining = sum(end - start for start, end in rest)
    size, tokens = _fill(window, page_tokens, count, at_end=len(window) == remaining)
    shown, next_offset = _take(rest, size)
    return Page(
        content=window[:size],
        content_type=content_type,
        total_bytes=len(original),
        total_lines=_total_lines(original),
        stretches=_stretches(original, shown),
        more=size < remaining,
        next_offset=next_offset,
        matching_lines=matching,
        content_tokens=tokens,
    )


def _ranges(
    original: bytes, selection: Selection, check: Callable[[], None], hold: Hold
) -> tuple[list[tuple[int, int]], int]:
    """Return the selection as byte ranges of whole characters, and the number of matching lines."""
    match selection:
        case None:
            return [(0, len(original))], 0
        case LineRange():
            return [_line_range(original, selection)], 0
        case ByteRange():
            return [_byte_range(original, selection)], 0
        case PatternMatch():
            return matching_stretches(original, selection, check, hold)


def _line_range(original: bytes, lines: LineRange) -> tuple[int, int]:
    total = _total_lines(original)
    if not 1 <= lines.first <= max(total, 1):
        raise InvalidRequest(
            f"lines.first is {lines.first}; accepted: 1 to {max(total, 1)}, the number of lines", field="lines.first"
        )
    if lines.last != 0 and lines.last < lines.first:
        raise InvalidRequest(
            f"lines.last is {lines.last}; accepted: {lines.first} (lines.first) or more, 0 for the end",
            field="lines.last",
        )
    start = _line_start(original, lines.first)
    return start, len(original) if lines.last in (0, total) else _line_start(original, lines.last + 1)


def _byte_range(original: bytes, chosen: ByteRange) -> tuple[int, int]:
    total = len(original)
    if not 0 <= chosen.start < max(total, 1):
        raise InvalidRequest(
            f"bytes.start is {chosen.start}; accepted: 0 to {max(total - 1, 0)}, the last byte", field="bytes.start"
        )
    if chosen.end != 0 and chosen.end <= chosen.start:
        raise InvalidRequest(
            f"bytes.end is {chosen.end}; accepted: more than {chosen.start} (bytes.start), 0 for the end",
            field="bytes.end",
        )
    end = total if chosen.end == 0 else min(chosen.end, total)
    return _character_start(original, chosen.start), _character_end(original, end)


def _from_offset(
    original: bytes, ranges: Sequence[tuple[int, int]], offset: int, *, anywhere: bool
) -> list[tuple[int, int]]:
    """Return the parts of the ranges from the offset on. `anywhere`: the offset may be outside the ranges."""
    if offset == 0:
        return [(start, end) for start, end in ranges if start < end]
    low, high = (0, len(original)) if anywhere else ranges[0]
    if not low <= offset < high:
        raise InvalidRequest(
            f"offset is {offset}; accepted: 0, or next_offset of the page before with the same selection, "
            f"which lies from {low} to {max(high - 1, low)}",
            field="offset",
        )
    at = _character_start(original, offset)
    return [(max(start, at), end) for start, end in ranges if end > at]


def _window(original: bytes, ranges: Sequence[tuple[int, int]], room: int) -> bytes:
    """Return the first bytes of the ranges, at most `room`, whole characters."""
    parts = []
    for start, end in ranges:
        cut = end if end - start <= room else _character_start(original, start + room)
        parts.append(original[start:cut])
        room -= cut - start
        if cut < end or room <= 0:
            break
    return b"".join(parts)


def _fill(window: bytes, budget: int, count: Callable[[str], int], *, at_end: bool) -> tuple[int, int]:
    """Return how many bytes of the window make a page, and their tokens. `at_end`: nothing follows the window.

    Always keeps a prefix that was counted whole and found to fit: token counts need be neither additive nor monotone.
    """

    def tokens(size: int) -> int:
        # Originals are UTF-8; any other is counted as it would be displayed.
        return count(window[:size].decode("utf-8", "replace"))

    fits, fits_tokens, over = 0, 0, len(window) + 1
    size = _character_start(window, min(len(window), budget * LIKELY_BYTES_PER_TOKEN))
    for _ in range(ROUNDS):
        if not fits < size < over:
            break
        needed = tokens(size)
        if needed <= budget:
            fits, fits_tokens = size, needed
            if fits == len(window) or needed >= budget * FULL:
                break
        else:
            over = size
        # Aim between FULL and full, by the tokens a byte so far; failing that, halve what is left.
        size = min(len(window), int(size * budget * (1 + FULL) / 2 / max(needed, 1)))
        if not fits < size < over:
            size = (fits + over) // 2
        size = _character_start(window, size)
    while fits == 0 and window:
        size = max(_character_start(window, over // 2), _character_end(window, 1))
        needed = tokens(size)
        if needed <= budget or size == _character_end(window, 1):
            fits, fits_tokens = size, needed
        over = size
    if fits < len(window) or not at_end:
        line_end = window.rfind(b"\n", int(fits * NEAR), fits) + 1
        if 0 < line_end < fits and (needed := tokens(line_end)) <= budget:
            return line_end, needed
    return fits, fits_tokens


def _take(ranges: Sequence[tuple[int, int]], size: int) -> tuple[list[tuple[int, int]], int]:
    """Return the ranges' first `size` bytes, and the byte that follows them in the ranges; 0 if there is none."""
    shown: list[tuple[int, int]] = []
    for start, end in ranges:
        if size == 0:
            return shown, start
        cut = min(end, start + size)
        shown.append((start, cut))
        size -= cut - start
        if cut < end:
            return shown, cut
    return shown, 0


def _stretches(original: bytes, ranges: Sequence[tuple[int, int]]) -> list[Stretch]:
    stretches = []
    at, line = 0, 1
    for start, end in ranges:
        line += original.count(b"\n", at, start)
        last = line + original.count(b"\n", start, end - 1)
        stretches.append(Stretch(start_byte=start, end_byte=end, first_line=line, last_line=last))
        at, line = end - 1, last
    return stretches


def _total_lines(original: bytes) -> int:
    return original.count(b"\n") + (not original.endswith(b"\n") and len(original) > 0)


def _line_start(original: bytes, line: int) -> int:
    """Return the first byte of a line, counted from 1; the length if there are fewer.

    Skips whole blocks by counting.
    """
    before = line - 1
    at = 0
    block = _LINE_BLOCK
    while before > 0 and at < len(original):
        found = original.count(b"\n", at, at + block)
        if found < before:
            before -= found
            at += block
        elif block > 1:
            block //= 2
        else:
            return at + 1
    return min(at, len(original))


def _character_start(text: bytes, at: int) -> int:
    """Return `at`, or the first byte of the UTF-8 character that it would split. Moves at most three bytes."""
    for back in range(min(3, at) + 1):
        if at - back >= len(text) or text[at - back] & 0xC0 != 0x80:
            return at - back
    return at


def _character_end(text: bytes, at: int) -> int:
    """Return `at`, or the byte after the UTF-8 character that it would split. Moves at most three bytes."""
    for further in range(4):
        if at + further >= len(text) or text[at + further] & 0xC0 != 0x80:
            return min(at + further, len(text))
    return at
