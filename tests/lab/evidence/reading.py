"""Lines that a reader derives from a condensed result, though they no longer stand in it as they were.

Condensing may show a path once for several matches, a common beginning once for several lines, or a line without its
codes of colours. The measure compares whole lines, so for it such lines are gone. Here they are read back, by the
inverse of each reduction; tables of JSON are not, as nothing tells how the JSON was laid out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prompt_sidecar.trim.condense.condensing import is_labelled
from prompt_sidecar.trim.condense.output import Output
from prompt_sidecar.trim.condense.terminal import without_codes, without_overwritten
from tests.lab.evidence.recordings import lines_of
from tests.trim.condense.reading_back import INVERSES

_IN_ORDER = ("prefix", "identical_lines", "grep")
"""The inverses, the last reduction's first."""


def read_back(text: str) -> Iterator[str]:
    """Yield the lines that a condensed result was made of, those that it shows included; none of any other text."""
    if not is_labelled(text):
        return
    text = text[: text.rfind("\n") + 1]
    for name in _IN_ORDER:
        text = INVERSES[name](text)
    yield from lines_of(text)


def on_a_terminal(line: str) -> str:
    """Return what a terminal would show of a line."""
    for reduce in (without_codes, without_overwritten):
        line = reduce(Output(line)) or line
    return line.strip()


def by_what_is_shown(ids: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the numbers of the lines with codes or overwritten text, by what a terminal would show of them."""
    found: dict[str, list[int]] = {}
    for line, number in ids.items():
        if ("\x1b" in line or "\r" in line) and (shown := on_a_terminal(line)):
            found.setdefault(shown, []).append(number)
    return found
