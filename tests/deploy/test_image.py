"""The image is built from what it needs, pinned, and runs as nobody in particular."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
LINES = re.findall(r"(?m)^([A-Z]+) (.+)$", TEXT)


def _sources() -> list[str]:
    """Return what is copied from the repository."""
    copies = [words.split() for keyword, words in LINES if keyword == "COPY" and not words.startswith("--from")]
    return [source for words in copies for source in words[:-1]]


def test_both_stages_stand_on_the_same_pinned_base() -> None:
    """The virtual environment's Python is at the same place in both."""
    bases = {words.split()[0] for keyword, words in LINES if keyword == "FROM"}

    assert {"python:3.12-slim-bookworm"} == bases


def test_it_does_not_run_as_root() -> None:
    """By a number, which Kubernetes can check."""
    last = TEXT.rpartition("\nFROM ")[2]

    assert re.search(r"(?m)^USER [1-9]\d*:[1-9]\d*$", last)
    assert last.index("\nUSER ") < last.index("\nENTRYPOINT ")


def test_what_is_copied_exists_and_is_let_through() -> None:
    """The ignore file shuts out all but these."""
    rules = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    let = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}

    assert [] == [source for source in _sources() if not (ROOT / source).exists()]
    assert let == set(_sources())
    assert "*" in rules


def test_the_package_finds_all_that_its_build_reads() -> None:
    """Readme and licence are named in pyproject.toml."""
    pattern = r'(?m)^(?:fragments = \[\{ path = |license-files = \[)"([^"]+)"'
    named = re.findall(pattern, (ROOT / "pyproject.toml").read_text("utf-8"))

    assert 2 == len(named)
    assert [] == [name for name in named if name not in _sources()]


def test_constraints_are_taken_from_the_pins() -> None:
    """The pattern of the Dockerfile finds every pin, and leaves hashes and markers out."""
    found = re.search(r"grep -oE '([^']+)'", TEXT)
    assert found
    pins = (ROOT / ".ci" / "requirements.txt").read_text(encoding="utf-8")
    taken = re.findall(f"(?m){found[1]}", pins)

    assert taken
    assert len(re.findall(r"(?m)^[^ #].*==", pins)) == len(taken)
    assert [] == [line for line in taken if not fnmatch(line, "*==*") or " " in line or "\\" in line]
