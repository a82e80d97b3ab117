r"""JSON of providers' answers: read as far as it can be, and written so that nothing of it is lost.

A stream may cut a character outside the Basic Multilingual Plane between its two UTF-16 units: one event ends with the
escape `\ud83d`, and the next one begins with `\ude00`. RFC 8259, section 8.2, leaves open what a reader makes of half
a character. Here it stays what it is, a surrogate in a Python string, until its other half has come; it is written as
the escape again, so that the halves reach the agent in their order.
"""

from __future__ import annotations

import json
import math
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import Any, Final, NoReturn

import orjson

from prompt_sidecar.errors import TooLarge
from prompt_sidecar.prompt.long_strings import LEAST_BYTES, decode_in_pieces
from prompt_sidecar.prompt.structure import check_decoding, never, shape
from prompt_sidecar.providers.surrogates import sound

_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
"""What may be an integer beyond 64 bits."""
_OVERLAP: Final = 18
_SEARCHED_AT_ONCE: Final = 1_048_576
"""Bytes in which such an integer is looked for at once, so that other threads can run in between."""
_MANY: Final = 100
"""Opening brackets from which on a text may be nested too deep to be written again."""
_ROOM: Final = 16
"""Levels that are kept free for what a text is put into."""


def read(raw: bytes, check: Callable[[], None] = never) -> Any:
    """Return JSON text as its types; None: it cannot be read, or could not be written again.

    `check` is called between two steps of a long text, and what it raises ends the reading; long strings are read in
    pieces, as no other thread runs while a library reads one.

    Nor is a text read that has so many small values that decoding it would take much more memory than its bytes.
    Integers keep all their digits. Of other numbers the nearest that has 64 bits is returned: `rewriting.rewritten`
    keeps their spelling. A byte order mark before the text is passed over, as most readers of answers do (RFC 8259,
    section 8.1).
    """
    raw = raw.removeprefix(BOM_UTF8)
    known = shape(raw, check) if len(raw) >= LEAST_BYTES else None
    try:
        check_decoding(raw, "answer", known)
    except TooLarge:
        return None
    check()
    found = None if known is None else decode_in_pieces(raw, known.within, _loads, check)
    if found is None:
        found = _loads(raw)
    check()
    brackets = raw.count(b"{") + raw.count(b"[") if known is None else known.dicts + known.lists
    return None if brackets > _MANY and not _can_be_written(found) else found


def _loads(raw: bytes | bytearray) -> Any:
    """Read a text with the library that is made for it; None: it is no JSON."""
    if _has_long_number(raw):
        return _read_exactly(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _read_exactly(raw)


def _has_long_number(raw: bytes | bytearray) -> bool:
    return any(
        _LONG_NUMBER.search(raw, at, at + _SEARCHED_AT_ONCE + _OVERLAP) is not None
        for at in range(0, len(raw), _SEARCHED_AT_ONCE)
    )


def _read_exactly(raw: bytes | bytearray) -> Any:
    """Read what the library refuses, lone surrogates and numbers that are too large, and what it rounds: integers."""
    try:
        return json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    """Read a number; one that is too large is the largest, as infinity would be written as `Infinity`, no JSON."""
    found = float(text)
    return math.copysign(sys.float_info.max, found) if math.isinf(found) else found


def _integer(text: str) -> int | float:
    """Read an integer; one that no number of 64 bits comes near is the largest that there is."""
    return int(text) if len(text) <= sys.float_info.max_10_exp else _finite(text)


def _can_be_written(value: Any) -> bool:
    for _ in range(_ROOM):
        value = [value]
    try:
        write(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def write(value: Any) -> bytes:
    """Return JSON text; lone surrogates are escapes in it, and two that follow each other are one character."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, or nested deeper than the library writes
        return json.dumps(value, separators=(",", ":")).encode()


def write_sound(value: Any) -> bytes:
    """Return JSON text that every reader takes: in place of a lone surrogate there is U+FFFD."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return sound(json.dumps(value, separators=(",", ":"), ensure_ascii=False)).encode()
