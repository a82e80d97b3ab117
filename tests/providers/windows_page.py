"""docs/windows.md: prose by hand, and between marks the table of known windows. Run as a program, writes it again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.providers.models import WINDOWS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "windows.md"
_BLOCK: Final = re.compile(r"(<!-- generated: windows -->\n).*?(<!-- end -->)", re.DOTALL)


def remade(page: str) -> str:
    """The page with its table as it should be."""
    table = "\n".join(_table())
    return _BLOCK.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", page)


def _table() -> Iterator[str]:
    yield "| model | tokens |"
    yield "|---|---|"
    for family, window in WINDOWS.items():
        yield f"| `{family}` | {window:,} |"
    yield f"| any other, and none | {Limits().default_window:,}, assumed (`limits.default_window`) |"


if __name__ == "__main__":
    PAGE.write_text(remade(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
