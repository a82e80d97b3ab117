"""What strategies cost: the cache that each would have had, refusals, and money."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.money import ModelPrice, Money
from prompt_sidecar.guard.ceilings import Price
from prompt_sidecar.report.prices import RelativePrices, billed, read_price
from prompt_sidecar.report.sizes import Step
from prompt_sidecar.report.strategies import Charge, StrategyPrompt, charges, control, cost, never
from prompt_sidecar.report.transcripts.model import CallUsage, RecordedPrompt
from tests.oracle.baselines import Control, Sized, kept_prefix

WARM = Charge(warmth=1.0, accepted=True, output=0)


def _steps(opening: list[int], groups: list[list[int]], head: int = 0) -> list[Step]:
    """The prompts of a run whose history is `opening` and then groups, each begun by an answer."""
    messages = list(opening)
    opens: list[int] = []
    made: list[Step] = []
    for group in [*groups, []]:
        made.append(
            Step(
                before=head + sum(messages),
                head=head,
                messages=tuple(messages),
                opens=tuple(opens),
                common=len(made[-1].messages) if made else 0,
                same_head=bool(made),
                output=0,
            )
        )
        opens.append(len(messages))
        messages += group
    return made


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(1, 80), min_size=1, max_size=3), max_size=25),
    st.integers(20, 400),
)
def test_the_control_is_the_oracles(opening: list[int], groups: list[list[int]], limit: int) -> None:
    """Its sizes and kept prefixes are those of the plain control that the other programs measure against."""
    oracle = Control(limit)
    last: list[tuple[bytes, int]] = []
    for step, sent in zip(steps := _steps(opening, groups), control(steps, limit), strict=True):
        entries = [
            Sized((str(place).encode(), tokens), place in step.opens) for place, tokens in enumerate(step.messages)
        ]
        prompt = oracle.prompt(entries)
        assert sum(tokens for _, tokens in prompt) == sent.tokens
        assert sum(tokens for _, tokens in prompt[: kept_prefix(last, prompt)]) == sent.kept
        last = prompt


def test_never_trimming_pays_again_where_the_agent_changed_its_history() -> None:
    """What the prompt before began with as well is cached, and no more."""
    first, second, third = _steps([10], [[5, 5], [5, 5]], head=100)
    rewritten = Step(third.before, third.head, third.messages, third.opens, common=1, same_head=True, output=0)
    assert [StrategyPrompt(110, 0), StrategyPrompt(120, 110), StrategyPrompt(130, 120)] == never([first, second, third])
    assert StrategyPrompt(130, 110, cut=True) == never([first, second, rewritten])[-1]


def test_prompts_past_the_window_are_refused_and_no_saving() -> None:
    """They cost nothing untrimmed, and nothing is compared on them."""
    steps = _steps([10], [[10], [10]])
    charged = charges([RecordedPrompt([])] * 3, steps, window=25)
    untrimmed = cost(never(steps), charged, RelativePrices(0, 1), (0, 25))
    trimmed = cost([StrategyPrompt(10, 0)] * 3, charged, RelativePrices(0, 1), (0, 25))
    assert (1, 20.0) == (untrimmed.refused, untrimmed.cost)
    assert (30.0, 20.0) == (trimmed.cost, trimmed.comparable_cost)
    assert 1.0 == trimmed.share_of(untrimmed)


def test_a_cache_that_had_expired_is_charged_to_every_strategy() -> None:
    """The provider had half of what could have been cached."""
    steps = _steps([100], [[0]])
    prompts = [RecordedPrompt([]), RecordedPrompt([], usage=CallUsage(input=200, cached=100))]
    charged = charges(prompts, steps, window=0)
    assert [1.0, 0.5] == [one.warmth for one in charged]
    paid = cost(never(steps), charged, RelativePrices(0, 1), (0, 0))
    assert 100 + 50 == paid.cost


def test_money_has_four_prices() -> None:
    """Cached, written and output tokens, and plain input where the provider reports what it wrote."""
    price = Price(input=2, output=10, cached=1, written=3)
    listed = ModelPrice(price, ((1_000, Price(input=4, output=15, cached=2, written=6)),))
    assert pytest.approx((1 * 100 + 3 * 30 + 2 * 20 + 10 * 7) / 1e6) == billed(listed, CallUsage(150, 100, 30, 7))
    assert pytest.approx((1 * 100 + 3 * 10 + 4 * 20 + 2 * 20 + 10 * 7) / 1e6) == billed(
        listed, CallUsage(150, 100, 30, 7, written_hour=20)
    )
    assert pytest.approx((2 * 600 + 6 * 401 + 15 * 7) / 1e6) == billed(listed, CallUsage(1_001, 600, 0, 7))
    spent = cost(
        [StrategyPrompt(150, 100)], [Charge(1.0, accepted=True, output=7, price=listed)], RelativePrices(), (0, 0)
    )
    assert spent.money == pytest.approx((1 * 100 + 3 * 50 + 10 * 7) / 1e6)
    assert cost([StrategyPrompt(1, 0)], [WARM], RelativePrices(), (0, 0)).money is None


def test_what_the_provider_counted_is_what_never_trimming_costs() -> None:
    """More in the cache than could be expected, as of another run; written tokens; each model's own price."""
    step = _steps([100], [[0]])
    prompts = [
        RecordedPrompt([], model="gpt-5.4", usage=CallUsage(100, 40, 30, 5)),
        RecordedPrompt([], model="unknown"),
    ]
    charged = charges(prompts, step, 0, Money(None, Models()))
    assert (0.4, 0.5, None) == (charged[0].found, charged[0].written, charged[1].price)
    paid = cost(never(step), charged, RelativePrices(), (0, 0))
    assert paid.money == pytest.approx((60 * 2.5 + 40 * 0.25) / 1e6)


def test_prices_are_read_and_bounded() -> None:
    """Empty ones are that of input."""
    assert Price(input=3, output=15, cached=0.3, written=3.75) == read_price("3,0.3,3.75,15")
    assert Price(input=3, output=15) == read_price("3,,,15")
    for wrong in ("", "1", "1,2,3", ",1,1,1", "1,1,1,", "-1,1,1,1", "nan,1,1,1", "1e9,1,1,1", "a,1,1,1"):
        with pytest.raises(ValueError):  # noqa: PT011  # argparse writes the message
            read_price(wrong)
