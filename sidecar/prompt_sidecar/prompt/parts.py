"""Helpers for readers and writers of several formats: text in place of a part, and JSON as text for a model."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.items import Item
from prompt_sidecar.prompt.jsontext import MAX_DEPTH, ValuesByPath
from prompt_sidecar.prompt.utf8 import utf8
from prompt_sidecar.providers.messages import CACHE_MARKS

_STAYS: Final = (*CACHE_MARKS, "providerOptions", "annotations", "_meta")
"""Members that do not describe a part's content: they are kept when it becomes a text."""
_WHOLE_FROM: Final = -(2.0**63)
_WHOLE_TO: Final = 2.0**64
"""Between minus this and this, numbers without a decimal point are decoded as integers, so all integral numbers are
written as such."""
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def without_mark(part: Any) -> Any:
    """Return a part without cache marks, which move between calls."""
    return {name: member for name, member in part.items() if name not in CACHE_MARKS} if type(part) is dict else part


def text_in_place(part: bytes, text: str, kind: str = "text") -> bytes:
    """Return a text part of this type in place of another, such as an image, with its cache mark and annotations."""
    members: dict[str, Any] = {"type": kind, "text": text}
    members |= {name: value for name, value in _raw_object.decode(part).items() if name in _STAYS}
    return msgspec.json.encode(members)


def originals_at(raw: bytes, items: Iterable[Item]) -> list[bytes]:
    """Return the originals of items of a message: the raw JSON at their paths, or their texts."""
    values = ValuesByPath(raw)
    return [values.at(item.path) if item.raw_json or item.spelled else utf8(item.text) for item in items]


def shown_json(value: Any, field: str) -> str:
    """Return JSON as text for elision, which shows head and tail: sorted, compact, independent of the encoding.

    Unlike `canonical`, which is compared and never shown, it writes integers without a decimal point and with all
    digits. (If such a number is not a double, an agent in JavaScript that re-encodes it has changed its digits.)

    Raises:
        InvalidJson: nested more deeply than can be written; names `field`.
    """
    try:
        return orjson.dumps(_whole(value), option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, RecursionError):
        raise InvalidJson(f"{field} is nested more than {MAX_DEPTH} levels deep", field=field) from None


def _whole(value: Any) -> Any:
    kind = type(value)
    if kind is float and value.is_integer() and _WHOLE_FROM <= value < _WHOLE_TO:
        return int(Decimal(repr(value)))  # its shortest digits, as its exact value may have others
    if kind is dict:
        return {key: _whole(member) for key, member in value.items()}
    if kind is list:
        return [_whole(member) for member in value]
    return value


def string(value: Any) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if type(value) is str else ""
