"""Lines that speak of trouble: these stay where the rest of a long output is removed.

Words, marks and stack frames. `(!)` begins a warning of Rollup (`title` in its `batchWarnings.ts`), and of Vite's build
reporter.
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
"""A number, hexadecimal too. It begins with one class of characters, which Python's engine finds fast."""


def in_trouble(lines: Sequence[str]) -> list[int]:
    """Return the indices of the lines that speak of trouble; of lines that differ in numbers only, the first."""
    shapes: dict[str, int] = {}
    for place in matching(_TROUBLE, "\n".join([*lines, ""]).encode(errors="replace")):
        shapes.setdefault(_VALUE.sub("#", lines[place]), place)
    return list(shapes.values())
