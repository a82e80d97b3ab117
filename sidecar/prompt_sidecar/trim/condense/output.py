"""What reductions read: the text of a tool result, its lines, and the call that it answers.

Most results hold nothing to reduce, and finding that out has to cost next to nothing. Lines that repeat something begin
alike; so lines are compared by their first characters once, for all reductions of lines, and only the stretches in
which neighbours begin alike are looked at any closer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any, Final

ARGUMENT_CHARACTERS: Final = 16_384
"""Characters of an argument that are looked at. A command that is longer writes a file within itself."""
HEAD: Final = 6
"""Characters by which lines are compared: no path and no prefix that is worth its header is shorter."""
_ALIKE: Final = re.compile(rb"\x01+")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, as far as it says what its result holds. The same however the agent spells its arguments."""

    tool: str
    arguments: Sequence[tuple[str, str]] = ()
    """The arguments that are strings or lists of strings, by name, in the order of their names."""

    @property
    def command(self) -> str:
        """The command that a shell was given; empty if the tool is none."""
        return next((text for name, text in self.arguments if name in _COMMANDS), "")


_COMMANDS: Final = ("command", "cmd", "script", "chars", "input", "")
"""Names of the argument that holds a command, or what is typed into one; free text has no name."""


def call_of(tool: str, arguments: str) -> Call:
    """The call of a tool with these arguments, in JSON or as free text."""
    try:
        decoded: Any = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        decoded = arguments
    if isinstance(decoded, str):
        return Call(tool, [("", decoded[:ARGUMENT_CHARACTERS])])
    if not isinstance(decoded, dict):
        return Call(tool)
    named = ((name, _text(value)) for name, value in sorted(decoded.items()))
    return Call(tool, [(name, text[:ARGUMENT_CHARACTERS]) for name, text in named if text])


def _text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return value if isinstance(value, str) else ""


@dataclass(frozen=True)
class Output:
    """A tool result's text, and the call that it answers; None: not known."""

    text: str
    call: Call | None = None

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
