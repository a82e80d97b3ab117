"""The lines of an original that match a regular expression, in time that grows with the original and never faster.

Theory. Expressions come from models, and so from whatever text the models read: they are hostile until shown otherwise.
RE2 has no backtracking; its cost is at worst (size of the compiled expression) x (bytes searched), at 7 to 9 ns each
when its automaton does not fit its memory. So bounding the length of the expression, the memory, and that product
bounds the work. Matching is by line: `never_nl` keeps a match from crossing a line end, so that one search for each
matching line, begun where that line ended, passes over each byte once.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

from sidecar.errors import InvalidRequest
from sidecar.recall.selection import PatternMatch

MAX_EXPRESSION: Final = 1_000
"""Characters of an expression. The longest that models write to grep with are near 300."""
MAX_CONTEXT_LINES: Final = 100
"""Lines before and after a match: with one match a page is then full."""
MAX_MEMORY: Final = 8_388_608
"""Bytes for a compiled expression and its automaton: RE2's own default. Larger expressions are refused by RE2."""
MAX_WORK: Final = 1_073_741_824
"""Size of the compiled expression (instructions; a letter is one, `.` ten) times bytes of the original. At worst 9 ns
each, so 9 s for the most hostile pair; the ordinary expression takes 0.1 to 3 ms a MiB whatever its size."""
MAX_MATCHING_LINES: Final = 100_000
"""Matching lines: at 5 to 9 us each, under a second. More are no answer to a question."""

_KINDS: Final = (
    "missing ]", "missing )", "unexpected )", "trailing \\", "no argument for repetition operator",
    "invalid repetition size", "bad repetition operator", "invalid perl operator", "invalid escape sequence",
    "invalid character class range", "invalid character class", "invalid UTF-8", "invalid named capture group",
    "duplicate capture group name", "pattern too large",
)  # fmt: skip
"""RE2's own words for what is wrong. Only these are repeated: the rest of its message quotes the expression."""

_FIELD: Final = "pattern.expression"
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)


def matching_stretches(original: bytes, match: PatternMatch) -> tuple[list[tuple[int, int]], int]:
    """The lines that match, with their context, as byte ranges in order, none touching the next; and how many match.

    Raises InvalidRequest for an expression that is empty, too long, not RE2, too complex for an original of this size,
    or met by too many lines, and for a context out of its bounds. The message never quotes expression or original.
    """
    if not 0 <= match.context_lines <= MAX_CONTEXT_LINES:
        raise InvalidRequest(
            f"pattern.context_lines is {match.context_lines}; accepted: 0 to {MAX_CONTEXT_LINES}",
            field="pattern.context_lines",
        )
    expression = _compile(match)
    if expression.programsize * len(original) > MAX_WORK:
        raise InvalidRequest(
            f"the expression compiles to {expression.programsize:,} instructions; accepted for an original of "
            f"{len(original):,} bytes: {MAX_WORK // len(original):,}; a shorter expression or one with smaller "
            "repetition counts compiles to fewer",
            field=_FIELD,
            bound="recall.pattern_work",
        )
    stretches: list[tuple[int, int]] = []
    lines = 0
    at = 0
    while at < len(original):
        found = expression.search(original, at)
        if found is None or (found.start() == len(original) and original.endswith(b"\n")):
            break
        lines += 1
        if lines > MAX_MATCHING_LINES:
            raise InvalidRequest(
                f"the expression matches more than {MAX_MATCHING_LINES:,} lines; accepted: one that matches fewer",
                field=_FIELD,
            )
        start = original.rfind(b"\n", at, found.start()) + 1 or at
        at = _line_end(original, found.start())
        _add(original, stretches, start, at, match.context_lines)
    if stretches:
        start, end = stretches[-1]
        stretches[-1] = start, _after(original, end, len(original), match.context_lines)
    return stretches, lines


def _add(original: bytes, stretches: list[tuple[int, int]], start: int, end: int, context: int) -> None:
    """Add a matching line with the context before it, after giving the stretch before its context after.

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
    """The byte after the line that holds byte `at`, its line feed included."""
    return original.find(b"\n", at) + 1 or len(original)


def _compile(match: PatternMatch) -> Any:
    length = len(match.expression)
    if not 1 <= length <= MAX_EXPRESSION:
        raise InvalidRequest(
            f"the expression has {length:,} characters; accepted: 1 to {MAX_EXPRESSION:,}", field=_FIELD
        )
    if "\\C" in _ESCAPE.findall(match.expression):
        # The one thing that `never_nl` does not hold back: each search could run on to the end of the original.
        raise InvalidRequest("\\C stands for any byte; accepted: whole characters, such as `.`", field=_FIELD)
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False  # RE2 would write the expression to stderr
    options.never_nl = True
    options.never_capture = True
    options.case_sensitive = not match.ignore_case
    try:
        return re2.compile("(?m)" + match.expression, options)
    except UnicodeEncodeError:
        raise InvalidRequest("the expression holds half a character; accepted: Unicode text", field=_FIELD) from None
    except re2.error as error:
        raise InvalidRequest(
            f"not an RE2 expression: {_reason(error, match.expression)}; "
            "accepted: RE2 syntax, which has no look-around and no back-references",
            field=_FIELD,
        ) from None
    finally:
        # The module keeps the last 128 expressions, with up to 8 MiB each: a gift to who sends hostile ones.
        re2.purge()


def _reason(error: Exception, expression: str) -> str:
    """What RE2 says is wrong, and at which character, without quoting the expression."""
    cause = error.args[0] if error.args else b""
    text = cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
    kind = next((kind for kind in _KINDS if text.startswith(kind)), "malformed")
    _, _, part = text.partition(": ")
    place = expression.find(part.removeprefix("(?m)")) if part else -1
    return f"{kind} at character {place + 1}" if place >= 0 else kind
