"""What readers and writers of several formats share: text in place of a part, and JSON as a model is shown it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.jsontext import MAX_DEPTH

_STAYS: Final = ("cache_control", "providerOptions", "annotations", "_meta")
"""Members that say nothing of what a part holds: they stay when it becomes a text."""
_WHOLE_FROM: Final = -(2.0**63)
_WHOLE_TO: Final = 2.0**64
"""Between these, a number that is spelled without a point is decoded as whole, so all that are whole are written so."""
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def text_in_place(part: bytes, text: str) -> bytes:
    """A text part in place of another, such as an image, with what that says of caching and its audience."""
    members: dict[str, Any] = {"type": "text", "text": text}
    members |= {name: value for name, value in _raw_object.decode(part).items() if name in _STAYS}
    return msgspec.json.encode(members)


def shown_json(value: Any, field: str) -> str:
    """JSON as its head and tail are shown when it is elided: sorted, compact, and the same for every spelling.

    Unlike `canonical`, which is compared and never shown, it writes whole numbers without a point, and all digits of a
    long one. (Where such a one is no double, an agent in JavaScript that respells it has changed its digits.)

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
        return int(Decimal(repr(value)))  # the digits that it is spelled with, as its value may have others
    if kind is dict:
        return {key: _whole(member) for key, member in value.items()}
    if kind is list:
        return [_whole(member) for member in value]
    return value


def string(value: Any) -> str:
    """A member that should be a string; empty if it is anything else."""
    return value if type(value) is str else ""
