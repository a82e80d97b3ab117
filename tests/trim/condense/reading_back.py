"""The inverse of the reductions that can be read back: the original text, from the reduced one alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_COUNT = re.compile(r"\[the line above (\d+) times\]")
_BEGIN = re.compile(r'\[the next (\d+) lines begin with (".*")\]')
_PATH = re.compile(r"(?:[A-Za-z]:)?[^\s:]{5,300}")
_NUMBERED = re.compile(r"\d+([:-])")
_TABLE = re.compile(r"\[rows of JSON: (\d+)(?:, a line each| as rows \d+)?(?:; in all: (\{.*\}))?; columns: (\[.*\])\]")
_NAME = re.compile(r'(?<=[^\\]":)\[rows (\d+)\](?=[,}])')


def original(text: str, reductions: Sequence[str]) -> str:
    """The text that these reductions were made of, in order."""
    for name in reversed(reductions):
        text = INVERSES[name](text)
    return text


def uncounted(text: str) -> str:
    """Identical lines as many times as their count says."""
    lines: list[str] = []
    for line in text.split("\n"):
        found = _COUNT.fullmatch(line)
        lines += [lines[-1]] * (int(found[1]) - 1) if found else [line]
    return "\n".join(lines)


def prefixed(text: str) -> str:
    """Each line with what its header says that it begins with."""
    shown: list[str] = []
    left, prefix = 0, ""
    for line in text.split("\n"):
        found = _BEGIN.fullmatch(line)
        if found:
            left, prefix = int(found[1]), json.loads(found[2])
            continue
        shown.append(prefix + line if left else line)
        left = max(left - 1, 0)
    return "\n".join(shown)


def ungrouped(text: str) -> str:
    """Each line of a file with its path."""
    lines = [*text.split("\n"), "", ""]
    shown: list[str] = []
    path = ""
    for at, line in enumerate(lines[:-2]):
        if not path and is_path(line) and _NUMBERED.match(lines[at + 1]):
            path = line
            continue
        found = _NUMBERED.match(line)
        if path and not found and not (line == "--" and _NUMBERED.match(lines[at + 1])):
            path = line if is_path(line) and _NUMBERED.match(lines[at + 1]) else ""
            if path:
                continue
        shown.append(f"{path}{found[1]}{line}" if path and found else line)
    return "\n".join(shown)


def is_path(line: str) -> bool:
    """Whether a line is a path and nothing else, and no date."""
    if re.match(r"[^\w/.]?\d{2,4}[-/]\d\d[-/]\d\d", line) or _NUMBERED.match(line):
        return False
    return bool(_PATH.fullmatch(line)) and bool(re.search(r"[/\\]|\.[A-Za-z]\w{0,7}$", line))


def value_of(text: str) -> Any:
    """The JSON value that a table tells, or an object with tables below it; numbers as they are spelled."""
    head, *sections = re.split(r"\n(?=\[rows of JSON: )", text)
    if head.startswith("[rows of JSON: "):
        return _rows(head)
    tables = [_rows(section) for section in sections]
    marked = _NAME.sub(r'{"\\u0000":\1}', head)

    def member(members: dict[str, Any]) -> Any:
        return tables[int(members["\0"][1:]) - 1] if "\0" in members else members

    return json.loads(marked, parse_int=_spelled, parse_float=_spelled, object_hook=member)


def _rows(table: str) -> list[Any]:
    header, *lines = table.split("\n")
    found = _TABLE.fullmatch(header)
    assert found
    constants, columns = spelled(found[2] or "{}"), json.loads(found[3])
    assert len(lines) == (int(found[1]) if columns else 0)
    return [constants | _row(line, columns) for line in lines] if columns else [constants] * int(found[1])


def _row(line: str, columns: Sequence[str]) -> dict[str, Any]:
    decoder = json.JSONDecoder(parse_int=_spelled, parse_float=_spelled)
    row: dict[str, Any] = {}
    at = 0
    for name in columns:
        if line[at : at + 1] == "-" and line[at + 1 : at + 2] in {"", ","}:
            at += 2
            continue
        row[name], end = decoder.raw_decode(line, at)
        at = end + 1
    assert at == len(line) + 1
    return row


def _spelled(number: str) -> str:
    """A number as no string is spelled."""
    return f"\0{number}"


def spelled(text: str) -> Any:
    """A JSON value, with numbers as they are spelled."""
    return json.loads(text, parse_int=_spelled, parse_float=_spelled)


INVERSES: Mapping[str, Callable[[str], str]] = {
    "identical_lines": uncounted,
    "prefix": prefixed,
    "grep": ungrouped,
}
