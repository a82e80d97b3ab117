"""The lines of an original that match a regular expression, in time linear in the original.

Theory. Expressions come from models, and so from any text that models read: they must be treated as hostile.
RE2 has no backtracking; its cost is at worst (size of the compiled expression) x (bytes searched), at 7 to 9 ns each
when its automaton does not fit its memory. So bounding the length of the expression, the memory, and that product
bounds the work. Matching is by line: `never_nl` keeps a match from crossing a line end, so that one search for each
matching line, begun where that line ended, passes over each byte once.

A search cannot be stopped, so none is long: an original is searched in pieces that end with a line, and between them
the caller may stop. A line that is too long for a piece is searched in pieces that overlap by a quarter. They see the
surrounding text, so `^`, `$` and word boundaries work as usual; only a match that is longer than the
overlap can be missed, in a line that is longer than a piece. RE2 lets other threads run meanwhile; so that the
searches of many callers do not take all processors, long pieces take turns. A search waits for its turn without its
running slot (`prompt_sidecar.slots`), else three costly expressions would keep all other calls waiting.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, Final

import re2

from prompt_sidecar import slots
from prompt_sidecar.errors import InvalidRequest
from prompt_sidecar.recall.selection import PatternMatch

MAX_EXPRESSION: Final = 1_000
"""Characters of an expression. The longest that models write for grep have nearly 300."""
MAX_CONTEXT_LINES: Final = 100
"""Lines before and after a match: with one match a page is then full."""
MAX_MEMORY: Final = 8_388_608
"""Bytes for a compiled expression and its automaton: RE2's own default. Larger expressions are rejected by RE2."""
MAX_WORK: Final = 1_073_741_824
"""Size of the compiled expression (instructions; a letter is one, `.` ten) times bytes of the original. At worst 9 ns
each, so 9 s for the most hostile pair; the ordinary expression takes 0.1 to 3 ms a MiB whatever its size."""
PIECE_WORK: Final = 16_777_216
"""Size of the compiled expression times bytes that are searched at once: at worst 0.15 s. An expression of twenty
letters gets pieces of 800 KB."""
MIN_PIECE: Final = 2_048
"""Least bytes of a piece; an expression whose compiled size would need more such pieces than allowed is rejected."""
OVERLAP: Final = 4
"""The part of a piece that the next one of the same line begins with: a quarter."""
TURN_WORK: Final = 1_048_576
"""From this work on, pieces of all callers take turns: a hundredth of a second at worst."""
MAX_MATCHING_LINES: Final = 100_000
"""Most matching lines: at 5 to 9 us each, under a second. More are not useful."""

_KINDS: Final = (
    "missing ]", "missing )", "unexpected )", "trailing \\", "no argument for repetition operator",
    "invalid repetition size", "bad repetition operator", "invalid perl operator", "invalid escape sequence",
    "invalid character class range", "invalid character class", "invalid UTF-8", "invalid named capture group",
    "duplicate capture group name", "pattern too large",
)  # fmt: skip
"""RE2's own words for errors. Only these are repeated, as the rest of its message quotes the expression."""

_FIELD: Final = "pattern.expression"
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)


_TURN: Final = Lock()
"""Held during a long piece of a search, 0.15 s at worst."""

Hold = Callable[[Lock], AbstractContextManager[object]]
"""Holds a lock that another call may hold for long; see `prompt_sidecar.slots.holding`."""


def _never() -> None:
    """Check nothing: the search cannot be cancelled."""


def matching_stretches(
    original: bytes, match: PatternMatch, check: Callable[[], None] = _never, hold: Hold = slots.holding
) -> tuple[list[tuple[int, int]], int]:
    """Return matching lines with context, as byte ranges in order that do not touch, and the number of matches.

    Raises InvalidRequest for an expression that is empty, too long, not RE2, too complex for an original of this size,
    or met by too many lines, and for a context out of its bounds. The message never quotes expression or original.
    `check` is called between the pieces of the search, and may raise. `hold` waits for the turn of a long piece.
    """
    if not 0 <= match.context_lines <= MAX_CONTEXT_LINES:
        raise InvalidRequest(
            f"pattern.context_lines is {match.context_lines}; accepted: 0 to {MAX_CONTEXT_LINES}",
            field="pattern.context_lines",
        )
    expression = _compile(match)
    most = min(MAX_WORK // max(len(original), 1), PIECE_WORK // MIN_PIECE)
    if expression.programsize > most:
        raise InvalidRequest(
            f"the expression compiles to {expression.programsize:,} instructions; accepted for an original of "
            f"{len(original):,} bytes: {most:,}; a shorter expression or one with smaller "
            "repetition counts compiles to fewer",
            field=_FIELD,
            bound="recall.pattern_work",
        )
    stretches: list[tuple[int, int]] = []
    lines = 0
    at = line = 0  # where the search continues, and the line that begins there or before
    while at < len(original):
        check()
        stop = _piece_end(original, at, PIECE_WORK // expression.programsize)
        with hold(_TURN) if expression.programsize * (stop - at) > TURN_WORK else nullcontext():
            found = expression.search(original, at, stop)
        if found is None:
            if stop == len(original) or original[stop : stop + 1] == b"\n":
                at = line = stop + 1
            else:
                at = _character_start(original, stop - (stop - at) // OVERLAP)
            continue
        lines += 1
        if lines > MAX_MATCHING_LINES:
            raise InvalidRequest(
                f"the expression matches more than {MAX_MATCHING_LINES:,} lines; accepted: one that matches fewer",
                field=_FIELD,
            )
        start = original.rfind(b"\n", line, found.start()) + 1 or line
        at = line = _line_end(original, found.start())
        _add(original, stretches, start, at, match.context_lines)
    if stretches:
        start, end = stretches[-1]
        stretches[-1] = start, _after(original, end, len(original), match.context_lines)
    return stretches, lines


def _piece_end(original: bytes, at: int, most: int) -> int:
    """Return where a piece that begins at `at` ends: after the last line that fits, else within a line."""
    if at + most >= len(original):
        return len(original) - original.endswith(b"\n")
    line = original.rfind(b"\n", at, at + most)
    return line if line >= 0 else _character_start(original, at + most)


def _character_start(original: bytes, at: int) -> int:
    """Return the byte at which the character begins that holds byte `at`."""
    while original[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _add(original: bytes, stretches: list[tuple[int, int]], start: int, end: int, context: int) -> None:
    """Add a matching line with the context before it, after extending the previous stretch by its context.

    That context ends at the latest where this line begins, so that no line is walked over twice.
    """
    floor = 0
    if stretches:
        first, last = stretches[-1]
        floor = _after(original, last, start, context)
        stretches[-1] = first, floor
    begin = start
    for _ in range(context):
        if begin <= floor:
            break
        begin = original.rfind(b"\n", floor, begin - 1) + 1 or floor
    if stretches and begin <= floor:
        stretches[-1] = stretches[-1][0], end
    else:
        stretches.append((begin, end))


def _after(original: bytes, at: int, stop: int, context: int) -> int:
    for _ in range(context):
        if at >= stop:
            break
        at = _line_end(original, at)
    return at


def _line_end(original: bytes, at: int) -> int:
    """Return the byte after the line that holds byte `at`, its line feed included."""
    return original.find(b"\n", at) + 1 or len(original)


def _compile(match: PatternMatch) -> Any:
    length = len(match.expression)
    if not 1 <= length <= MAX_EXPRESSION:
        raise InvalidRequest(
            f"the expression has {length:,} characters; accepted: 1 to {MAX_EXPRESSION:,}", field=_FIELD
        )
    if "\\C" in _ESCAPE.findall(match.expression):
        # The one thing that `never_nl` does not prevent: each search could run on to the end of the original.
        raise InvalidRequest("\\C matches any byte; accepted: whole characters, such as `.`", field=_FIELD)
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False  # RE2 would write the expression to stderr
    options.never_nl = True
    options.never_capture = True
    options.case_sensitive = not match.ignore_case
    try:
        return re2.compile("(?m)" + match.expression, options)
    except UnicodeEncodeError:
        raise InvalidRequest("the expression has a lone surrogate; accepted: Unicode text", field=_FIELD) from None
    except re2.error as error:
        raise InvalidRequest(
            f"not an RE2 expression: {_reason(error, match.expression)}; "
            "accepted: RE2 syntax, which has no look-around and no back-references",
            field=_FIELD,
        ) from None
    finally:
        # The module keeps the last 128 expressions, with up to 8 MiB each, which hostile callers could exploit.
        re2.purge()


def _reason(error: Exception, expression: str) -> str:
    """Return RE2's error and its position, without quoting the expression."""
    cause = error.args[0] if error.args else b""
    text = cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
    kind = next((kind for kind in _KINDS if text.startswith(kind)), "malformed")
    _, _, part = text.partition(": ")
    place = expression.find(part.removeprefix("(?m)")) if part else -1
    return f"{kind} at character {place + 1}" if place >= 0 else kind
