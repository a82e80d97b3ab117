r"""JSON texts whose strings are changed in place: an edit changes a range of a string's characters, no other byte.

A string is identified by its place: the number of the string literal in the text, names of members included. A walk of
the decoded value visits strings in that order, in any spelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

_LITERAL: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
"""A string of a valid JSON text, when found from left to right."""
_LITERAL_TEXT: Final = re.compile(_LITERAL.pattern.decode(), re.DOTALL)
_NAMES: Final = re.compile(rb"[ \t\r\n]*+:")
"""Follows a string that is the name of a member."""
_TOKEN: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]+", re.DOTALL
)
"""A token of a literal: an escape, which is one character, or characters that are not escaped."""


class TextEdit(NamedTuple):
    """A replacement of characters `start` to `end` of a text."""

    start: int
    end: int
    text: str


Changes = Mapping[int, Sequence[TextEdit]]
"""Edits of strings by their place; those of one string in order, without overlaps."""


def applied(text: str, edits: Sequence[TextEdit]) -> str:
    """Return a text with its edits."""
    pieces: list[str] = []
    at = 0
    for edit in edits:
        pieces += (text[at : edit.start], edit.text)
        at = edit.end
    return "".join((*pieces, text[at:]))


def changed(raw: bytes, changes: Changes) -> bytes:
    """Return JSON with edits in the strings at some places; see the module."""
    if not changes:
        return raw
    pieces: list[bytes] = []
    at = 0
    left = len(changes)
    for place, literal in enumerate(_LITERAL.finditer(raw)):
        edits = changes.get(place)
        if edits is not None:
            inside = literal[0][1:-1].decode()
            pieces += (raw[at : literal.start() + 1], applied(inside, _escaped(inside, edits)).encode())
            at = literal.end() - 1
            left -= 1
            if not left:
                break
    return b"".join((*pieces, raw[at:]))


def values_of_text(raw: bytes) -> Sequence[tuple[int, str]]:
    """Return the strings of a JSON text that are not names of members, with their places."""
    return [
        (place, orjson.loads(literal[0]))
        for place, literal in enumerate(_LITERAL.finditer(raw))
        if _NAMES.match(raw, literal.end()) is None
    ]


def nested_edits(text: str, changes: Changes) -> Sequence[TextEdit]:
    """Return edits of strings in a text that is JSON, as edits of the text."""
    found: list[TextEdit] = []
    for place, literal in enumerate(_LITERAL_TEXT.finditer(text)):
        edits = changes.get(place)
        if edits is not None:
            first = literal.start() + 1
            found += [
                TextEdit(first + edit.start, first + edit.end, edit.text) for edit in _escaped(literal[0][1:-1], edits)
            ]
    return found


def _escaped(inside: str, edits: Sequence[TextEdit]) -> Sequence[TextEdit]:
    """Return edits of a string as edits of its literal, without the quotes; the new texts are escaped."""
    place = _Offsets(inside)
    return [
        TextEdit(place.of(edit.start), place.of(edit.end), orjson.dumps(edit.text).decode()[1:-1]) for edit in edits
    ]


class _Offsets:
    """Offsets of a string's characters in its literal, requested in order."""

    def __init__(self, inside: str) -> None:
        self._tokens = _TOKEN.finditer(inside) if "\\" in inside else None
        self._from = self._to = self._at = self._end = 0

    def of(self, index: int) -> int:
        """Return the offset in the literal of the character with this index, or of the literal's end."""
        if self._tokens is None:
            return index
        while index >= self._to:
            token = next(self._tokens, None)
            if token is None:
                return self._end
            self._from, self._at, self._end = self._to, token.start(), token.end()
            self._to += 1 if token[0][0] == "\\" else len(token[0])
        return self._at + (index - self._from)
