"""A body that is not a prompt, as the guard reads it: JSON of any kind, or lines of JSON.

    body ──► its pieces: all of it, or each line ──► their strings ──► masked one by one

Its meaning is unknown, so every string is treated as text, including member names, addresses and ids. Only files in
base64 are skipped, and strings that a signature covers are only observed, as in prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.guard.parts import NewPart
from prompt_sidecar.guard.vault import OUTSIDE
from prompt_sidecar.prompt.strings import JSON, Leaf, leaves_of_any, leaves_of_body

FIELD: Final = "body"
"""The field that errors name."""
_MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which some programs write before JSON."""
_SPACE: Final = b" \t\r\n"


class BodyPiece(NamedTuple):
    """A part of a body: JSON, or what is between pieces of JSON."""

    raw: bytes
    part: NewPart | None
    """None if it is not JSON but white space or a byte order mark."""


def pieces(body: bytes, texts: Collection[str], check: Callable[[], None]) -> Iterator[BodyPiece]:
    """Split a body; its pieces joined are the body.

    Args:
        body: the body.
        texts: members whose strings are text, if the body is a prompt's; none: all strings are.
        check: called now and then; what it raises ends the call.

    Raises:
        InvalidJson: it is neither JSON nor lines of JSON.
        TooLarge: decoding it would take too much memory for its size.
    """
    mark = _MARK if body.startswith(_MARK) else b""
    rest = body[len(mark) :]
    if mark:
        yield BodyPiece(mark, None)
    try:
        whole = _part(rest, texts)
    except (InvalidJson, TooLarge) as error:
        if b"\n" not in rest.strip(_SPACE):
            raise
        fault = error
    else:
        yield BodyPiece(rest, whole)
        return
    for line in rest.splitlines(keepends=True):  # of bytes: splits at line feeds and carriage returns only
        check()
        try:
            part = _part(line, ()) if line.strip(_SPACE) else None
        except InvalidJson:
            raise fault from None
        yield BodyPiece(line, part)


def _part(raw: bytes, texts: Collection[str]) -> NewPart:
    leaves: list[Leaf] = [*(leaves_of_body(raw, FIELD, texts) if texts else leaves_of_any(raw, FIELD))]
    return NewPart(OUTSIDE, "", FIELD, raw, leaves, JSON)
