"""What an owner asks, and which panel answers it, as docs/dashboards.md has it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.dashboards.tools import ROOT


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    question: str
    """Empty: that of the row above."""
    board: str
    panel: str
    read: str
    """What to read there."""


def questions() -> list[Row]:
    """Return the rows."""
    text = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    lines = text.partition("| question | board | panel | what to read |\n|---|---|---|---|\n")[2].splitlines()
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append(Row(*(cell.strip() for cell in line.strip("|").split(" | ", 3))))
    return found
