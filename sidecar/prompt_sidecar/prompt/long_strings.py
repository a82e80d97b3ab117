r"""Decodes a JSON text that consists mostly of one or a few long strings, in pieces.

A decoder holds the interpreter's lock until it is done: 80 ms for 35 MB. So the content of each long string is removed,
a mark is decoded in its place, and the removed content is decoded in pieces, between which other threads can run.

A string may be cut wherever no escape is split: before a backslash that follows another character, as that begins an
escape, and before any other character that has no backslash among the five bytes before it, as an escape has six at
most. The two escapes of one character, such as `\ud83d\ude42`, and the bytes of one stay together.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from mmap import mmap
from typing import Any, Final

import orjson

from prompt_sidecar.prompt.structure import never

PIECE_BYTES: Final = 2_097_152
"""Bytes of a string that are decoded at once, in 6 ms."""
LEAST_BYTES: Final = 8 * PIECE_BYTES
"""Texts with fewer bytes in long strings are decoded at once, in 40 ms, which takes less memory for some of them."""
_CUT: Final = re.compile(rb"(?<=[^\\])\\(?!u[dD][c-fC-F])|(?<=[^\\]{5})[\x00-\x5b\x5d-\x7f\xc0-\xff]")
"""Matches where a string may be cut."""
_SEARCHED: Final = 4_096
"""Bytes in which a place to cut is searched. Only that many backslashes in a row have none."""


def decode_in_pieces(
    raw: bytes | memoryview,
    within: Iterable[range],
    loads: Callable[[bytes | bytearray], Any] | None = None,
    check: Callable[[], None] = never,
) -> Any:
    """Decode in pieces. Returns None if that is impossible, or if the text is not JSON.

    Args:
        raw: the text.
        within: which bytes are within strings, from `structure.shape`.
        loads: decodes a piece, and the rest without the long strings; if it is not JSON it returns None, or raises a
            JSONDecodeError, as orjson's, which is the default.
        check: called between two pieces; what it raises ends the decoding.
    """
    loads = loads or orjson.loads
    cuts = [_cuts(raw, each) for each in within if len(each) >= PIECE_BYTES]
    if sum(places[-1] - places[0] for places in cuts) < max(LEAST_BYTES, len(raw) // 2):
        return None
    mark = f"taken out {secrets.token_hex(16)} "
    rest, taken, at = bytearray(), {}, 0
    for number, places in enumerate(cuts):
        name = f"{mark}{number:08}"
        taken[name] = places
        rest += raw[at : places[0]]
        rest += name.encode()
        at = places[-1]
    rest += raw[at:]
    try:
        value = loads(rest)
        del rest
        return _put_back(raw, value, mark, taken, partial(_piece, loads, check))
    except orjson.JSONDecodeError:
        return None


def _cuts(raw: bytes | memoryview, within: range) -> Sequence[int]:
    """Return where a string is cut, the outermost places first and last."""
    places = [within.start]  # no window begins inside an escape of two characters
    for at in (*range(within.start, within.stop - PIECE_BYTES // 2, PIECE_BYTES), within.stop - _SEARCHED):
        found = _CUT.search(bytes(raw[at : at + _SEARCHED]))
        if found is not None:
            places.append(at + found.start())
        else:  # all are backslashes, each pair of which is one character
            before = bytes(raw[places[-1] : at])
            places.append(at + (len(before) - len(before.rstrip(b"\\"))) % 2)
    return places[1:]


def _piece(loads: Callable[[bytes], Any], check: Callable[[], None], text: bytes) -> str:
    """Decode a piece of a string. Raises JSONDecodeError if it is not one."""
    check()
    piece = loads(text)
    if type(piece) is not str:
        raise orjson.JSONDecodeError("no string", "", 0)
    return piece


def _put_back(
    raw: bytes | memoryview, value: Any, mark: str, taken: Mapping[str, Sequence[int]], piece: Callable[[bytes], str]
) -> Any:
    """Return the value with the removed contents restored; None if one is not in a string that is a value."""
    whole = [value]
    waiting: list[Any] = [whole]
    left = len(taken)
    while waiting:
        inner = waiting.pop()
        for key, each in inner.items() if type(inner) is dict else enumerate(inner):
            if type(each) is dict or type(each) is list:
                waiting.append(each)
            elif type(each) is str and (at := each.find(mark)) >= 0:
                end = at + len(mark) + 8
                places = taken[each[at:end]]
                pieces = (piece(b'"%b"' % bytes(raw[begin:stop])) for begin, stop in pairwise(places))
                inner[key] = _joined(chain((each[:at],), pieces, (each[end:],)), len(each) + places[-1] - places[0])
                left -= 1
    return None if left else whole[0]


def _joined(pieces: Iterable[str], most: int) -> str:
    """Join pieces of no more than `most` characters.

    While they are ASCII they are collected in memory that is returned to the system at once. In the heap, freed pieces
    would stay between blocks that are still used: a call of 35 MB took 3.3 times its bytes in place of 2.7.
    """
    others: list[str] = []
    try:
        room = mmap(-1, most)
    except OSError:
        raise MemoryError from None
    with room:
        for piece in pieces:
            if others or not piece.isascii():
                others.append(piece)
            else:
                room.write(piece.encode())
        with memoryview(room) as all_of_it, all_of_it[: room.tell()] as written:
            first = str(written, "ascii")
    return "".join((first, *others)) if others else first
