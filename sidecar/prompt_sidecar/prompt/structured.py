"""Tool results that are JSON objects: which of their values are trimmed, and what takes their place.

Mostly such an object is a wrapper around texts: `{"output": "…"}`, `{"status": "ok", "report": "…"}`. Each text is then
an item of its own, and what is around it stays. Where it wraps one other value (`{"error": {…}}`), that is the item, so
that its name goes on saying what it is. Any other shape is one item, its whole JSON; what is left of it when it is
trimmed is text, under the name that the providers' guides use for a plain result. Read again, a trimmed result has as
many items as it had before.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from prompt_sidecar.prompt.items import Item, Path
from prompt_sidecar.prompt.parts import shown_json

MOST_TEXTS: Final = 16
"""Texts of one result that are items of their own: a wrapper has a handful, what has more is a table."""
_RESULT: Final = "result"


def result_items(value: Any, path: Path, of: Item, field: str) -> list[Item]:
    """The items of a result's value; none of one that says nothing.

    Args:
        value: the value.
        path: where it stands in the message.
        of: what is said of each of the items: call, tool, number of the result.
        field: the request field to name in an error.

    Raises:
        InvalidJson: the value is nested more deeply than can be written.
    """
    if value is None or value == {}:
        return []
    if type(value) is dict and len(value) <= MOST_TEXTS and all(type(member) is str for member in value.values()):
        return [of._replace(path=(*path, name), text=text) for name, text in value.items() if text]
    if type(value) is dict and len(value) == 1:
        ((name, value),) = value.items()
        path = (*path, name)
    return [of._replace(path=path, text=shown_json(value, field), raw_json=True)]


def result_value(text: str, *, whole: bool) -> bytes:
    """The JSON that takes the place of a trimmed item: a text, or of a whole value an object around it."""
    return orjson.dumps({_RESULT: text} if whole else text)
