r"""JSON text made readable for strict parsers, at unchanged offsets: parts that they refuse are replaced.

Lone surrogates become U+FFFD (`surrogates`). A number that no double holds, such as `1e400`, is valid JSON (RFC 8259
leaves range and precision to the reader, section 6): one reader treats it as infinity, another one refuses it. It
becomes `null`, which JavaScript writes in its place, and spaces.
"""

from __future__ import annotations

import math
import re
from typing import Final

from prompt_sidecar.prompt.surrogates import without_lone_surrogates

_TOKEN: Final = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?'  # a string, which is skipped even if it never ends
    rb"|(-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)",
    re.DOTALL,
)
_LARGEST: Final = 308
"""Decimal digits after the first one of the largest double."""


def readable(raw: bytes | memoryview) -> bytes:
    """Return the text with parts that strict parsers refuse replaced; the same object if there are none. Linear."""
    return without_large_numbers(without_lone_surrogates(bytes(raw)))


def without_large_numbers(raw: bytes) -> bytes:
    """Return the text, at the same length, with `null` for numbers too large for a double; the same object if none."""
    written: bytearray | None = None
    for found in _TOKEN.finditer(raw):
        number = found[1]
        if number is None or not _may_be_large(number) or not math.isinf(float(number)):
            continue
        if written is None:
            written = bytearray(raw)
        written[found.start() : found.end()] = b"null".ljust(len(number))
    return raw if written is None else bytes(written)


def _may_be_large(number: bytes) -> bool:
    return len(number) > _LARGEST or b"e" in number or b"E" in number
