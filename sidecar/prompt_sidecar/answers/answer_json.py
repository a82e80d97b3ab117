r"""JSON of providers' answers: read as far as possible, and written without loss.

A stream may cut a character outside the Basic Multilingual Plane between its two UTF-16 units: one event ends with the
escape `\ud83d`, and the next one begins with `\ude00`. RFC 8259, section 8.2, leaves open how a reader treats a lone
surrogate. Here it stays a surrogate in a Python string, and is written as the escape again, so that both surrogates
reach the agent in order.
"""

from __future__ import annotations

import json
import math
import string
import sys
from codecs import BOM_UTF8
from collections.abc import Callable
from typing import Any, Final, NoReturn

import orjson

from prompt_sidecar.errors import TooLarge
from prompt_sidecar.prompt.long_strings import LEAST_BYTES, decode_in_pieces
from prompt_sidecar.prompt.structure import check_decoding, never, shape
from prompt_sidecar.providers.surrogates import sound

_DIGITS: Final = bytes(ord("0") if chr(byte) in string.digits else ord(" ") for byte in range(256))
"""Replaces each digit by a zero, and all else by a space."""
_LONG_NUMBER: Final = b"0" * 19
"""Digits that may be an integer beyond 64 bits, after that: found in a tenth of the time that an expression takes."""
_OVERLAP: Final = 18
_SEARCHED_AT_ONCE: Final = 262_144
"""Bytes that are searched for such an integer at once, so that other threads can run in between."""
_MANY: Final = 100
"""Number of opening brackets from which on a text may be nested too deeply to be written again."""
_ROOM: Final = 16
"""Levels that are kept free for the containers around a text."""


def read(raw: bytes, check: Callable[[], None] = never) -> Any:
    """Return JSON text as JSON types; None if it cannot be read, or could not be written again.

    `check` is called between two steps of a long text, and an exception from it ends the reading; long strings are read
    in pieces, as no other thread runs while a library reads one.

    A text with so many small values that decoding it would take much more memory than its bytes is not read. Integers
    keep all their digits. Other numbers are rounded to 64 bits; `rewriting.rewritten` keeps their spelling. A byte
    order mark before the text is ignored, as most readers of answers do (RFC 8259, section 8.1).
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
    """Read a text with the JSON library; None if it is not JSON."""
    if _has_long_number(raw):
        return _read_exactly(raw)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _read_exactly(raw)


def _has_long_number(raw: bytes | bytearray) -> bool:
    if len(raw) <= _SEARCHED_AT_ONCE:
        return _LONG_NUMBER in raw.translate(_DIGITS)
    return any(
        _LONG_NUMBER in raw[at : at + _SEARCHED_AT_ONCE + _OVERLAP].translate(_DIGITS)
        for at in range(0, len(raw), _SEARCHED_AT_ONCE)
    )


def _read_exactly(raw: bytes | bytearray) -> Any:
    """Read texts that the library refuses (lone surrogates, too large numbers) or rounds (integers)."""
    try:
        return json.loads(raw.decode(), parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    """Read a number; one that is too large becomes the largest, as `Infinity` is not JSON."""
    found = float(text)
    return math.copysign(sys.float_info.max, found) if math.isinf(found) else found


def _integer(text: str) -> int | float:
    """Read an integer; one that is far beyond 64 bits becomes the largest number."""
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
    """Return JSON text; lone surrogates are escapes in it, and two that form a pair are one character."""
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, or nested more deeply than the library writes
        return json.dumps(value, separators=(",", ":")).encode()


def write_sound(value: Any) -> bytes:
    """Return JSON text that every reader accepts: lone surrogates are replaced by U+FFFD."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return sound(json.dumps(value, separators=(",", ":"), ensure_ascii=False)).encode()
