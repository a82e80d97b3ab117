"""The provider's counts of a run, next to the estimates for the same calls.

The provider's counts are the run's real bill. The estimate for the same calls uses the first call's count for the head
that the file lacks (`head.py`), and the sidecar's own counts for everything else, and assumes that everything that
could have been cached was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from prompt_sidecar.report.figures import ProviderCounts
from prompt_sidecar.report.prices import RelativePrices, billed
from prompt_sidecar.report.strategies import Charge, StrategyPrompt
from prompt_sidecar.report.transcripts.model import RecordedPrompt

COLD: Final = 0.8
"""A call found the cache cold if less than this part of the cacheable tokens was cached; block sizes explain the rest.
"""


def counted(
    prompts: Sequence[RecordedPrompt],
    untrimmed: Sequence[StrategyPrompt],
    charged: Sequence[Charge],
    prices: RelativePrices,
) -> ProviderCounts | None:
    """Sum up the provider's counts; None if the file has none."""
    reported = [
        (prompt.usage, sent, charge)
        for prompt, sent, charge in zip(prompts, untrimmed, charged, strict=True)
        if prompt.usage is not None
    ]
    if not reported:
        return None
    bills = [billed(charge.price, used) for used, _, charge in reported if charge.price is not None]
    return ProviderCounts(
        calls=len(reported),
        input=sum(used.input for used, _, _ in reported),
        cached=sum(used.cached for used, _, _ in reported),
        written=sum(used.written for used, _, _ in reported),
        output=sum(used.output for used, _, _ in reported),
        estimated=sum(sent.tokens for _, sent, _ in reported),
        estimated_cached=sum(sent.kept for _, sent, _ in reported),
        cold=sum(charge.warmth < COLD for _, _, charge in reported),
        cost=sum(prices.of(used.cached, used.input - used.cached) for used, _, _ in reported),
        estimated_cost=sum(prices.of(sent.kept, sent.tokens - sent.kept) for _, sent, _ in reported),
        money=sum(bills) if bills else None,
        estimated_money=sum(_plain(charge).bill(sent) for _, sent, charge in reported) if bills else None,
        unpriced=len(reported) - len(bills),
    )


def _plain(charge: Charge) -> Charge:
    """Return the call as if its cache had everything that it could have had, and nothing more."""
    return replace(charge, warmth=1.0, found=0.0)
