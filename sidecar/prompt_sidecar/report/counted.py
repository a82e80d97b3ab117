"""What the provider counted of a run, next to what was estimated for the same calls.

A file holds less than was sent where it lacks the system prompt or the tools, so its counts are not put in the place of
estimates, which strategies would then no longer share. They show what the run really cost, and how much of its
prompts the provider had cached of what it could have had: by that part every strategy is charged (`strategies.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prompt_sidecar.guard.ceilings import Price
from prompt_sidecar.report.figures import Counted
from prompt_sidecar.report.prices import RelativePrices, billed
from prompt_sidecar.report.strategies import Charge, Sent
from prompt_sidecar.report.transcripts.model import Prompt

COLD: Final = 0.8
"""A call found the cache cold if less than this part of what could have been cached was; blocks explain the rest."""


def counted(
    prompts: Sequence[Prompt],
    untrimmed: Sequence[Sent],
    charged: Sequence[Charge],
    prices: RelativePrices,
    money: Price | None,
) -> Counted | None:
    """Add up what the provider counted; None: the file has no counts."""
    reported = [
        (prompt.usage, sent, charge)
        for prompt, sent, charge in zip(prompts, untrimmed, charged, strict=True)
        if prompt.usage is not None
    ]
    if not reported:
        return None
    return Counted(
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
        money=sum(billed(money, used) for used, _, _ in reported) if money else None,
    )
