"""The image is built from what it needs, pinned, and runs as nobody in particular."""

from __future__ import annotations

import re
from pathlib import Path

from tests.repo.test_dependencies import extras, runtime

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


def test_its_pins_are_those_that_the_tests_meet() -> None:
    """Every version that the image installs, with its marker and hashes, stands in .ci/requirements.txt."""
    met = _pins(ROOT / ".ci" / "requirements.txt")

    for name in ("server.txt", "build.txt"):
        pins = _pins(ROOT / "deploy" / "requirements" / name)
        assert pins
        assert set() == pins - met


def test_it_installs_all_that_the_server_asks_for() -> None:
    """What a requirement asks for in turn pip misses by itself, as each file must have a hash."""
    pinned = {pin.split("==")[0] for pin in _pins(ROOT / "deploy" / "requirements" / "server.txt")}

    assert set() == (set(runtime()) | set(extras("fast", "http", "store"))) - pinned


def _pins(path: Path) -> set[str]:
    """A file's requirements, each with its hashes."""
    return {pin.strip() for pin in re.split(r"(?m)^(?=[\w.-]+==)", path.read_text(encoding="utf-8")) if pin.strip()}
