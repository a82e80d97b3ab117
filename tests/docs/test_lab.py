"""docs/lab.md names every program of the lab, by the command that runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT

PAGE: Final = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
ROWS: Final = re.findall(r"(?m)^\| `([^`]+)` \| (.+) \| (.+) \|$", PAGE)
LAB: Final = ROOT / "tests" / "lab"


def commands() -> set[str]:
    """The command of each package that runs, and of each other module that has a command line: its target, if any."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {
        module: target
        for target, module in re.findall(r"(?m)^([\w-]+):.*\n(?:\t.*\n)*?\t@.* -m (tests\.lab[\w.]*)", makefile)
    }
    modules = [path for path in LAB.rglob("*.py") if path.parent.name != "harness" and is_program(path)]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in modules]
    return {f"make {targets[name]}" if name in targets else f"python -m {name}" for name in names}


def is_program(path: Path) -> bool:
    """Whether a module is run by people, not by another one: a package's, one of its own, or with a command line."""
    text = path.read_text(encoding="utf-8")
    alone = path.parent == LAB and "__main__" in text
    return path.name == "__main__.py" or alone or ' options("python' in text


def test_each_program_is_on_the_page() -> None:
    """And the page names no other."""
    assert commands() == {command for command, _, _ in ROWS}
    assert len(ROWS) == len(commands())


def test_each_row_says_how_long_it_takes() -> None:
    """In seconds or minutes, or what it depends on."""
    assert [] == [row for row in ROWS if not re.search(r"\d+ (?:s|min)\b|as long as|until", row[2])]


def test_the_lab_is_in_the_list_of_make_targets() -> None:
    """CONTRIBUTING.md lists them, and each that is on the page is among them."""
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [] == [command for command, _, _ in ROWS if command.startswith("make ") and f"`{command}" not in listed]
