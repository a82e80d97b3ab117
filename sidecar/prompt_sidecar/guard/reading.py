r"""Text as a person reads it: codes of terminals, strings and URLs are replaced by what they represent.

A rule requires a name, an operator and a value. In a log they may be written `\"password\": \"…\"`, in a URL
`password%3D…`, on a terminal with colours between them. `read` replaces each code by what it represents, at the same
length, so that offsets do not change. `joined` removes what divides one string into two: a continued line, two adjacent
strings, a soft break of quoted-printable. `written` replaces codes that may be part of a value by single characters, as
in `ghp\u005f…` and `https%3A%2F%2F…`. `cells` writes a cell below the name of a secret in a table as `name = value`.

Each is one pass, linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

UNSEEN: Final = "\x7f"
"""What replaces a code of a terminal."""
_RUN: Final = r"\\(?<!\\\\)\\*+"
"""Backslashes, all that follow each other: as many may be written as a string was encoded. From the first on, and
without giving any back, so that a long run is read once."""
_CODES: Final = (
    r"\x1b\[[0-9;?]*[A-Za-z]|"
    + _RUN
    + r"(?:(?P<letter>[\"'nrt])|u00(?P<unicode>[2-7][0-9A-Fa-f])|(?:u001[bB]|x1[bB]|033)\[[0-9;?]*[A-Za-z])"
    r"|%(?P<percent>0[9AaDd]|[2-7][0-9A-Fa-f])"
    r"|=(?:\r?\n=)?(?P<quoted>3D)(?:=\r?\n)?(?=[!-~])"
    r"|&(?:#(?P<decimal>[0-9]{1,3})|#x(?P<hex>[0-9A-Fa-f]{1,2})|(?P<entity>quot|apos|amp|lt|gt|nbsp));"
)
"""Each alternative begins with a character of its own: `re` skips to the next one that is any of these."""
_CODE: Final = re.compile(_CODES.encode())
_EACH_CODE: Final = re.compile(("(" + re.sub(r"\(\?P<[a-z]+>", "(?:", _CODES) + ")").encode())
"""The same with one group, for splitting a text at its codes."""
_WRITTEN: Final = re.compile(
    r"%(?P<percent>[2-7][0-9A-Fa-f])|"
    + _RUN
    + r"(?:u00(?P<unicode>[2-7][0-9A-Fa-f])|u\{0{0,4}(?P<braced>[2-7][0-9A-Fa-f])\}|x(?P<hex>[2-7][0-9A-Fa-f]))"
)
_HOLDS_WRITTEN: Final = re.compile(r"\\(?:u00[2-7]|u\{|x[2-7])|%3[Aa]%2[Ff]%2[Ff]|%(?:[46][1-9A-Fa-f]|[57][0-9Aa])")
"""Texts that need `written`: percent codes only in whole addresses and of letters, as others stay part of values."""
HIDDEN: Final = (
    r"[A-Za-z0-9]\\+u(?:00|\{0*)(?:5[fF]|2[b-fB-F])\}?[A-Za-z0-9]|"
    r"%3[Aa]%2[Ff]%2[Ff][^\s\"'&]*(?:hook|%40|%3[DdFf])|%(?:[46][1-9A-Fa-f]|[57][0-9Aa])[A-Za-z0-9_%.-]*%3[AaDd]"
)
"""Where a value may continue after a code that `written` reads, where an address is wholly encoded, and where a name
has codes for letters. RE2."""
_DASHES: Final = re.compile(r"[-+|: \t]+")
_NAME: Final = re.compile(r"[ \t]*[A-Za-z0-9_.-]+[ \t]*")
_CELL: Final = re.compile(r"[ \t]*[^\s|()]+[ \t]*")
"""Lines of a table as psql, mysql and Markdown write it: names, dashes, rows. A line of names and a row have bars, or
one word."""
_SIGNS: Final = {sign: sign for sign in b"\"'=:,<>{}[]()| \n\r\t"} | {ord("&"): ord(" ")}
"""Characters that separate, and their replacements: an ampersand separates parameters of a URL, but not words."""
_LETTERS: Final = {b"n": 10, b"r": 10, b"t": 9, b'"': 34, b"'": 39}
_ENTITIES: Final = {b"quot": 34, b"apos": 39, b"amp": 38, b"lt": 60, b"gt": 62, b"nbsp": 32}
_STRING_END: Final = r"(?=[ \t+.\\\n])[ \t]*(?:[+.][ \t]*)?(?:\\?\n[+-]?[ \t]*(?:[+.][ \t]*)?[bfru]{0,2}|(?<=[ +.]))"
_STRINGS: Final = "|".join(
    f"{quote}(?:"
    + "|".join(f"{quote * (count - 1)}{_STRING_END}(?:{chr(34) * count}|{chr(39) * count})" for count in (4, 2, 1))
    + ")"
    for quote in "\"'"
)
"""Between two strings side by side; `read` writes two or four quotes for one that is escaped once or twice."""
CONTINUED: Final = re.compile(
    r"(?:(?<=[!-<>-~])=\r?\n(?=[!-~])|[\s\S](?:\\\n[+-]?[ \t]*|\\{0,15}[\"'][ \t]*(?:[+.][ \t]*)?"
    r"(?:\\{0,15}(?:\n|\\n)[+-]?[ \t]*(?:[+.][ \t]*)?[bfru]{0,2}|(?<=[ +.]))\\{0,15}[\"']))"
)
"""The last character before a joint and the joint, in text that may be escaped: more than what is a joint once read."""
JOINTS: Final = frozenset("\\\"'\r\n")
"""The second character of what `CONTINUED` matches: to look at it takes a tenth of the time."""
_JOINT: Final = re.compile(r"\\\n[+-]?[ \t]*|=(?<=[!-<>-~]=)\r?\n(?=[!-~])|" + _STRINGS)


def read(data: bytes) -> bytes:
    """Return the text with each code replaced at the same length; the same object if it has none."""
    # To look for what each code has takes a tenth of the time of the expression.
    if not (b"\\" in data or b"%" in data or b"&" in data or b"3D" in data or b"\x1b" in data):
        return data
    pieces = _EACH_CODE.split(data)
    if len(pieces) == 1:
        return data
    others: dict[bytes, bytes] = {}
    pieces[1::2] = [
        _COMMON.get(code) or others.get(code) or others.setdefault(code, _meaning(code)) for code in pieces[1::2]
    ]
    return b"".join(pieces)


def _meaning(text: bytes) -> bytes:
    """Return what a code represents, at its length."""
    code = _CODE.match(text + b"!")  # a code of quoted-printable precedes a visible character
    if code is None:
        raise ValueError("not a code")
    length = len(code[0])
    kind = code.lastgroup
    if kind is None:
        return UNSEEN.encode() * length
    stands = code[kind]
    if kind == "letter":
        sign = _LETTERS[stands]
    elif kind == "entity":
        sign = _ENTITIES[stands]
    elif kind == "quoted":
        return b" " * (length - 1) + b"="
    else:
        sign = int(stands, 10 if kind == "decimal" else 16)
    sign = _SIGNS.get(sign, 0)
    if not sign:
        return code[0]
    if sign in b"\"'\t ":
        return bytes([sign]) * length
    return b" " * (length - 1) + bytes([sign])


_COMMON: Final = {
    code: _meaning(code)
    for code in (
        *(b"\\" * length + letter for length in range(1, 8) for letter in _LETTERS),
        *(b"%%%02X" % sign for sign in range(0x20, 0x80)),
        *(b"&%s;" % entity for entity in _ENTITIES),
    )
}
"""What the codes that are most frequent in texts represent."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A text without what divides its strings."""

    text: str
    ends: Sequence[int]
    """Where each joint was, as offsets in the text without joints."""
    lengths: Sequence[int]
    """Total length of all joints before one, including it."""

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the range, in the text with joints, of a range without; None if no joint was inside it."""
        if bisect_right(self.ends, start) == bisect_right(self.ends, end - 1):
            return None
        return self.place(start), self.place(end - 1) + 1

    def place(self, at: int) -> int:
        """Return the offset, in the text with joints, of a character."""
        before = bisect_right(self.ends, at)
        return at + (self.lengths[before - 1] if before else 0)


@dataclass(frozen=True, slots=True)
class Written(Joined):
    """A text with one character in place of each code; joints are the rest of each code's length."""

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the range, in the text with codes, of a range without: a code at its end is included whole."""
        return self.place(start), self.place(end)


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of a table, each as `name = value`."""

    text: str
    begins: Sequence[int]
    """Where each value begins in this text."""
    places: Sequence[int]
    """Where each value begins in the table."""

    def span(self, start: int, end: int) -> tuple[int, int] | None:
        """Return the range in the table of a range inside a value; None for others."""
        number = bisect_right(self.begins, start) - 1
        if number < 0 or "\n" in self.text[self.begins[number] : end]:
            return None
        moved = self.places[number] - self.begins[number]
        return start + moved, end + moved


def joined(text: str) -> Joined | None:
    """Return a text without its joints, or None if it has none."""
    pieces, ends, lengths = _without(text, _JOINT, lambda _: "")
    return Joined("".join(pieces), ends, lengths) if ends else None


def written(text: str) -> Written | None:
    """Return a text with one character for each code, or None if it has no codes that hide values."""
    if ("\\" not in text and "%" not in text) or _HOLDS_WRITTEN.search(text) is None:
        return None
    pieces, ends, lengths = _without(text, _WRITTEN, lambda code: chr(int(code[code.lastgroup or 0], 16)))
    return Written(read("".join(pieces).encode("utf-8", "replace")).decode(), ends, lengths) if ends else None


def cells(text: str) -> Cells | None:
    """Return the contents of tables with a line of dashes below their names, or None if there is none."""
    pieces: list[str] = []
    begins: list[int] = []
    places: list[int] = []
    size = 0
    for heading, begin, end in _tables(text):
        names = [cell.strip() for cell in heading.split("|")]
        at = begin
        for row in text[begin:end].splitlines(keepends=True):
            start = at
            for name, cell in zip(names, row.rstrip("\n").split("|"), strict=False):
                value = cell.strip()
                if name and value and " " not in value:
                    pieces.append(f"{name} = {value}\n")
                    begins.append(size + len(name) + 3)
                    places.append(start + len(cell) - len(cell.lstrip()))
                    size += len(pieces[-1])
                start += len(cell) + 1
            at += len(row)
    return Cells("".join(pieces), begins, places) if pieces else None


def _tables(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the line of names of each table, and where its rows begin and end. Lines are read twice at most."""
    done = 0
    dashes = text.find("--")
    while dashes >= 0:
        begin, end = text.rfind("\n", 0, dashes) + 1, _line_end(text, dashes)
        first = text.rfind("\n", 0, begin - 1) + 1 if begin else -1
        if first >= done and _DASHES.fullmatch(text, begin, end) is not None:
            bars = text.find("|", first, begin) >= 0
            rows = _rows_end(text, end + 1) if bars or _NAME.fullmatch(text, first, begin - 1) is not None else 0
            if rows:
                yield text[first : begin - 1], end + 1, rows
                done = rows
        dashes = text.find("--", end)


def _rows_end(text: str, begin: int) -> int:
    """Return where the rows end that begin there; 0: there are none."""
    at = begin
    while at < len(text):
        end = _line_end(text, at)
        if text.find("|", at, end) < 0 and _CELL.fullmatch(text, at, end) is None:
            break
        at = end + 1
    return min(at, len(text)) if at > begin else 0


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _without(
    text: str, codes: re.Pattern[str], stands: Callable[[re.Match[str]], str]
) -> tuple[Sequence[str], Sequence[int], Sequence[int]]:
    """Return the parts of a text with codes replaced, where the codes end in it, and how much shorter it became."""
    pieces: list[str] = []
    ends: list[int] = []
    lengths: list[int] = []
    at = size = gone = 0
    for code in codes.finditer(text):
        meaning = stands(code)
        pieces += text[at : code.start()], meaning
        size += code.start() - at + len(meaning)
        gone += code.end() - code.start() - len(meaning)
        at = code.end()
        ends.append(size)
        lengths.append(gone)
    pieces.append(text[at:])
    return pieces, ends, lengths
