"""The price of a prompt's tokens: relative to a plain input token, and in a currency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prompt_sidecar.facts.money import ModelPrice
from prompt_sidecar.guard.ceilings import AS_INPUT, Price
from prompt_sidecar.report.transcripts.model import CallUsage

HIGHEST: Final = 1_000_000.0
"""Highest accepted price for a million tokens, in any currency; more is a mistake."""


@dataclass(frozen=True, slots=True)
class RelativePrices:
    """Prices of a token of the prompt, in plain input tokens. The defaults: Anthropic's five-minute cache."""

    cached: float = 0.1
    written: float = 1.25

    def of(self, kept: float, rest: float) -> float:
        """Return the price of a prompt with `kept` cached and `rest` other tokens."""
        return self.cached * kept + self.written * rest


def billed(price: ModelPrice, used: CallUsage) -> float:
    """Return a call's cost by the provider's own counts; if it reports no written tokens, it wrote all the rest."""
    written = used.written or used.input - used.cached
    hour = min(written, used.written_hour)
    return price.at(used.input).of(
        plain=used.input - used.cached - written,
        cached=used.cached,
        written=written - hour,
        written_hour=hour,
        output=used.output,
    )


def read_price(text: str) -> Price:
    """Read `INPUT,CACHED,WRITTEN,OUTPUT`; cached and written may be empty, for the price of input.

    Raises:
        ValueError: the text has another form, or a price is out of bounds.
    """
    first, *between, last = text.split(",")
    if len(between) != 2:
        raise ValueError(text)
    cached, written = (_number(part) if part.strip() else AS_INPUT for part in between)
    return Price(input=_number(first), output=_number(last), cached=cached, written=written)


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value <= HIGHEST:
        raise ValueError(text)
    return value
