"""What reductions read: the text of a tool result, its lines, and the call that it answers.

Most results hold nothing to reduce, and finding that out has to cost next to nothing. Lines that repeat something have
the same beginning; so the first characters of lines are compared once for all reductions of lines, and only stretches
of lines with the same beginning are examined further.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Final

from prompt_sidecar.trim.condense.calls import SourceCall

HEAD: Final = 6
"""Characters by which lines are compared: no path and no prefix that is worth its header is shorter."""
_ALIKE: Final = re.compile(rb"\x01+")


@dataclass(frozen=True)
class Output:
    """A tool result's text, and the call that it answers; None if that is unknown."""

    text: str
    call: SourceCall | None = None

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends."""
        return self.text.split("\n")

    @cached_property
    def raw(self) -> bytes:
        """The UTF-8 of the lines, each with its end; for `matching`."""
        return f"{self.text}\n".encode(errors="replace")

    @cached_property
    def alike(self) -> list[tuple[int, int]]:
        """Stretches of two lines and more whose first characters are the same: the first line, and the one after."""
        heads = [line[:HEAD] for line in self.lines]
        same = bytes(map(eq, heads, heads[1:]))
        return [(found.start(), found.end() + 1) for found in _ALIKE.finditer(same) if heads[found.start()]]
