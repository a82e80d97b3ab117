"""Each row has what it is installed from, and each loop a row."""

from __future__ import annotations

import json

from tests.agents.rows import LOOPS, ROWS
from tests.agents.versions import pinned
from tests.integrations.environments import IN_CI, NPM


def test_each_row_has_pins() -> None:
    """Of each package whose version is shown; what CI runs is in an environment that CI makes."""
    for row in ROWS:
        assert set(row.packages) <= pinned(row.environment).keys(), row.name
        assert not row.in_ci or row.environment not in NPM or row.environment in IN_CI, row.name


def test_each_loop_has_a_row() -> None:
    """A program that nobody runs is found."""
    programs = {path.stem for path in LOOPS.glob("*_*.*") if path.stem != "__init__"} | {"mastra"}
    rows = (LOOPS.parent / "rows.py").read_text(encoding="utf-8")
    assert [] == sorted(name for name in programs if f'"{name}"' not in rows)


def test_no_package_is_pinned_by_address() -> None:
    """The pins hold versions and hashes, and no registry's address."""
    for name, folder in NPM.items():
        pins = json.loads((folder / "npm-shrinkwrap.json").read_text(encoding="utf-8"))["packages"]
        assert [] == [path for path, each in pins.items() if "resolved" in each], name
        assert [] == [path for path, each in pins.items() if path and "integrity" not in each], name
