"""The pages of the repository and the blocks of code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TOP: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PAGES: Final = tuple(sorted([*(ROOT / name for name in TOP), *(ROOT / "docs").rglob("*.md")]))

_BLOCK: Final = re.compile(r"(?ms)^ *```([\w-]*)\n(.*?)^ *```$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Its path in the repository."""
    line: int
    """Of its first line of code, counted from 1."""
    fence: str
    """Its language; empty if the page names none."""
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*fences: str) -> list[Block]:
    """Every block of these languages in all pages."""
    return [
        Block(page.relative_to(ROOT).as_posix(), text.count("\n", 0, found.start(2)) + 1, found[1], found[2])
        for page in PAGES
        for text in (page.read_text(encoding="utf-8"),)
        for found in _BLOCK.finditer(text)
        if found[1] in fences
    ]
