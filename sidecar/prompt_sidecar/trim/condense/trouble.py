"""Lines that speak of trouble: what stays where the rest of a long output goes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import re2

_WORDS: Final = (
    "err(?:or|no)?s?|fail(?:ed|ure|ures|s|ing)?|fatal|panic(?:ked)?|exception|traceback|warn(?:ing)?s?|denied|refused"
    "|timed? ?out|cannot|can't|could not|unable|invalid|missing|undefined|not found|unexpected|expected|received"
    "|assert[a-z]*|segfault|segmentation|killed|abort[a-z]*|conflicts?|skip(?:ped)?|xfail|todo|no space|unresolved"
)
_TROUBLE: Final[Any] = re2.compile(
    rf"(?im)\b(?:{_WORDS})\b|[✗✘×❌⚠]|\bexit(?:ed)? (?:code|status)|[a-z](?:error|exception)\b|^E  |^[ \t]*at [^ \t\n]+ ?\("
)
"""RE2, as Python's own expressions take 150 us a kB for as many words."""
_VALUE: Final = re.compile(r"[0-9]+|0x[0-9a-f]+")


def in_trouble(lines: Sequence[str]) -> list[int]:
    """The places of the lines that speak of trouble; of those that differ in numbers only, the first."""
    raw = "\n".join(lines).encode(errors="replace")
    places: list[int] = []
    line, at = 0, 0
    for found in _TROUBLE.finditer(raw):
        line += raw.count(b"\n", at, found.start())
        at = found.start()
        if not places or places[-1] != line:
            places.append(line)
    shapes: dict[str, int] = {}
    for place in places:
        shapes.setdefault(_VALUE.sub("#", lines[place]), place)
    return list(shapes.values())
