"""Every cell of docs/integrations.md has a test that exists, or says that it is untested and why."""

from __future__ import annotations

import ast

from tests.integrations.table import COLUMNS, PAGE, ROOT, ROWS, remade


def test_the_page_shows_the_table() -> None:
    """`python -m tests.integrations.table` was run after the table was last changed."""
    page = PAGE.read_text(encoding="utf-8")
    assert remade(page) == page


def test_every_cell_has_its_test_or_says_that_there_is_none() -> None:
    """A test that is renamed or removed is found, and so is a gap without a reason."""
    wrong = []
    for row in ROWS:
        assert len(COLUMNS) == len(row.cells), row.name
        for column, cell in zip(COLUMNS, row.cells, strict=True):
            file, _, function = cell.test.partition("::")
            if cell.word == "yes":
                tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
                names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
                if function not in names:
                    wrong.append(f"{row.name}, {column}: {cell.test} does not exist")
            elif cell.word not in ("no", "untested") or cell.test:
                wrong.append(f"{row.name}, {column}: {cell.word}")
            elif not row.note:
                wrong.append(f"{row.name}, {column}: no reason")
    assert [] == wrong
