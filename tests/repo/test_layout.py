"""The repository keeps its own rules of layout: few things at the top, files of one idea that say it first."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = {
    ".ci",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "dashboards",
    "deploy",
    "docs",
    "protos",
    "pyproject.toml",
    "sidecar",
    "tests",
}


def sources() -> list[Path]:
    """Return the Python files that were written by hand."""
    files = [path for folder in ("sidecar", "tests", "dashboards", ".ci") for path in (ROOT / folder).rglob("*.py")]
    return [path for path in files if "_pb2" not in path.name]


def test_the_top_level_holds_only_what_has_its_place_there() -> None:
    """What git knows at the top is listed here."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a clone")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert set() == {name.split("/")[0] for name in listing.split("\0") if name} - TOP


def test_every_file_opens_with_its_idea() -> None:
    """The docstring of a module tells what it is for."""
    assert [] == [
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]


def test_scripts_of_the_repository_can_be_run() -> None:
    """The scripts that make calls are executable in a clone."""
    scripts = [path for path in (ROOT / ".ci").iterdir() if path.is_file() and not path.suffix]

    assert [] == [path.name for path in scripts if not path.stat().st_mode & 0o111]


@pytest.mark.parametrize(
    "target", ["demo", "test", "check", "bench", "evidence", "protos", "docs", "pins", "fmt", "clean"]
)
def test_make_teaches_its_targets(target: str) -> None:
    """`make` alone lists what can be done."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout

    assert f"  make {target} " in shown
