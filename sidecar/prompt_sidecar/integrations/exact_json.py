"""JSON of answers, read and written so that every value keeps its spelling and every member is kept.

Python's library rounds fractions to 64 bits, turns too large numbers into infinity, which is not JSON, and drops all
but the last of duplicate members. If writing a number would change it, its spelling is kept in a marked string; no
provider can know the mark.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any, Final

_HALVES: Final = re.compile("[\ud800-\udfff]")
_MARK: Final = secrets.token_hex(16)
_MARKED: Final = re.compile(rf'"{_MARK}([^"]*)"')
_MOST_DIGITS: Final = 4_000
"""Digits of an integer; Python reads a few more."""


def loads(text: str | bytes) -> Any:
    """Return JSON text as JSON types. Raises ValueError, RecursionError."""
    return json.loads(text, parse_float=_fraction, parse_int=_integer, object_pairs_hook=_object)


def dumps(value: Any, *, marked: bool = False) -> str:
    """Write the result of `loads`; lone surrogates, which have no UTF-8, are escapes.

    `marked`: such numbers stay marked strings, for a reader that would reject them; its result is passed to `loads`
    again.
    """
    text = json.dumps(value, ensure_ascii=False)
    text = text if _HALVES.search(text) is None else json.dumps(value)
    return text if marked else _MARKED.sub(r"\1", text)


def _fraction(text: str) -> float | str:
    found = float(text)
    return found if repr(found) == text else _MARK + text


def _integer(text: str) -> int | str:
    return int(text) if text != "-0" and len(text) <= _MOST_DIGITS else _MARK + text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeating(pairs)


class _Repeating(dict[str, Any]):
    """An object with duplicate members. Its value for them is the last, as for other readers."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        last = {name: index for index, (name, _) in enumerate(pairs)}
        self._pairs = [(name, value, last[name] == index) for index, (name, value) in enumerate(pairs)]

    def items(self) -> Any:
        """Return all members, for writing."""
        pairs = [(name, self[name] if is_last else value) for name, value, is_last in self._pairs if name in self]
        known = {name for name, *_ in self._pairs}
        more = [(name, self[name]) for name in self if name not in known]
        return [*pairs, *more]
