"""The output of tests, of a build or of a service, if it is long: head, tail, and the lines of trouble in between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prompt_sidecar.trim.condense.kinds import is_run
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.trouble import in_trouble

LEFT_OUT: Final = " lines left out; those of them that speak of trouble:]"
END: Final = "[end of the lines that speak of trouble]"
CHARACTERS: Final = 8_192
"""What is kept of a longer output: three eighths each for head and tail, a quarter for the lines of trouble."""


def ends_and_trouble(output: Output) -> str | None:
    """Keep head, lines of trouble, and tail of a long output.

    Returns None if it is not long, or its first line alone is.
    """
    if len(output.text) <= CHARACTERS or not is_run(output):
        return None
    lines = output.lines
    head = _fitting(map(len, lines), CHARACTERS * 3 // 8)
    if not head:
        return None
    tail = len(lines) - _fitting(map(len, reversed(lines[head:])), CHARACTERS * 3 // 8)
    middle = lines[head:tail]
    trouble = [middle[place] for place in in_trouble(middle)]
    trouble = trouble[: _fitting(map(len, trouble), CHARACTERS // 4)]
    kept = [*trouble, END] if trouble else ()
    return "\n".join([*lines[:head], f"[{len(middle) - len(trouble)}{LEFT_OUT}", *kept, *lines[tail:]])


def _fitting(sizes: Iterable[int], room: int) -> int:
    """Return how many of the first lines fit."""
    count = 0
    for size in sizes:
        room -= size + 1
        if room < 0:
            break
        count += 1
    return count
