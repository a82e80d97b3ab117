"""What a tool result holds, as far as reductions depend on it; decided by the call first, then by the text.

Files that were read, diffs and source stay as they are, byte for byte: an edit must quote them. So where a call may
have read a file, it is taken to have read one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from itertools import islice, pairwise
from typing import Any, Final

import re2

from prompt_sidecar.trim.condense.output import Output


class ResultKind(Enum):
    """What a result holds."""

    SOURCE = "source"
    """A file, a diff, the confirmation of an edit: only the padding before line numbers is changed."""
    PAGE = "page"
    """A page that a tool fetched."""
    OTHER = "other"


_TEST: Final[Any] = re2.compile(
    r"--- (?:PASS|FAIL): |=== RUN|[✓✔✗✕] |\((?:pass|fail)\) | (?:PASSED|FAILED)|\nFAIL\t|\nok  \t|Test Files | passed"
    r"| \.\.\. ok\n"
)
"""What programs that run tests write."""
_TIME: Final = re.compile(r"\D?\d{4}-\d\d-\d\d|.{0,40}\d\d:\d\d:\d\d")
_NUMBER: Final = re.compile(r"\s{0,8}(\d{1,7})(?:→|\t)")
_HEAD_LINES: Final = 12
"""Lines of a text that are looked at to find its kind."""
_LEAST_NUMBERED: Final = 0.6
"""Share of these lines that must begin with a number, and of the numbers that must follow the one before."""
_MOST_UNNUMBERED: Final = int((1 - _LEAST_NUMBERED) * _HEAD_LINES)
"""With more lines without a number the share cannot be reached any more."""


def kind_of(output: Output, fetch_tools: Collection[str]) -> ResultKind:
    """Return what a result holds. `fetch_tools`: names of the tools that fetch pages."""
    call = output.call
    if call is not None and call.tool in fetch_tools:
        return ResultKind.PAGE
    if (call is not None and call.reads) or "@@ -" in output.text or is_numbered(output.text):
        return ResultKind.SOURCE
    return ResultKind.OTHER


def is_run(output: Output) -> bool:
    """Whether a result is the output of tests, a build or a service."""
    call = output.call
    if call is None or not call.shell or call.searches:
        return False
    if call.runs:
        return True
    if sum(1 for _ in islice(_TEST.finditer(output.raw), 2)) > 1:
        return True
    lines = _first_lines(output.text)
    return sum(bool(_TIME.match(line)) for line in lines) > len(lines) / 2


def _first_lines(text: str) -> list[str]:
    """Return the first lines that are not blank, cut to the length that decides their kind."""
    lines = (line for line in text[:2_048].split("\n") if line and not line.isspace())
    return [line[:80] for line in islice(lines, _HEAD_LINES)]


def is_numbered(text: str) -> bool:
    """Whether most lines begin with a number and its separator, and the numbers are consecutive."""
    if "→" not in text[:1_024] and "\t" not in text[:1_024]:
        return False
    lines = _first_lines(text)
    numbers: list[int] = []
    others = 0
    for line in lines:
        found = _NUMBER.match(line)
        if found:
            numbers.append(int(found[1]))
        elif (others := others + 1) > _MOST_UNNUMBERED:
            return False
    steps = sum(after == before + 1 for before, after in pairwise(numbers))
    return len(numbers) > 2 and len(numbers) > _LEAST_NUMBERED * len(lines) and steps > _LEAST_NUMBERED * len(numbers)
