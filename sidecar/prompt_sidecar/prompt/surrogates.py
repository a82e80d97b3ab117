r"""Lone surrogates in JSON text: escapes such as `\ud83d` for half of a character whose other half is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

STAND_IN: Final = b"\\ufffd"
"""The replacement character, whose escape is as long as that of a surrogate."""
_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LOW: Final = frozenset(b"cdefCDEF")
"""The fourth character of the escape of a low surrogate."""
_AT_ONCE: Final = 1_048_576
"""Bytes that are searched at once, so that other threads can run in between."""
_BACKSLASH: Final = 0x5C


def lone_surrogates(raw: bytes) -> Iterator[int]:
    """Yield offsets of the lone surrogates of a JSON text. Linear in the text, even if it is not JSON."""
    high = -1
    for at in _escapes(raw):
        low = raw[at + 3] in _LOW
        if low and high >= 0 and at == high + len(STAND_IN):
            high = -1
            continue
        if high >= 0:
            yield high
        if low:
            yield at
        high = -1 if low else at
    if high >= 0:
        yield high


def without_lone_surrogates(raw: bytes) -> bytes:
    """Return the text with lone surrogates replaced at unchanged offsets; the same object if there are none."""
    written: bytearray | None = None
    for at in lone_surrogates(raw):
        if written is None:
            written = bytearray(raw)
        written[at : at + len(STAND_IN)] = STAND_IN
    return raw if written is None else bytes(written)


def _escapes(raw: bytes) -> Iterator[int]:
    """Yield offsets of escapes of surrogates, without those whose backslash is itself escaped."""
    start = 0
    while start < len(raw):
        end = start + _AT_ONCE
        for found in _ESCAPE.finditer(raw, start, end + len(STAND_IN) - 1):
            before = at = found.start()
            while before and raw[before - 1] == _BACKSLASH:
                before -= 1
            if (at - before) % 2 == 0:
                yield at
        start = end
