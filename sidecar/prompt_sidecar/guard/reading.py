r"""Text as a person reads it: what a terminal, a string or an address writes as codes is what it stands for.

A rule asks for a name, a sign and a value. In a log they may stand as `\"password\": \"…\"`, in an address as
`password%3D…`, on a terminal with colours in between. `read` puts in the place of each code what it stands for, as long
as the code was, so that places stay what they are. `joined` takes out what divides one string into two: a line that
goes on, two strings side by side, a soft break of quoted-printable.

Both are one pass, linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

UNSEEN: Final = "\x7f"
"""What replaces a code of a terminal."""
_CODE: Final = re.compile(
    rb"[\x1b\\%&](?:(?<=\x1b)\[[0-9;?]*[A-Za-z]"
    rb"|(?<=\\)\\*(?:(?:u001[bB]|x1[bB]|033)\[[0-9;?]*[A-Za-z]|u00(?P<unicode>[2-7][0-9A-Fa-f])|(?P<letter>[\"'nrt]))"
    rb"|(?<=%)(?P<percent>0[9AaDd]|[2-7][0-9A-Fa-f])"
    rb"|(?<=&)(?:#(?P<decimal>[0-9]{1,3})|#x(?P<hex>[0-9A-Fa-f]{1,2})|(?P<entity>quot|apos|amp|lt|gt|nbsp));)"
)
_SIGNS: Final = {sign: sign for sign in b"\"'=:,<>{}[]()| \n\r\t"} | {ord("&"): ord(" ")}
"""Characters that divide, and what replaces them: an ampersand divides members of an address, but not words."""
_LETTERS: Final = {b"n": 10, b"r": 10, b"t": 9, b'"': 34, b"'": 39}
_ENTITIES: Final = {b"quot": 34, b"apos": 39, b"amp": 38, b"lt": 60, b"gt": 62, b"nbsp": 32}
_JOINT: Final = re.compile(
    r"[\\=\"'](?:(?<=\\)\n[+-]?[ \t]*|(?<=[!-<>-~]=)\r?\n(?=[!-~])"
    r"|(?<=[\"'])[ \t]*[+.]?[ \t]*(?:\\?\n[+-]?[ \t]*(?:[+.][ \t]*)?[bfru]{0,2}|(?<=[ +.]))[\"'])"
)


def read(data: bytes) -> bytes:
    """Return the text with what its codes stand for, as long as it was; the same object if it has none."""
    return _CODE.sub(_meaning, data)


def _meaning(code: re.Match[bytes]) -> bytes:
    length = len(code[0])
    kind = code.lastgroup
    if kind is None:
        return UNSEEN.encode() * length
    stands = code[kind]
    if kind == "letter":
        sign = _LETTERS[stands]
    elif kind == "entity":
        sign = _ENTITIES[stands]
    else:
        sign = int(stands, 10 if kind == "decimal" else 16)
    sign = _SIGNS.get(sign, 0)
    if not sign:
        return code[0]
    if sign in b"\"'\t ":
        return bytes([sign]) * length
    return b" " * (length - 1) + bytes([sign])


@dataclass(frozen=True, slots=True)
class Joined:
    """A text without what divides its strings."""

    text: str
    ends: Sequence[int]
    """Where each joint was, in the text without them."""
    lengths: Sequence[int]
    """Of all joints before one, and with it."""

    def spans_joint(self, start: int, end: int) -> bool:
        """Return whether there was a joint inside a range."""
        return bisect_right(self.ends, start) < bisect_right(self.ends, end - 1)

    def place(self, at: int) -> int:
        """Return the place in the text with its joints of a character."""
        before = bisect_right(self.ends, at)
        return at + (self.lengths[before - 1] if before else 0)


def joined(text: str) -> Joined | None:
    """Return a text without its joints; None if it has none."""
    pieces: list[str] = []
    ends: list[int] = []
    lengths: list[int] = []
    at = size = gone = 0
    for joint in _JOINT.finditer(text):
        pieces.append(text[at : joint.start()])
        size += len(pieces[-1])
        gone += joint.end() - joint.start()
        at = joint.end()
        ends.append(size)
        lengths.append(gone)
    if not ends:
        return None
    return Joined("".join([*pieces, text[at:]]), ends, lengths)
