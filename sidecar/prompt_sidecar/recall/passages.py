"""Splitting an original into passages: stretches of about a screenful that search ranks separately.

Theory. A long result covers many subjects; ranked as a whole, it matches none of them well. So it is cut at line ends,
into stretches of 60 to 120 words (60-word passages, with an item ranked by its best one, found seven points more than
whole messages). Passages are contiguous and cover the original, so that a passage is two offsets, its neighbours are
adjacent, and every byte can be found. A line too long for a passage is cut at a space, else where a word begins, else
between any two characters.

A word here is a run of letters, digits and underscores, or of characters beyond ASCII. The analysis may find more words
in it; this only measures length: of the bytes that a passage may have each is mapped to its kind, and `split` finds
where the words begin between which the passage may end. Passages are bounded in bytes as well, so that a text of blanks
or of one endless word is cut too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LEAST_WORDS: Final = 60
"""Least words of a passage that ends at a line end; fewer only at the end of the text, or where bytes run out."""
AIM_WORDS: Final = 90
"""A passage ends at the last line end up to this number of words, if there is one."""
MOST_WORDS: Final = 120
"""Most words of a passage: beyond it a line is cut."""
MOST_BYTES: Final = 1_024
"""Most bytes of a passage: twice the size of 90 words of code, logs or prose. Reached by blanks, base64 and the like,
and by scripts without spaces, of which it holds about 340 characters."""

_BLOCK: Final = 32_768
"""After so many bytes, the first passage that ends there is followed by the beginning of a word, even within one."""
_WORD: Final = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")
_CHARACTER_BYTES: Final = 4
_KINDS: Final = bytes(0x77 if _WORD.match(bytes([byte])) else 0x20 for byte in range(256))
"""The kind of each byte: `w` if it belongs to a word, else a blank."""
_INSIDE: Final = b"w"


def passages(original: bytes) -> Iterator[tuple[int, int]]:
    """Yield the passages of an original as byte ranges, in order: contiguous, covering all of it, none empty.

    Cuts between whole characters if the original is UTF-8, else anywhere. In raw JSON a cut never separates a backslash
    from the letter after it. Takes time linear in the bytes of the passages that are consumed.
    """
    start, size = 0, len(original)
    begun = 0
    while start < size:
        if size > begun + _BLOCK and begun + _BLOCK - start <= MOST_BYTES:
            begun = start
        end = _cut(original, start, words_begin=start == begun)
        yield start, end
        start = end


def _cut(original: bytes, start: int, *, words_begin: bool) -> int:
    """Return the end of the passage at `start`, where a word may begin even if the byte before belongs to one."""
    size = len(original)
    kinds = original[start : start + MOST_BYTES].translate(_KINDS)
    # In the middle of a word, the first word is the next one.
    begun = not words_begin and kinds[:1] == _INSIDE and original[start - 1 : start].translate(_KINDS) == _INSIDE
    least = _word(kinds, 0, LEAST_WORDS + begun)
    aim = _word(kinds, least, AIM_WORDS - LEAST_WORDS)
    most = start + _word(kinds, aim, MOST_WORDS - AIM_WORDS)
    if most >= size:
        return size
    least = start + min(MOST_BYTES // 2, least)
    aim = start + min(MOST_BYTES * 3 // 4, aim)
    feed = original.rfind(b"\n", least - 1, aim) + 1 or original.find(b"\n", aim, most) + 1
    if feed:
        return feed
    space = original.rfind(b" ", least, aim) + 1
    if space:
        return space
    kinds = kinds[: aim - start + 1]
    word = start + kinds.rfind(b" w", least - start) + 1
    return _whole(original, word if word > least else most, start)


def _word(kinds: bytes, start: int, number: int) -> int:
    """Return where the word begins that follows `number` others; the end if there are fewer."""
    return len(kinds) - len(b"".join(kinds[start:].split(None, number)[number:]))


def _whole(original: bytes, cut: int, start: int) -> int:
    """Return the cut, moved back if necessary to the beginning of a character and before a backslash."""
    for at in range(cut, max(cut - _CHARACTER_BYTES, start), -1):
        if original[at] & 0xC0 != 0x80:
            cut = at
            break
    return cut - 1 if cut - 1 > start and original[cut - 1] == ord("\\") else cut
