"""Ceilings as numbers: prices, sums, what is over a limit, and what the note says is left."""

from __future__ import annotations

from typing import Any

import pytest

from prompt_sidecar.guard.ceilings import (
    CEILINGS,
    NOTHING,
    CeilingAction,
    CeilingKind,
    CeilingPrices,
    Ceilings,
    CeilingScope,
    CeilingUsage,
    Price,
)

PLAIN = Price(input=2.0, output=8.0)
CACHING = Price(input=2.0, output=8.0, cached=0.2, written=2.5)


@pytest.mark.parametrize(
    ("price", "expected"),
    [(PLAIN, 2.0 + 2.0 + 2.0 + 8.0), (CACHING, 2.0 + 0.2 + 2.5 + 8.0)],
)
def test_a_million_tokens_of_each_kind(price: Price, expected: float) -> None:
    """Cached and written tokens cost what plain ones do unless they have prices of their own."""
    million = 1_000_000
    assert expected == pytest.approx(price.of(plain=million, cached=million, written=million, output=million))
    assert max(price.input, price.output, price.cached, price.written) == price.highest * million


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5", 1.0),
        ("gpt-5-2026-01-01", 1.0),
        ("GPT-5", 1.0),
        ("openai/gpt-5", 1.0),
        ("gpt-5-mini-2026", 2.0),
        ("claude-x", None),
        ("", None),
    ],
)
def test_a_name_fits_models_that_begin_with_it(model: str, expected: float | None) -> None:
    """The longest name that fits is taken; a gateway's prefix and case do not matter."""
    price = CeilingPrices({"gpt-5": Price(1.0, 1.0), "GPT-5-mini": Price(2.0, 2.0)}).of(model)
    assert expected == (None if price is None else price.input)


def test_a_star_fits_all_other_models() -> None:
    """It is for models that no name fits, and for a prompt that names none."""
    prices = CeilingPrices({"*": Price(3.0, 3.0), "gpt": Price(1.0, 1.0)})
    assert [3.0, 3.0, 1.0] == [price.input for model in ("", "claude", "gpt-5") if (price := prices.of(model))]
    assert not CeilingPrices({})


def test_no_ceiling_is_set_by_default() -> None:
    """Without settings nothing is reported and nothing refused."""
    assert () == tuple(Ceilings().uses(CeilingUsage(10**9, 1e9, 10**9, 10**9), NOTHING))
    assert not Ceilings().refuse


@pytest.mark.parametrize("name", CEILINGS)
@pytest.mark.parametrize("action", CeilingAction)
def test_each_ceiling_looks_at_its_own_figure(name: str, action: CeilingAction) -> None:
    """What is used up to the limit is allowed, and only the run's or the caller's own figure counts."""
    fields: dict[str, Any] = {name: 5, f"{name}_action": action}
    ceilings = Ceilings(**fields)
    scope, _, kind = name.partition("_")

    def used(amount: int) -> tuple[CeilingUsage, CeilingUsage]:
        use = CeilingUsage(**{kind: amount})
        return (use, NOTHING) if scope == CeilingScope.RUN else (NOTHING, use)

    (at,) = ceilings.uses(*used(5))
    (above,) = ceilings.uses(*used(6))
    (other,) = ceilings.uses(*reversed(used(6)))
    assert (scope, kind, action, 5.0, 6.0) == (above.scope, above.kind, above.action, above.limit, above.used)
    assert (False, True, False) == (at.over, above.over, other.over)
    assert (False, action is CeilingAction.REFUSE) == (at.refused, above.refused)
    assert f"ceilings.{name}" in above.words


def test_uses_are_added_figure_by_figure() -> None:
    """Uses are added and subtracted figure by figure; of two totals the larger figures are taken."""
    one, other = CeilingUsage(10, 0.5, 2, 1), CeilingUsage(4, 1.0, 3, 0)
    assert CeilingUsage(14, 1.5, 5, 1) == one.plus(other)
    assert one == one.plus(other).minus(other)
    assert CeilingUsage(10, 1.0, 3, 1) == one.largest(other)


def test_the_line_for_the_note() -> None:
    """It names ceilings that warn and of which a fifth or less is left, and no other."""
    warns = Ceilings(
        run_model_calls=10,
        run_model_calls_action=CeilingAction.WARN,
        run_cost=5.0,
        run_cost_action=CeilingAction.WARN,
        caller_input_tokens=1_000_000,
        caller_input_tokens_action=CeilingAction.WARN,
        run_input_tokens=10,
        run_input_tokens_action=CeilingAction.REFUSE,
    )
    low = warns.uses(CeilingUsage(9, 3.9, 7), CeilingUsage(100_000))
    high = warns.uses(CeilingUsage(9, 4.25, 9), CeilingUsage(999_000))
    assert "" == warns.left(low)
    assert (
        "Left, this call included: 0.75 of 5 cost; 1 of 10 model calls; 1,000 of 1,000,000 input tokens for all runs "
        "together."
    ) == warns.left(high)


def test_every_kind_has_its_setting() -> None:
    """There is a limit and an action for each kind of each scope."""
    assert {f"{scope}_{kind}" for scope in CeilingScope for kind in CeilingKind} == set(CEILINGS)
    for name in CEILINGS:
        assert not getattr(Ceilings(), name)
        assert CeilingAction.OBSERVE is getattr(Ceilings(), f"{name}_action")
