"""What to show of an original, and the page that shows it: frozen facts, free of wire types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines, counted from 1, both ends shown; `last` 0: to the end."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes, counted from 0, the end excluded; `end` 0: to the end."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """Lines that match an RE2 expression, with `context_lines` before and after."""

    expression: str
    context_lines: int
    ignore_case: bool


Selection = LineRange | ByteRange | PatternMatch | None
"""None: the whole original."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of an original: bytes from 0, end excluded; lines from 1, both included."""

    start_byte: int
    end_byte: int
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a selection, as RetrieveContentResponse; `content` is the bytes of `stretches`, one after another."""

    content: bytes = b""
    content_type: str = ""
    total_bytes: int = 0
    """Bytes of the whole original."""
    total_lines: int = 0
    """Lines of the whole original; a line feed at its very end begins no further line."""
    stretches: Sequence[Stretch] = ()
    more: bool = False
    next_offset: int = 0
    """The byte of the original at which the selection continues; 0 if nothing follows."""
    matching_lines: int = 0
    """For a pattern: matching lines in the whole original; else 0."""
    content_tokens: int = 0
