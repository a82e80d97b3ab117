"""Repetitions in lines, once: identical lines in a row, and the common beginning of several lines in a row.

    b                                   b
    b                                   [the line above 3 times]
    b

    build/web: a                        [the next 4 lines begin with "build/web: "]
    build/web: b                        a
    build/web: c                        b
    build/web: d                        c
                                        d

Both can be read back.
"""

from __future__ import annotations

import json
import re
from typing import Final

from prompt_sidecar.trim.condense.output import HEAD, Output

COUNTED: Final = "[the line above "
BEGIN: Final = "[the next "
LEAST_IDENTICAL: Final = 3
"""Two identical lines are shorter than one with its count."""
LEAST_ALIKE: Final = 4
HEADER_CHARACTERS: Final = 60
"""Characters that a prefix has to save beyond its own: more than its header takes."""
PREFIX_CHARACTERS: Final = 90
_SEPARATOR: Final = re.compile(r"(?:: |\] |\t| \| | - |::)(?=\S)")


def counted(output: Output) -> str | None:
    """Replace identical lines in a row by one and their number."""
    lines, shown, done = output.lines, list[str](), 0
    for first, end in output.alike:
        at = first
        while at < end:
            after = at + 1
            while after < end and lines[after] == lines[at]:
                after += 1
            if after - at >= LEAST_IDENTICAL and not lines[at].isspace():
                shown += [*lines[done : at + 1], f"{COUNTED}{after - at} times]"]
                done = after
            at = after
    return "\n".join([*shown, *lines[done:]]) if done else None


def with_prefix_once(output: Output) -> str | None:
    """Move the common beginning of several lines in a row, up to a separator, into a header."""
    lines, shown, done = output.lines, list[str](), 0
    for first, end in output.alike:
        at = first
        while at + LEAST_ALIKE <= end:
            found = _SEPARATOR.search(lines[at], HEAD, PREFIX_CHARACTERS)
            after = at + 1
            if found:
                prefix = lines[at][: found.end()]
                while after < end and lines[after].startswith(prefix):
                    after += 1
                if _pays(after - at, len(prefix)):
                    header = f"{BEGIN}{after - at} lines begin with {json.dumps(prefix, ensure_ascii=False)}]"
                    shown += [*lines[done:at], header, *(line[len(prefix) :] for line in lines[at:after])]
                    done = after
            at = after
    return "\n".join([*shown, *lines[done:]]) if done else None


def _pays(lines: int, characters: int) -> bool:
    return lines >= LEAST_ALIKE and lines * (characters - 1) > HEADER_CHARACTERS + characters
