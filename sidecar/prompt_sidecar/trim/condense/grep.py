"""What grep found, with each path once, as `rg --heading` shows it.

    src/a.go:1:x                        src/a.go
    src/a.go-2-y                        1:x
    src/b.go:3:z                        2-y
                                        src/b.go:3:z

It can be read back: a path on its own before a line with a number begins a group, and lines with a number continue it,
as do lines of `--` between them. So nothing is grouped if the text itself has a line that would be read as one of
these. Context lines (`path-2-y`) belong to a path only if their number continues from a match, as `-2024-` may be part
of a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from prompt_sidecar.trim.condense.output import Output

LEAST_LINES: Final = 2
_LOOKED_AT: Final = 6
"""Lines at the start of a stretch among which there must be a match; before it grep shows some lines of context."""
NUMBER_DIGITS: Final = 7
_PATH: Final = re.compile(r"(?:[A-Za-z]:)?[^\s:]{5,300}")
_SUFFIX: Final = re.compile(r"\.[A-Za-z]\w{0,7}$")
_DATE: Final = re.compile(r"[^\w/.]?\d{2,4}[-/]\d\d[-/]\d\d")
_NUMBERED: Final = re.compile(r"\d+[:-]")
_BETWEEN: Final = "--"


_GrepLine = tuple[str, int]
"""The path and the line number that grep shows on a line. A plain tuple: one is made for each line."""


def grouped(output: Output) -> str | None:
    """Group two and more consecutive lines of a path below the path.

    Returns None if nothing can be grouped reversibly.
    """
    lines = output.lines
    is_path: dict[str, bool] = {}
    if not any(_match(line, is_path) for at, end in output.alike for line in lines[at : min(end, at + _LOOKED_AT)]):
        return None
    paths = [each[0] if each else "" for each in _found(lines, is_path)]
    groups = list(_groups(lines, paths))
    if not groups or _misread(lines, groups):
        return None
    shown, done = list[str](), 0
    for at, end in groups:
        path = paths[at]
        members = (line if line == _BETWEEN else line[len(path) + 1 :] for line in lines[at:end])
        shown += [*lines[done:at], path, *members]
        done = end
    return "\n".join([*shown, *lines[done:]])


def _found(lines: Sequence[str], is_path: dict[str, bool]) -> list[_GrepLine | None]:
    """Return the file and line number of each line, or None: matches first, then context outward from the matches."""
    found: list[_GrepLine | None] = []
    match: _GrepLine | None = None
    begins, colon = "", 0
    for line in lines:
        # Most lines belong to the file of the line before.
        if match is None or not line.startswith(begins):
            match = _match(line, is_path)
            if match is not None:
                begins, colon = f"{match[0]}:", len(match[0])
        else:
            number = _number(line, colon)
            match = (match[0], number) if number is not None else None
        found.append(match)
    others = [at for at, each in enumerate(found) if each is None]
    for order, step in ((others, 1), (reversed(others), -1)):
        for at in order:
            near = found[at - step] if 0 <= at - step < len(found) else None
            if near is None or found[at] is not None:
                continue
            path, number = near[0], near[1] + step
            if number > 0 and lines[at].startswith(f"{path}-{number}-"):
                found[at] = path, number
    return found


def _match(line: str, is_path: dict[str, bool]) -> _GrepLine | None:
    """Return the file and the number at the start of a line. Without an expression, which takes three times as long."""
    colon = line.find(":", 2 if line[1:3] == ":\\" else 0)
    if colon < 0:
        return None
    number = _number(line, colon)
    if number is None:
        return None
    path = line[:colon]
    if path not in is_path:
        is_path[path] = _is_path(path)
    return (path, number) if is_path[path] else None


def _number(line: str, colon: int) -> int | None:
    """Return the number between two colons, or None if there is none."""
    second = line.find(":", colon + 1, colon + NUMBER_DIGITS + 2)
    number = line[colon + 1 : second]
    return int(number) if second >= 0 and number.isdecimal() else None


def _is_path(text: str) -> bool:
    if not _PATH.fullmatch(text) or _DATE.match(text) or _NUMBERED.match(text):
        return False
    return "/" in text or "\\" in text or bool(_SUFFIX.search(text))


def _groups(lines: Sequence[str], paths: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Yield the first line of each group, and the one after its last.

    `paths`: each line's path, empty where it has none.
    """
    at = 0
    while at < len(lines):
        path, end = paths[at], at + 1
        while path:
            if end < len(lines) and paths[end] == path:
                end += 1
            elif end + 1 < len(lines) and lines[end] == _BETWEEN and paths[end + 1] == path:
                end += 2
            else:
                break
        if end - at >= LEAST_LINES:
            yield at, end
        at = end


def _misread(lines: Sequence[str], groups: Iterable[tuple[int, int]]) -> bool:
    """Whether a line outside all groups would be read as one within, or as the path of one."""
    done = 0
    for at, end in (*groups, (len(lines), len(lines))):
        behind = done + 1 if done < at and lines[done] == _BETWEEN else done
        if done and behind < at and _NUMBERED.match(lines[behind]):
            return True
        if any(_NUMBERED.match(lines[place + 1]) and _is_path(lines[place]) for place in range(done, at - 1)):
            return True
        done = end
    return False
