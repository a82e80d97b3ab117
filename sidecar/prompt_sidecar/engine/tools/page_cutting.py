"""Where a recalled page can end early, and what is then left of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from prompt_sidecar.recall.selection import Page, Stretch


def places_to_cut(page: Page) -> list[int]:
    """Return the sizes at which a page can end, ascending: its stretches' ends, and some more within the first one."""
    ends = list(accumulate(stretch.end_byte - stretch.start_byte for stretch in page.stretches))
    sizes = set(ends[:-1])
    half = ends[0] if ends else 0
    while half > 1:
        half //= 2
        sizes.add(page.content.rfind(b"\n", half * 3 // 4, half) + 1 or _character_end(page.content, half))
    return sorted(size for size in sizes if size < len(page.content))


def _character_end(text: bytes, at: int) -> int:
    """Return `at`, or the byte after the UTF-8 character that it would split."""
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def start_of(page: Page, size: int) -> tuple[Sequence[Stretch], int]:
    """Return the stretches of a page's first `size` bytes, and the byte of the original that follows."""
    shown: list[Stretch] = []
    at = 0
    for stretch in page.stretches:
        if at == size:
            return shown, stretch.start_byte
        length = stretch.end_byte - stretch.start_byte
        if at + length > size:
            last_line = stretch.first_line + page.content.count(b"\n", at, size - 1)
            end = stretch.start_byte + size - at
            return [*shown, replace(stretch, end_byte=end, last_line=last_line)], end
        shown.append(stretch)
        at += length
    return shown, page.next_offset
