"""Lines that speak of trouble: what stays where the rest of a long output goes.

Words, marks and the frames of stacks. `(!)` is how Rollup begins a warning (`title` in its `batchWarnings.ts`), and
Vite's reporter of builds too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from prompt_sidecar.trim.condense.matching import matching, of_lines

_WORDS: Final = (
    "err(?:or|no)?s?|fail(?:ed|ure|ures|s|ing)?|fatal|panic(?:ked)?|exception|traceback|warn(?:ing)?s?|denied|refused"
    "|timed? ?out|cannot|can't|could not|unable|invalid|missing|undefined|not found|unexpected|expected|received"
    "|assert[a-z]*|segfault|segmentation|killed|abort[a-z]*|conflicts?|skip(?:ped)?|xfail|todo|no space|unresolved"
)
_TROUBLE: Final[Any] = of_lines(
    rf"(?i).*(?:\b(?:{_WORDS})\b|[✗✘×❌⚠]|\(!\)|\bexit(?:ed)? (?:code|status)|[a-z](?:error|exception)\b).*"
    r"|E  .*|[ \t]*at \S+ ?\(.*"
)
_VALUE: Final = re.compile(r"[0-9](?:(?<=0)x[0-9a-f]+|[0-9]*)")
"""A number, hexadecimal too. It begins with one class of characters, for which Python's engine looks fast."""


def in_trouble(lines: Sequence[str]) -> list[int]:
    """The places of the lines that speak of trouble; of those that differ in numbers only, the first."""
    shapes: dict[str, int] = {}
    for place in matching(_TROUBLE, "\n".join([*lines, ""]).encode(errors="replace")):
        shapes.setdefault(_VALUE.sub("#", lines[place]), place)
    return list(shapes.values())
