"""The UTF-8 of texts. A long one is encoded in pieces, between which other threads can run.

One character outside ASCII makes Python encode all of a text character by character, which takes 15 ms for ten
megabytes, and one emoji makes the text itself take four bytes a character. A piece without either is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Final

PIECE_CHARACTERS: Final = 262_144
"""Characters that are encoded at once: a quarter of a millisecond."""


def utf8(text: str, errors: str = "strict") -> bytes:
    """Return `text.encode(errors=errors)`. Raises UnicodeEncodeError for a lone surrogate, if `errors` is strict."""
    if len(text) <= PIECE_CHARACTERS:
        return text.encode(errors=errors)
    written = BytesIO()  # returns its buffer without a copy
    for piece in utf8_pieces(text, errors):
        written.write(piece)
    return written.getvalue()


def utf8_pieces(text: str, errors: str = "strict") -> Iterator[bytes]:
    """Yield the same bytes piece by piece."""
    for at in range(0, len(text), PIECE_CHARACTERS):
        yield text[at : at + PIECE_CHARACTERS].encode(errors=errors)


def utf8_size(text: str) -> int:
    """Return the number of UTF-8 bytes. Raises UnicodeEncodeError for a lone surrogate."""
    return len(text) if text.isascii() else sum(map(len, utf8_pieces(text)))
