"""What the provider counted of a run next to the estimate for the same calls."""

from __future__ import annotations

import pytest

from prompt_sidecar.facts.money import ModelPrice
from prompt_sidecar.guard.ceilings import Price
from prompt_sidecar.report.counted import counted
from prompt_sidecar.report.prices import RelativePrices
from prompt_sidecar.report.strategies import Charge, StrategyPrompt
from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt

PRICES = RelativePrices()


def test_calls_with_counts_are_added_up() -> None:
    """Others are left out, on both sides."""
    prompts = [
        RecordedPrompt([], usage=CallUsage(1_000, 0, 1_000, 10)),
        RecordedPrompt([]),
        RecordedPrompt([], usage=CallUsage(3_000, 200, 0, 20)),
    ]
    untrimmed = [StrategyPrompt(900, 0), StrategyPrompt(1_500, 900), StrategyPrompt(2_700, 1_500)]
    price = ModelPrice(Price(input=1.0, output=2.0, cached=0.5, written=4.0))
    charged = [Charge(1.0, True, 10, price=price), Charge(1.0, True, 0), Charge(0.12, True, 20, price=price)]
    found = counted(prompts, untrimmed, charged, PRICES)
    assert found is not None
    assert (2, 4_000, 200, 1_000, 30) == (found.calls, found.input, found.cached, found.written, found.output)
    assert (3_600, 1_500, 1) == (found.estimated, found.estimated_cached, found.cold)
    assert found.cost == pytest.approx(1.25 * 3_800 + 0.1 * 200)
    assert found.estimated_cost == pytest.approx(1.25 * 2_100 + 0.1 * 1_500)
    assert found.money == pytest.approx((4 * 3_800 + 0.5 * 200 + 2 * 30) / 1e6)
    assert found.estimated_money == pytest.approx((4 * 2_100 + 0.5 * 1_500 + 2 * 30) / 1e6)
    assert 0 == found.unpriced


def test_a_file_without_counts_has_none() -> None:
    """Nothing is shown then."""
    assert counted([RecordedPrompt([])], [StrategyPrompt(9, 0)], [Charge(1.0, True, 0)], PRICES) is None
