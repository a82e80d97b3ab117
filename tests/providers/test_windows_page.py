"""docs/windows.md says what the table of known windows says."""

from __future__ import annotations

from tests.providers.windows_page import PAGE, remade


def test_the_page_is_current() -> None:
    """Else run `python -m tests.providers.windows_page`."""
    page = PAGE.read_text(encoding="utf-8")
    assert remade(page) == page
    assert "| `gpt-4o` | 128,000 |" in page
