"""A test's name says what fails: whoever reads a summary has nothing else."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ONE_WORD = re.compile(r"^\s*(?:async )?def (test_[a-z0-9]+)\(", re.MULTILINE)


def test_no_test_is_named_by_one_word() -> None:
    """`test_refused` says neither what is refused nor why."""
    found = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        if path.name != "test_independence.py"  # whose tests of one word are in a file that it writes
        for name in ONE_WORD.findall(path.read_text(encoding="utf-8"))
    ]
    assert [] == found
