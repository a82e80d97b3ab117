"""Takes lone surrogates, which strict readers reject, out of JSON text, and puts them back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.providers.surrogates import HALF, paired

_ESCAPES: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""In JSON text: a pair of surrogate escapes, a lone one, or any other escape."""
_BEGIN, _END = "\ufdd0", "\ufdd1"
"""Noncharacters of Unicode, for use within a program: they enclose the number of a removed lone surrogate."""
_AWAY: Final = re.compile(f"{_BEGIN}(?P<escaped>u?)(?P<number>[dD][89a-fA-F][0-9a-fA-F]{{2}}){_END}")


@dataclass(frozen=True, slots=True)
class WithoutHalves:
    """JSON text without lone surrogates, and how to put them back."""

    text: str
    changed: bool

    @classmethod
    def of(cls, text: str) -> WithoutHalves:
        """Take the lone surrogates out of JSON text, which strict readers would reject."""
        if HALF.search(text) is None and "\\ud" not in text.lower():
            return cls(text, changed=False)
        text = paired(text)
        if _BEGIN in text:
            return cls(HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text), changed=False)
        made = _ESCAPES.sub(lambda each: f"{_BEGIN}{each[0][1:]}{_END}" if each["half"] else each[0], text)
        return cls(HALF.sub(lambda half: f"{_BEGIN}{ord(half[0]):04x}{_END}", made), changed=True)

    def back(self, text: str) -> str:
        """Return a text made from this one, with the lone surrogates put back."""
        return _AWAY.sub(_half, text) if self.changed else text


def _half(away: re.Match[str]) -> str:
    return f"\\u{away['number']}" if away["escaped"] else chr(int(away["number"], 16))
