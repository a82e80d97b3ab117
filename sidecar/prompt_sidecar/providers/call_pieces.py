"""Calls that providers' streams cut into pieces.

Calls of chat completions are pieced together by their index. Some servers give several calls one index, each with an id
of its own (github.com/ollama/ollama/issues/15457); some repeat id and name in each piece, or leave the id empty after
the first; some give each piece a new id, but the name only once. So a call ends when its index gets another id with a
name, or another name after its arguments have begun.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

CallKey: TypeAlias = tuple[int | None, int | None]
"""A call of a stream: its choice and its index. Several calls may have the same key, one after another."""
CallPlace: TypeAlias = tuple[dict[str, Any], str, str]
"""The place of a call's arguments, as text or as an object: the containing object, the member's name, the tool's name.
"""
NameOf: TypeAlias = Callable[[CallKey], str | None]
"""Returns the name of a call that has begun and not ended, or None if there is none at that key."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a call."""

    key: CallKey
    holder: dict[str, Any]
    member: str
    """The member of `holder` with the piece of the arguments."""
    more: Callable[[str], dict[str, Any]]
    """Makes an event with a further piece of the same arguments."""
    id: Any = None
    name: Any = None
    begins: bool = False
    """Whether it is the first piece of its call."""


@dataclass(frozen=True, slots=True)
class CallEvent:
    """The calls in an event of a stream."""

    pieces: list[CallPiece] = field(default_factory=list)
    ended: list[CallKey] = field(default_factory=list)
    """Calls that end with it."""
    ended_choices: list[int | None] = field(default_factory=list)
    """Choices whose calls all end."""
    whole: list[CallPlace] = field(default_factory=list)
    """Complete calls in the event."""


LONGEST_NAME: Final = 1_024
"""Characters of a tool's name after which further pieces are ignored. Names have far fewer."""


def another(piece_id: Any, piece_name: Any, known_id: str, known_name: str, *, begun: bool) -> bool:
    """Whether a piece begins another call than the one at its index.

    Args:
        piece_id: the piece's id.
        piece_name: the piece's function name; without one it continues the call.
        known_id: the id of the call at the index; empty if none was given.
        known_name: its name, as far as it was given.
        begun: whether its arguments have begun.
    """
    if not isinstance(piece_name, str) or not piece_name:
        return False
    if isinstance(piece_id, str) and piece_id and known_id and piece_id != known_id:
        return True
    differs = bool(known_name) and piece_name != known_name
    return differs and (begun or (bool(piece_id) and not known_id))
