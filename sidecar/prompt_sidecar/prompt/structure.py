"""What stands outside the strings of a JSON text: counted at memory speed, to weigh decoding before it begins.

A decoder makes an object for each value, however few bytes it is written in: three megabytes of `[],` become a million
lists that take 29 times as many. It also holds the interpreter until it is done. So what a text would become is
estimated from its commas and brackets first.

The text is looked at in windows, and no more than a window is ever copied: within one, escapes are taken out and the
rest is split at quotation marks, so that every second piece stands outside strings. That holds for any bytes; what is
not JSON the decoder will tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prompt_sidecar.errors import TooLarge

WINDOW: Final = 131_072
"""Bytes looked at in one go, a millisecond at worst: in between other threads run."""
PLACE_BYTES: Final = 8
LIST_BYTES: Final = 56
DICT_BYTES: Final = 184
STRING_BYTES: Final = 49
NUMBER_BYTES: Final = 32
"""What CPython 3.11 takes on 64 bits for a place in a list, for an empty list, for a dict of up to five members, for a
string beside its characters, and for a number."""
SLICE_BYTES: Final = 72
"""What a slice of msgspec's takes, with its place."""
FREE_BYTES: Final = 33_554_432
"""What decoding may take whatever the length of a text: 32 MiB holds two megabytes of a table's rows as objects, or
half a million small values, which take a twentieth of a second."""
FACTOR: Final = 3
"""Times the bytes of a text that decoding it may take, if that is more."""
BOUND: Final = "json.decoded_bytes"


class Shape(NamedTuple):
    """What stands outside a text's strings."""

    commas: int = 0
    colons: int = 0
    lists: int = 0
    dicts: int = 0
    strings: int = 0

    @property
    def decoded_bytes(self) -> int:
        """What the values take once they are decoded, without the characters of strings."""
        numbers = max(0, self.commas + 1 + self.colons - self.strings)  # every string is a value or names one
        return (
            PLACE_BYTES * (self.commas + self.lists + self.dicts)
            + LIST_BYTES * self.lists
            + DICT_BYTES * self.dicts
            + STRING_BYTES * self.strings
            + NUMBER_BYTES * numbers
        )

    @property
    def elements_bytes(self) -> int:
        """What the values take if each is kept as a slice, without looking inside."""
        return SLICE_BYTES * (self.commas + 1)


def shape(raw: bytes) -> Shape:
    """Count what stands outside the strings of a JSON text, in time and memory that no content makes worse."""
    commas = colons = lists = dicts = quotes = 0
    for outside, marks in _outside(raw):
        commas += outside.count(b",")
        colons += outside.count(b":")
        lists += outside.count(b"[")
        dicts += outside.count(b"{")
        quotes += marks
    return Shape(commas, colons, lists, dicts, quotes // 2)


def check_decoding(raw: bytes, field: str) -> None:
    """See that decoding a text takes no more than it may.

    Raises:
        TooLarge: it would take more than three times its bytes, and more than 32 MiB; names `field`.
    """
    most = max(FREE_BYTES, FACTOR * len(raw))
    if _at_most(raw) > most and (taken := shape(raw).decoded_bytes) > most:
        raise TooLarge(
            f"{field} has {len(raw):,} bytes and so many small values that decoding takes about {taken:,}; "
            f"accepted: {most:,}",
            field=field,
            bound=BOUND,
        )


def check_slices(raw: bytes, field: str) -> None:
    """See that taking a text apart into the slices of its members or elements takes no more than it may.

    Raises:
        TooLarge: it would take more than three times its bytes, and more than 32 MiB; names `field`.
    """
    most = max(FREE_BYTES, FACTOR * len(raw))
    if SLICE_BYTES * len(raw) // 2 > most and SLICE_BYTES * raw.count(b",") > most:
        taken = shape(raw).elements_bytes
        if taken > most:
            raise TooLarge(
                f"{field} has {len(raw):,} bytes and so many small values that taking it apart takes about {taken:,}; "
                f"accepted: {most:,}",
                field=field,
                bound=BOUND,
            )


def _at_most(raw: bytes) -> int:
    """What decoding takes if all that looks like structure is: cheap, and mostly enough to know."""
    if DICT_BYTES * len(raw) <= FREE_BYTES:
        return 0
    lists, dicts, commas, quotes = (raw.count(mark) for mark in (b"[", b"{", b",", b'"'))
    return Shape(commas, 0, lists, dicts, quotes // 2).decoded_bytes + NUMBER_BYTES * commas


def _outside(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """What stands outside strings, window by window, with the quotation marks that open or close a string."""
    at, inside = 0, 0
    while at < len(raw):
        window = raw[at : at + WINDOW]
        at += len(window)
        if b"\\" in window:
            if (len(window) - len(window.rstrip(b"\\"))) % 2:  # it ends inside an escape
                window += raw[at : at + 1]
                at += 1
            window = window.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = window.split(b'"')
        yield b"".join(pieces[inside::2]), len(pieces) - 1
        inside = (inside + len(pieces) - 1) % 2
