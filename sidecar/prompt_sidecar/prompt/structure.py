"""The structure of a JSON text, counted at memory speed to bound the cost of decoding before it starts.

A decoder creates an object for each value, however short: three megabytes of `[],` become a million lists that take 29
times as many bytes. It also holds the interpreter's lock until it is done. So the decoded size is first estimated from
the commas and brackets outside strings.

The text is read in windows, and only one window is copied at a time: escapes are removed from it and the rest is split
at quotation marks, so that every second piece is outside strings. This works on any bytes; the decoder detects invalid
JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prompt_sidecar.errors import TooLarge

WINDOW: Final = 131_072
"""Bytes read at once, which takes a millisecond at most; other threads can run in between."""
PLACE_BYTES: Final = 8
LIST_BYTES: Final = 56
DICT_BYTES: Final = 184
STRING_BYTES: Final = 49
NUMBER_BYTES: Final = 32
"""Memory of CPython 3.11 on 64 bits for a place in a list, an empty list, a dict of up to five members, a string
without its characters, and a number."""
SLICE_BYTES: Final = 72
"""Memory of a slice of msgspec, with its place in a list."""
FREE_BYTES: Final = 33_554_432
"""Memory that decoding any text may take: 32 MiB hold two megabytes of a table's rows as objects, or half a million
small values, which take a twentieth of a second."""
FACTOR: Final = 3
"""Memory that decoding may take as a multiple of the text's bytes, if that is more than `FREE_BYTES`."""
BOUND: Final = "json.decoded_bytes"


class Shape(NamedTuple):
    """Counts of a text's structural characters outside strings, and of its strings."""

    commas: int = 0
    colons: int = 0
    lists: int = 0
    dicts: int = 0
    strings: int = 0

    @property
    def decoded_bytes(self) -> int:
        """Memory of the decoded values, without the characters of strings."""
        numbers = max(0, self.commas + 1 + self.colons - self.strings)  # every string is a value or a key
        return (
            PLACE_BYTES * (self.commas + self.lists + self.dicts)
            + LIST_BYTES * self.lists
            + DICT_BYTES * self.dicts
            + STRING_BYTES * self.strings
            + NUMBER_BYTES * numbers
        )

    @property
    def elements_bytes(self) -> int:
        """Memory of the values as slices, which are not decoded further."""
        return SLICE_BYTES * (self.commas + 1)


def shape(raw: bytes) -> Shape:
    """Count the structure of a JSON text; time and memory do not depend on the content."""
    commas = colons = lists = dicts = quotes = 0
    for outside, marks in _outside(raw):
        commas += outside.count(b",")
        colons += outside.count(b":")
        lists += outside.count(b"[")
        dicts += outside.count(b"{")
        quotes += marks
    return Shape(commas, colons, lists, dicts, quotes // 2)


def check_decoding(raw: bytes, field: str) -> None:
    """Check that decoding a text stays within its memory bound.

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
    """Check that splitting a text into slices of its members or elements stays within its memory bound.

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
    """An upper bound of the decoded size, which counts structural characters inside strings too; cheap to compute."""
    if DICT_BYTES * len(raw) <= FREE_BYTES:
        return 0
    lists, dicts, commas, quotes = (raw.count(mark) for mark in (b"[", b"{", b",", b'"'))
    return Shape(commas, 0, lists, dicts, quotes // 2).decoded_bytes + NUMBER_BYTES * commas


def _outside(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """The bytes outside strings, window by window, with the number of quotation marks that open or close strings."""
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
