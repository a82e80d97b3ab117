"""The page of reasons has a row for each, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.untrimmed import LARGE_BYTES, Untrimmed

PAGE = (Path(__file__).parents[2] / "docs" / "untrimmed.md").read_text(encoding="utf-8")
REASONS, OFFERS = PAGE.split("## Whether recall was offered")
ROW = re.compile(r"(?m)^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|")


def test_each_reason_has_its_row() -> None:
    """In the order of the list, with whether somebody should look at it."""
    rows = [(name, look.startswith("yes")) for name, look, _ in ROW.findall(REASONS)]
    assert [(reason.value, reason.missed) for reason in Untrimmed] == rows


def test_each_offer_has_its_row() -> None:
    """In the order of the list."""
    assert [offer.value for offer in RecallOffer] == [name for name, *_ in ROW.findall(OFFERS)]


def test_the_size_of_large_requests() -> None:
    """It is the one that is counted by."""
    assert f"{LARGE_BYTES:,} bytes" in PAGE
