"""What docs/dashboards.md says of estimates holds on the recorded runs."""

from __future__ import annotations

import pytest

from tests.lab.counted import measure
from tests.oracle import data


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("cc-entire-cli.anthropic", 0.02),
        ("cc-entire-graph.anthropic", 0.06),
        ("codex-git-sync.openai_responses", 0.25),
    ],
)
def test_estimates_agree_with_what_providers_counted(name: str, price: float) -> None:
    """Tokens do; the price of never trimming does but for prompts that were cold; so does what trimming saves."""
    found = measure(data.need(f"runs/{name}.json.gz"))
    assert found.prompts > 150
    assert found.tokens == pytest.approx(1.0, abs=0.01)
    assert found.off < 0.02
    assert found.price == pytest.approx(1.0, abs=price)
    assert found.share_estimated == pytest.approx(found.share_reported, abs=0.05)
