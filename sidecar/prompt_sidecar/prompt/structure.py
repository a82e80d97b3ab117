"""The structure of a JSON text, counted at memory speed to bound the cost of decoding before it starts.

A decoder creates an object for each value, however short: three megabytes of `[],` become a million lists that take 29
times as many bytes. It also holds the interpreter's lock until it is done. So the decoded size is first estimated from
the commas and brackets outside strings.

The text is read in windows, and only one window is copied at a time: it is split at the quotation marks that are not
escaped, so that every second piece is outside strings. This works on any bytes; the decoder detects invalid JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from prompt_sidecar.errors import TooLarge

WINDOW: Final = 131_072
"""Bytes read at once, which takes a millisecond at most; other threads can run in between."""
FEW_QUOTES: Final = 256
"""Quotation marks of a window that are examined one by one. If there are more, all escapes are removed instead, which
takes ten times as long as a search for quotation marks."""
COUNTED_AT_ONCE: Final = 1_048_576
"""Bytes in which a character is counted at once, so that other threads can run in between."""
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
MAX_MEMBERS: Final = 10_000
"""Most members of a body in addition to its messages; providers' bodies have some tens. Each takes ten microseconds,
before the call's deadline is checked."""
MEMBERS_BOUND: Final = "json.members"
SLICE_LEAST: Final = 2
"""Least bytes of an element of an array, or of a member, with its comma."""
MEMBER_LEAST: Final = 5
"""Least bytes of a member of an object: two quotation marks, a colon, a value, a comma or a bracket."""
MEMBERS_DECODED: Final = 50_000
"""Members that are decoded before they are counted, as that is cheaper: a thousand take almost a millisecond."""
_EMPTIED: Final = (b"{:}", b"{::}", b"{:::}", b"{::::}", b"[]", b"{}")
"""Small objects and arrays, reduced to their brackets and colons."""
_PAIR: Final = re.compile(rb"[\[{]:*[\]}]")
_RUN: Final = re.compile(rb"(:+)|([\[{]+)|[\]}]+")
_NO_MARKS: Final = bytes({*range(256)} - {*b"[]{}:"})
_SHRINKS: Final = 16
"""Divisor: part of a window's brackets that one search must remove for another one to be made, so that all of them take
linear time."""
_MOST_RUNS: Final = 200_000
"""Runs of brackets, or of colons, that are examined one by one: a twentieth of a second. Where objects are not nested
oddly, some hundred are left."""


class Shape(NamedTuple):
    """Counts of a text's structural characters outside strings, and of its strings."""

    commas: int = 0
    colons: int = 0
    lists: int = 0
    dicts: int = 0
    strings: int = 0
    within: tuple[range, ...] = ()
    """Ranges of bytes within one string, window by window; each range is in another string or in another part of one.
    """

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


def never() -> None:
    """Check nothing: the call cannot be cancelled."""


def shape(raw: bytes | memoryview, check: Callable[[], None] = never) -> Shape:
    """Count the structure of a JSON text; time and memory do not depend on the content.

    `check` is called now and then; what it raises ends the counting.
    """
    commas = colons = lists = dicts = quotes = 0
    within: list[range] = []
    for window, outside, marks in _outside(raw):
        check()
        if not marks and quotes % 2:
            before = within.pop() if within and within[-1].stop == window.start else window
            within.append(range(before.start, window.stop))
            continue
        commas += outside.count(b",")
        colons += outside.count(b":")
        lists += outside.count(b"[")
        dicts += outside.count(b"{")
        quotes += marks
    return Shape(commas, colons, lists, dicts, quotes // 2, tuple(within))


def check_decoding(raw: bytes | memoryview, field: str, known: Shape | None = None) -> None:
    """Check that decoding a text stays within its memory bound; `known`: its shape, if counted before.

    Raises:
        TooLarge: it would take more than three times its bytes, and more than 32 MiB; names `field`.
    """
    most = max(FREE_BYTES, FACTOR * len(raw))
    if known is None and _at_most(bytes(raw)) <= most:
        return
    taken = (known or shape(raw)).decoded_bytes
    if taken > most:
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
    if are_more(raw, b",", most // SLICE_BYTES, SLICE_LEAST):
        taken = shape(raw).elements_bytes
        if taken > most:
            raise TooLarge(
                f"{field} has {len(raw):,} bytes and so many small values that taking it apart takes about {taken:,}; "
                f"accepted: {most:,}",
                field=field,
                bound=BOUND,
            )


def check_members(raw: bytes, field: str, check: Callable[[], None] = never) -> None:
    """Check that an object has no more than `MAX_MEMBERS` members, if it may have so many that decoding it takes long.

    `check` is called now and then; what it raises ends the call.

    Raises:
        TooLarge: it has more; names `field`.
    """
    if are_more(raw, b":", MEMBERS_DECODED, MEMBER_LEAST):
        refuse_members(members_of_object(raw, field, check), field)


def refuse_members(members: int, field: str) -> None:
    """Check a number of members. Raises TooLarge if an object has more than `MAX_MEMBERS`; names `field`."""
    if members > MAX_MEMBERS:
        raise TooLarge(
            f"{field} has {members:,} members; it may have {MAX_MEMBERS:,}", field=field, bound=MEMBERS_BOUND
        )


def members_of_object(raw: bytes, field: str, check: Callable[[], None] = never) -> int:
    """Count the members of a text that is an object: its colons outside strings and inside one brace.

    Raises:
        TooLarge: that would take long; names `field`.
    """
    members = depth = runs = 0
    begun = False
    for _, outside, _ in _outside(raw):
        check()
        marks = outside.translate(None, _NO_MARKS)
        if not begun and marks:  # the outermost bracket belongs to no pair that is removed
            begun, depth, marks = True, 1, marks[1:]
        marks = _without_inner(marks)
        for run in _RUN.finditer(marks):
            runs += 1
            size = run.end() - run.start()
            if run[1] is None:
                depth += size if run[2] is not None else -size
            elif depth == 1:
                members += size
        if runs > _MOST_RUNS:
            raise TooLarge(
                f"{field} has so many brackets, one in another, that its members cannot be counted",
                field=field,
                bound=MEMBERS_BOUND,
            )
    return members


def _without_inner(marks: bytes) -> bytes:
    """Return brackets and colons without the content of inner brackets, as far as that takes linear time."""
    size = 2 * len(marks)
    while size - len(marks) > size // _SHRINKS:
        size = len(marks)
        for emptied in _EMPTIED:
            marks = marks.replace(emptied, b"")
        marks = _PAIR.sub(b"", marks)
    return marks


def _at_most(raw: bytes) -> int:
    """Return an upper bound of the decoded size, which counts structure inside strings too; cheap to compute."""
    if DICT_BYTES * len(raw) <= FREE_BYTES:
        return 0
    lists, dicts, commas, quotes = (_count(raw, mark) for mark in (b"[", b"{", b",", b'"'))
    return Shape(commas, 0, lists, dicts, quotes // 2).decoded_bytes + NUMBER_BYTES * commas


def _count(raw: bytes, mark: bytes) -> int:
    """Count a character."""
    return sum(raw.count(mark, at, at + COUNTED_AT_ONCE) for at in range(0, len(raw), COUNTED_AT_ONCE))


def are_more(raw: bytes, mark: bytes, most: int, least: int) -> bool:
    """Whether a text has more than `most` of a character, or could have, each within `least` bytes of its own.

    The rest of a text that is too short for more is not looked at.
    """
    counted = at = 0
    while counted + (len(raw) - at) // least > most:
        if at >= len(raw):
            return True
        counted += raw.count(mark, at, at + WINDOW)
        at += WINDOW
    return False


def _outside(raw: bytes | memoryview) -> Iterator[tuple[range, bytes, int]]:
    """Yield, by window, its place, the bytes outside strings, and how many quotation marks open or close strings."""
    at, inside = 0, 0
    while at < len(raw):
        begin = at
        window = bytes(raw[at : at + WINDOW])
        at += len(window)
        if b"\\" not in window:
            pieces = window.split(b'"')
        else:
            if (len(window) - len(window.rstrip(b"\\"))) % 2:  # it ends inside an escape
                window += bytes(raw[at : at + 1])
                at += 1
            if window.count(b'"') > FEW_QUOTES:
                pieces = window.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
            else:
                pieces = _split(window)
        yield range(begin, at), b"".join(pieces[inside::2]), len(pieces) - 1
        inside = (inside + len(pieces) - 1) % 2


def _split(window: bytes) -> list[bytes]:
    """Split at the quotation marks that are not escaped."""
    *before, last = window.split(b'"')
    pieces: list[bytes] = []
    since: list[bytes] = []
    for piece in before:
        since.append(piece)
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 0:
            pieces.append(b'"'.join(since))
            since = []
    since.append(last)
    pieces.append(b'"'.join(since))
    return pieces
