r"""Lists of JSON objects as tables: values that all rows share once, member names once, and a line for each row.

    [{"id": 1, "state": "ok"},          [rows of JSON: 3; in all: {"state":"ok"}; columns: ["id"]]
     {"id": 2, "state": "ok"},          1
     {"id": 3, "state": "ok"}]          2
                                        3

A cell is JSON, or `-` where a row has no such member. Every value can be read back: numbers are spelled as they were
(`1.10`, `1e5`), and a text with an object that has a name twice is left alone. A list within an object is replaced
there by `[rows 1]`, which is not JSON, and its table follows. Other JSON loses the white space between its tokens,
unless the tool is a shell: a shell may show a file, which an edit must quote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from prompt_sidecar.trim.condense.output import Output

OPENING: Final = "[rows of JSON: "
LEAST_ROWS: Final = 3
LEAST_FILLED: Final = 0.7
"""Share of the cells that must have a value. So a table is hardly larger than its list, however the names differ."""
CHARACTERS: Final = 1_048_576
"""A longer text is not decoded, as the decoded values take many times its memory."""
DEPTH: Final = 2
"""Levels of objects around a list that is made a table."""
MOST_REFUSED: Final = 8
"""Failed attempts to read JSON within a text: each may be read up to the end of the text."""
_BEGINNING: Final = re.compile(r'\n(?=[\[{]\n|\[\{")')


class _RefusedError(ValueError):
    """JSON without a single meaning."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _RefusedError
    return members


def _constant(name: str) -> Any:
    """Refuse NaN and Infinity, which Python's parser accepts and JSON does not have."""
    raise _RefusedError(name)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=orjson.Fragment, parse_float=orjson.Fragment, parse_constant=_constant
)
"""Keeps each number as it is spelled."""


def as_tables(output: Output) -> str | None:
    """Return the text with lists of three and more objects as tables: JSON, JSON lines, and JSON below other lines."""
    if len(output.text) > CHARACTERS:
        return None
    text = output.text.strip()
    try:
        if text.startswith("{") and (rows := _json_lines(text)):
            return _table(rows, ", a line each")
        if text[:1] in {"[", "{"} and (value := _whole(text)) is not None:
            compact = _json(value) if output.call is not None and not output.call.shell else None
            return _written(value) or compact
        return _below_lines(output.text)
    except (_RefusedError, RecursionError, TypeError):  # TypeError: orjson does not write lone surrogates
        return None


def _whole(text: str) -> Any:
    """Return the value of a text that is JSON as a whole, or None."""
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError:
        return None
    return value if end == len(text) else None


def _json_lines(text: str) -> list[Any]:
    """Return the objects of a text that has one on each line; empty if it is anything else."""
    lines = text.split("\n")
    if len(lines) < LEAST_ROWS or not all(line.startswith('{"') for line in lines):
        return []
    rows = [_whole(line.strip()) for line in lines]
    return [] if None in rows else rows


def _below_lines(text: str) -> str | None:
    """Return the text with tables in place of JSON that begins on a line of its own, or None."""
    shown, done, refused = list[str](), 0, 0
    for found in _BEGINNING.finditer(text):
        if found.end() < done:
            continue
        try:
            value, end = _DECODER.raw_decode(text, found.end())
        except json.JSONDecodeError:
            refused += 1
            if refused == MOST_REFUSED:
                break
            continue
        table = _written(value) if text[end : end + 1] in {"", "\n"} else None
        if table is not None:
            shown += [text[done : found.end()], table]
            done = end
    return "".join([*shown, text[done:]]) if done else None


def _written(value: Any) -> str | None:
    """Write a list as a table, or an object with its lists as tables below it. Returns None if there are none."""
    if isinstance(value, list):
        return _table(value, "")
    tables: list[str] = []
    replaced = _replaced(value, tables, DEPTH)
    return "\n".join([_json(replaced), *tables]) if tables else None


def _replaced(value: Any, tables: list[str], depth: int) -> Any:
    """Return a value in which lists of objects are replaced by names of tables, which are added to `tables`."""
    if isinstance(value, list):
        name = f"rows {len(tables) + 1}"
        table = _table(value, f" as {name}")
        if table is None:
            return value
        tables.append(table)
        return orjson.Fragment(f"[{name}]")
    if isinstance(value, dict) and depth:
        return {name: _replaced(member, tables, depth - 1) for name, member in value.items()}
    return value


def _table(rows: Sequence[Any], label: str) -> str | None:
    """Write objects as a table. Returns None if it is no shorter, or if these are not objects."""
    if len(rows) < LEAST_ROWS or not all(isinstance(row, dict) for row in rows):
        return None
    names = list(dict.fromkeys(name for row in rows for name in row))
    if sum(map(len, rows)) < LEAST_FILLED * len(names) * len(rows):
        return None
    cells = [{name: _json(value) for name, value in row.items()} for row in rows]
    same = {name for name in names if len({row.get(name) for row in cells}) == 1}
    columns = [name for name in names if name not in same]
    constants = {name: value for name, value in rows[0].items() if name in same}
    shared = f"; in all: {_json(constants)}" if constants else ""
    header = f"{OPENING}{len(rows)}{label}{shared}; columns: {_json(columns)}]"
    lines = [",".join(row.get(name, "-") for name in columns) for row in cells] if columns else []
    table = "\n".join([header, *lines])
    return table if len(table) < len(_json(rows)) else None


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
