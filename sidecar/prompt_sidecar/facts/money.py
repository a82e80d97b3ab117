"""What model calls cost in money, by what the provider counted of them.

Costs are for people: no decision about a prompt depends on them, except ceilings on cost. A call is priced by the
tables `[prices]` of the settings, else by the catalogue's list prices of its model, in the tier for its input
(`providers/catalogue.py`). A call without a price is counted as unpriced; no price is guessed.

One process counts in one currency. The catalogue's prices are US dollars, so once `[prices]` has a table, they are used
for other models only if the settings give USD as its currency.

The amount saved by trimming is an estimate: nobody was charged for the untrimmed prompt. It is kept separately from the
cost, is never subtracted from it, and is counted only for calls that the provider has answered and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.guard.ceilings import AS_INPUT, DECIMALS, CeilingPrices, Price
from prompt_sidecar.providers import catalogue

USD: Final = "USD"
OWN_CURRENCY: Final = "own"
"""In place of a currency: that of `[prices]`, if the settings do not name one."""
OTHER_MODELS: Final = "other"
"""In place of a model: all beyond `MODELS_OF_RUN`."""
MODELS_OF_RUN: Final = 8
"""Models of one run whose costs are kept separately; a run uses one or two, and their names are from answers."""


MODELS_BOUND: Final = "run.model_costs"
"""The name of that limit."""


class Unpriced(StrEnum):
    """Why a reported call is not counted as money."""

    MODEL = "model"
    """The model has no price."""
    SERVICE_TIER = "service_tier"
    """It was served in a tier, such as priority or batch, whose prices are unknown."""
    NO_COUNT = "no_count"
    """Not all of its input tokens were reported."""
    PROMPT_UNKNOWN = "prompt_unknown"
    """The prompt is not one of its run's last ones here, so that its model and its way of counting are unknown."""


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """A model's prices. If a request's input exceeds a tier's threshold, all of it costs that tier's prices."""

    base: Price
    tiers: tuple[tuple[int, Price], ...] = ()
    """Ascending: tokens that the input must exceed, and the prices then."""

    def at(self, input_tokens: int) -> Price:
        """Return the prices of a request with this number of input tokens."""
        return next((price for above, price in reversed(self.tiers) if input_tokens > above), self.base)

    @property
    def highest(self) -> float:
        """Return the price of the most expensive token, in any tier."""
        return max(price.highest for price in (self.base, *(price for _, price in self.tiers)))


class Money:
    """Prices by model, and their currency. Thread-safe."""

    def __init__(self, own: CeilingPrices | None = None, models: Models | None = None, currency: str = "") -> None:
        """Take the tables `[prices]`, the known models (None if there are none), and the currency of the tables."""
        self.own = own or CeilingPrices({})
        self._models = models
        self.currency = (currency.upper() or OWN_CURRENCY) if self.own else USD

    def of(self, model: str) -> ModelPrice | None:
        """Return a model's prices, or None if it has none."""
        own = self.own.of(model)
        if own is not None:
            return ModelPrice(own)
        known = self._models.find(model) if self._models is not None and self.currency == USD else None
        return _listed(known.model) if known is not None else None


def _listed(model: catalogue.Model) -> ModelPrice | None:
    base = _price(model.prices)
    if base is None:
        return None
    tiers = ((tier.above, _price(tier.prices)) for tier in model.tiers)
    return ModelPrice(base, tuple((above, price) for above, price in tiers if price is not None))


def _price(prices: catalogue.ModelPrices) -> Price | None:
    """Convert the catalogue's prices; tokens without a price of their own, such as cache writes, cost as input does."""
    if prices.input is None or prices.output is None:
        return None
    cached, written = (AS_INPUT if price is None else price for price in (prices.cached, prices.written))
    return Price(input=prices.input, output=prices.output, cached=cached, written=written)


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of one model call that the provider has answered and counted."""

    model: str
    """The model that answered."""
    currency: str
    cost: float = 0.0
    """Cost of input and answer; 0 if it is unpriced."""
    unpriced: Unpriced | None = None
    returned: float = 0.0
    """The part of the cost for the input of a prompt that is compared with never trimming."""
    untrimmed: float = 0.0
    """An estimate: what the same prompt untrimmed would have cost."""


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The cost of a run's reported calls of one model."""

    model: str
    currency: str
    calls: int = 0
    cost: float = 0.0
    estimated_saved: float = 0.0
    """An estimate: the cost of the same prompts untrimmed, less their cost; negative if trimming cost more."""


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost of a run's reported calls."""

    models: Sequence[ModelCost] = ()
    """The most recently called model last."""
    unpriced: int = 0
    """Reported calls without a price, which `models` lacks."""

    @property
    def cut(self) -> bool:
        """Whether the last added call is of a model without figures of its own."""
        return bool(self.models) and self.models[-1].model == OTHER_MODELS

    def plus(self, spent: Spent) -> Spending:
        """Return the sums with one call more."""
        if spent.unpriced is not None:
            return replace(self, unpriced=self.unpriced + 1)
        one = ModelCost(spent.model, spent.currency, 1, spent.cost, spent.untrimmed - spent.returned)
        return replace(self, models=_added(self.models, one))

    def and_then(self, later: Spending) -> Spending:
        """Return the sum of both."""
        models = self.models
        for one in later.models:
            models = _added(models, one)
        return Spending(models, self.unpriced + later.unpriced)


def _added(models: Sequence[ModelCost], one: ModelCost) -> Sequence[ModelCost]:
    known = {(each.model, each.currency): each for each in models}
    if (one.model, one.currency) not in known and len(known) >= MODELS_OF_RUN:
        one = replace(one, model=OTHER_MODELS)
    key = (one.model, one.currency)
    before = known.pop(key, ModelCost(*key))
    known[key] = ModelCost(
        *key,
        before.calls + one.calls,
        round(before.cost + one.cost, DECIMALS),
        round(before.estimated_saved + one.estimated_saved, DECIMALS),
    )
    return tuple(known.values())
