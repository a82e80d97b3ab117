"""What providers' streams cut: calls into pieces, and characters into halves.

Calls of chat completions are pieced together by their index. Some servers give several calls one index, each with an id
of its own (github.com/ollama/ollama/issues/15457); some repeat id and name in each piece, or leave the id empty after
the first; some give each piece a new id, but the name only once.

A character outside the Basic Multilingual Plane is two escapes in JSON, and a stream may be cut between them. Python
keeps each half as a surrogate, which is no text: it has no UTF-8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

_HALF: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_ESCAPES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""Of JSON text: a pair of escapes, half of one, any other escape."""
_REPLACEMENT: Final = "\ufffd"
_BEGIN, _END = "\ufdd0", "\ufdd1"
"""Noncharacters of Unicode, for use within a program: around the number of a lone surrogate while it is away."""
_AWAY: Final = re.compile(f"{_BEGIN}(?P<escaped>u?)(?P<number>[dD][89a-fA-F][0-9a-fA-F]{{2}}){_END}")
_DIGITS: Final = 9
LONGEST_NAME: Final = 1_024
"""Characters of a tool's name after which no piece is added to it. Names have far fewer."""


def another(piece_id: Any, piece_name: Any, known_id: str, known_name: str, *, begun: bool) -> bool:
    """Whether a piece begins another call than the one at its index.

    Args:
        piece_id: the piece's id.
        piece_name: the piece's name of a function; without one it goes on.
        known_id: the id of the call at the index; empty: none was given.
        known_name: its name, as far as it was given.
        begun: whether its arguments have begun.
    """
    if not isinstance(piece_name, str) or not piece_name:
        return False
    if isinstance(piece_id, str) and piece_id and known_id and piece_id != known_id:
        return True
    differs = bool(known_name) and piece_name != known_name
    return differs and (begun or (bool(piece_id) and not known_id))


def ordinal(value: Any) -> int | None:
    """Return an index, which some servers write as a string or with a fraction of zero; None: it is none."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _DIGITS else None
    if isinstance(value, float):
        return int(value) if value.is_integer() and 0 <= value < 10**_DIGITS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def paired(text: str) -> str:
    """Return a text in which surrogates that make a pair are the character."""
    return _PAIR.sub(_character, text) if _HALF.search(text) else text


def sound(text: str) -> str:
    """Return a text with U+FFFD in place of each lone surrogate."""
    return _HALF.sub(_REPLACEMENT, paired(text)) if _HALF.search(text) else text


def _character(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


@dataclass(frozen=True, slots=True)
class WithoutHalves:
    """JSON text without lone surrogates, and how to put them back."""

    text: str
    changed: bool

    @classmethod
    def of(cls, text: str) -> WithoutHalves:
        """Take the lone surrogates out of JSON text, which strict readers would refuse."""
        if _HALF.search(text) is None and "\\ud" not in text.lower():
            return cls(text, changed=False)
        text = paired(text)
        if _BEGIN in text:
            return cls(_HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text), changed=False)
        made = _ESCAPES.sub(lambda each: f"{_BEGIN}{each[0][1:]}{_END}" if each["half"] else each[0], text)
        return cls(_HALF.sub(lambda half: f"{_BEGIN}{ord(half[0]):04x}{_END}", made), changed=True)

    def back(self, text: str) -> str:
        """Return a text that was made of this one, with the halves as they were."""
        return _AWAY.sub(_half, text) if self.changed else text


def _half(away: re.Match[str]) -> str:
    return f"\\u{away['number']}" if away["escaped"] else chr(int(away["number"], 16))
