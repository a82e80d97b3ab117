"""README.md fits a screen or two, and claims nothing without a page that has the figure and a command that makes it."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_shell import check_make, commands, help_of

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
SAVES: Final = README.split("## What it saves, and what it hides\n")[1].split("\n## ")[0]
ROWS: Final = re.findall(r"(?m)^\| (?!what is done|---)(.+) \| (.+) \| (.+) \| (.*) \| (.+) \|$", SAVES)


def test_the_table_has_five_rows() -> None:
    """By cuts, by condensing, and by a ceiling."""
    assert 5 == len(ROWS)
    for word in ("cuts", "condensing", "ceiling"):
        assert any(word in row[0] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_each_figure_is_that_of_its_page(row: tuple[str, ...]) -> None:
    """The row links to the page that says how it was measured."""
    (page,) = re.findall(r"\((docs/[\w-]+\.md)\)", row[0])
    text = (ROOT / page).read_text(encoding="utf-8")
    figures = re.findall(r"\d+\.\d+|\d+ %", " ".join(row[2:4]))
    assert figures
    assert [] == [figure for figure in figures if figure not in text]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_each_row_has_its_command(row: tuple[str, ...]) -> None:
    """One that exists, with its flags."""
    (words,) = commands(row[4].strip("`"))
    if words[0] == "make":
        check_make(words[1:], {})
    else:
        assert [] == [word for word in words[2:] if word.startswith("--") and word not in help_of(words[1])]


@pytest.mark.parametrize(
    "word", ["prompt-sidecar wrap", "_BASE_URL=", "docker compose -f", "helm install", "make live"]
)
def test_each_way_to_begin_is_there(word: str) -> None:
    """One command, a base URL, Compose with its boards, Kubernetes, and a trial of one's own."""
    assert word in README


def test_the_parts_are_in_order() -> None:
    """What it is, how to begin, what it saves, what it promises, how agents connect, where to read on."""
    parts = ["Start", "What it saves, and what it hides", "What it promises", "Doors", "Read on"]
    assert parts == re.findall(r"(?m)^## (.+)$", README)
