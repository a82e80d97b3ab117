"""Splitting an original into passages: stretches of about a screenful that search ranks separately.

Theory. A long result covers many subjects; ranked as a whole, it matches none of them well. So it is cut at line ends,
into stretches of 60 to 120 words (60-word passages, with an item ranked by its best one, found seven points more than
whole messages). Passages are contiguous and cover the original, so that a passage is two offsets, its neighbours are
adjacent, and every byte can be found. A line too long for a passage is cut at a space, else where a word begins, else
between any two characters.

A word here is a run of letters, digits and underscores, or of characters beyond ASCII. The analysis may find more words
in it; this only measures length: the bytes are read in blocks, and each cut takes a few look-ups among the starts of
words and lines. Passages are bounded in bytes as well, so that a text of blanks or of one endless word is cut too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
"""Bytes that are read at once: much more than MOST_BYTES, few enough to stay in a processor's cache."""
_WORD: Final = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")
_LINE_FEED: Final = re.compile(rb"\n")
_CHARACTER_BYTES: Final = 4


def passages(original: bytes) -> Iterator[tuple[int, int]]:
    """The passages of an original as byte ranges, in order: contiguous, covering, none empty.

    Cuts between whole characters if the original is UTF-8, else anywhere. In raw JSON a cut never separates a backslash
    from the letter after it. Takes time linear in the bytes of the passages that are consumed.
    """
    start, size = 0, len(original)
    while start < size:
        block = _Block.of(original, start)
        while start < size and (block.end == size or block.end - start > MOST_BYTES):
            end = block.cut(original, start)
            yield start, end
            start = end


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of an original up to `end`: offsets of its words and lines in the original."""

    end: int
    words: Sequence[int]
    lines: Sequence[int]

    @classmethod
    def of(cls, original: bytes, start: int) -> _Block:
        end = min(start + _BLOCK, len(original))
        return cls(
            end=end,
            words=[word.start() for word in _WORD.finditer(original, start, end)],
            lines=[feed.end() for feed in _LINE_FEED.finditer(original, start, end)],
        )

    def cut(self, original: bytes, start: int) -> int:
        """End of the passage that begins at `start`."""
        first = bisect_left(self.words, start)
        most = min(start + MOST_BYTES, self._word(first + MOST_WORDS))
        if most >= self.end:
            return self.end
        least = min(start + MOST_BYTES // 2, self._word(first + LEAST_WORDS))
        aim = min(start + MOST_BYTES * 3 // 4, self._word(first + AIM_WORDS))
        at = bisect_right(self.lines, aim)
        if at and self.lines[at - 1] >= least:
            return self.lines[at - 1]
        if at < len(self.lines) and self.lines[at] <= most:
            return self.lines[at]
        space = original.rfind(b" ", least, aim) + 1
        if space:
            return space
        before = bisect_right(self.words, aim)
        word = self.words[before - 1] if before else 0
        return _whole(original, word if word > least else most, start)

    def _word(self, number: int) -> int:
        """Offset of a word of the block; beyond the last one, the block's end."""
        return self.words[number] if number < len(self.words) else self.end


def _whole(original: bytes, cut: int, start: int) -> int:
    """The cut, moved back if necessary to the beginning of a character and before a backslash."""
    for at in range(cut, max(cut - _CHARACTER_BYTES, start), -1):
        if original[at] & 0xC0 != 0x80:
            cut = at
            break
    return cut - 1 if cut - 1 > start and original[cut - 1] == ord("\\") else cut
