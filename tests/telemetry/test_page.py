"""docs/telemetry.md says what the catalogue says."""

from __future__ import annotations

from tests.telemetry.telemetry_page import BLOCK, BLOCKS, PAGE, remade


def test_the_page_is_current() -> None:
    """Every block is there, as it would be made now."""
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(BLOCKS) == sorted(found[2] for found in BLOCK.finditer(page))
    assert page == remade(page), "run python -m tests.telemetry.telemetry_page"
