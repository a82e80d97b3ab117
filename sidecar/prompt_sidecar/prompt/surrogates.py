r"""Lone surrogates in JSON text: escapes such as `\ud83d` for half of a character whose other half is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

STAND_IN: Final = b"\\ufffd"
"""The replacement character, as long as the escape that it stands for."""
_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_LOW: Final = frozenset(b"cdefCDEF")
"""The fourth character of an escape that is the second half of a pair."""
_AT_ONCE: Final = 1_048_576
"""Bytes that are searched in one go, so that other threads get their turn."""
_BACKSLASH: Final = 0x5C


def lone_surrogates(raw: bytes) -> Iterator[int]:
    """Where the lone surrogates of a JSON text stand. Linear in the text, also where it is no JSON."""
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


def mended(raw: bytes) -> bytes:
    """The text with each lone surrogate replaced, all else at its place; the same object if there is none."""
    written: bytearray | None = None
    for at in lone_surrogates(raw):
        if written is None:
            written = bytearray(raw)
        written[at : at + len(STAND_IN)] = STAND_IN
    return raw if written is None else bytes(written)


def _escapes(raw: bytes) -> Iterator[int]:
    """Where escapes of surrogates stand; not where a backslash before makes the backslash a character."""
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
