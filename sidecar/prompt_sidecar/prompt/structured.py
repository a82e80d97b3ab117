"""Tool results that are JSON objects: which of their values are trimmed, and what replaces them.

Usually such an object is a wrapper around texts: `{"output": "…"}`, `{"status": "ok", "report": "…"}`. Each text is
then an item of its own, and the wrapper is kept. If it wraps a single other value (`{"error": {…}}`), that value is the
item, so that its name is kept. Any other shape is one item, its whole JSON; when it is trimmed the rest is text, under
the name that the providers' guides use for a plain result. A trimmed result that is read again has as many items as
before.

Agents that parse and write their history may write the members of such an object in another order each time. So its
texts are items in the order of their names, and each keeps its number, and with it its decision.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from prompt_sidecar.prompt.items import Item, Path
from prompt_sidecar.prompt.parts import shown_json

MOST_TEXTS: Final = 16
"""Most texts of one result that are items of their own: a wrapper has a handful, a table has more."""
_RESULT: Final = "result"


def result_items(value: Any, path: Path, of: Item, field: str, *, as_sent: bool = False) -> list[Item]:
    """Return the items of a result's value; none if it is empty.

    Args:
        value: the value.
        path: its path in the message.
        of: template of the items, with call, tool and index of the result.
        field: the request field to name in an error.
        as_sent: whether texts are in the order in which they were sent (`Format.as_sent`), not in that of their names.

    Raises:
        InvalidJson: the value is nested more deeply than can be written.
    """
    if value is None or value == {}:
        return []
    if type(value) is dict and len(value) <= MOST_TEXTS and all(type(member) is str for member in value.values()):
        members = value.items() if as_sent else sorted(value.items())
        return [of._replace(path=(*path, name), text=text) for name, text in members if text]
    if type(value) is dict and len(value) == 1:
        ((name, value),) = value.items()
        path = (*path, name)
    return [of._replace(path=path, text=shown_json(value, field), raw_json=True)]


def result_value(text: str, *, whole: bool) -> bytes:
    """Return the JSON that replaces a trimmed item: a text, or for a whole value an object with that text."""
    return orjson.dumps({_RESULT: text} if whole else text)
