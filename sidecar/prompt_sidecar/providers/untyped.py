"""Reads JSON of unknown shape: anything unexpected counts as absent."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

MOST_TOKENS: Final = 100_000_000
"""The largest number of tokens that is accepted: no prompt has more, and `tokens.refusals` accepts no more."""


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, or None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def member(value: Any, *path: str) -> Any:
    """Return the value at a path of members; None if it is absent."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def sdk_member(value: Any, *path: str) -> Any:
    """Return the value at a path of members of an SDK's object or of a dict; None if it is absent."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def string(value: Any) -> str:
    """Return a string; empty for anything else."""
    return value if isinstance(value, str) else ""


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in an array; empty for anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def object_of(value: Any) -> dict[str, Any]:
    """Return an object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def within(value: Any, names: Collection[str]) -> bool:
    """Whether a value is one of these names; false if it is not a string."""
    return isinstance(value, str) and value in names


_DIGITS: Final = 9
"""Digits of an index: more than any answer needs."""


def ordinal(value: Any) -> int | None:
    """Return an index, which some servers write as a string or with a fraction of zero; None for anything else."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _DIGITS else None
    if isinstance(value, float):
        return int(value) if value.is_integer() and 0 <= value < 10**_DIGITS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(content: Any, *kinds: str) -> str:
    """Return the text of content that is a string, or an array of parts of these types."""
    if isinstance(content, str):
        return content
    return "".join(
        each["text"] for each in objects(content) if each.get("type") in kinds and isinstance(each.get("text"), str)
    )


def believed(value: Any) -> int | None:
    """Return a count of tokens; None if it is missing or implausible."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def token_count(value: Any, *path: str) -> int | None:
    """Return a count of tokens at a path of members; None if there is none."""
    return believed(member(value, *path))
