"""Characters that a stream has split.

A character outside the Basic Multilingual Plane is two escapes in JSON, and a stream may be split between them. Python
keeps each half as a surrogate, which has no UTF-8.
"""

from __future__ import annotations

import re
from typing import Final

HALF: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
REPLACEMENT: Final = "\ufffd"


def paired(text: str) -> str:
    """Return a text with pairs of surrogates replaced by their character."""
    return _PAIR.sub(_character, text) if HALF.search(text) else text


def sound(text: str) -> str:
    """Return a text with U+FFFD in place of each lone surrogate."""
    return HALF.sub(REPLACEMENT, paired(text)) if HALF.search(text) else text


def escaped(text: str) -> str:
    """Return JSON text with an escape in place of each lone surrogate, as UTF-8 has none."""
    return HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", paired(text)) if HALF.search(text) else text


def has_halves(text: str) -> bool:
    """Whether JSON text may have lone surrogates, also as escapes."""
    return HALF.search(text) is not None or "\\ud" in text.lower()


def _character(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
