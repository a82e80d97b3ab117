"""What reported calls cost: the model's own prices and tiers, by the provider's counts, and nothing that is guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from prompt_sidecar.engine.runs.comparing import Extent, Sides
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.reported_usage import LearnedUsage, SentTokens
from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.known_models import ModelFacts, Models
from prompt_sidecar.facts.money import (
    MODELS_OF_RUN,
    OTHER_MODELS,
    ModelCost,
    ModelPrice,
    Money,
    Spending,
    Spent,
    Unpriced,
)
from prompt_sidecar.facts.usage_calls import InputCounting, ReportedRefusal, UsageCall, UsageOutcome
from prompt_sidecar.guard.ceilings import CeilingPrices, Ceilings, Price
from prompt_sidecar.tokens.calibration import Calibration
from prompt_sidecar.trim.presets import preset
from tests.engine.runs.making import ANTHROPIC_MESSAGES, LIMIT, OPENAI_CHAT, send
from tests.promises.engine import CALLER, RUN_ID, Engine

MILLION = 1_000_000
LISTED = Money(None, Models())
"""The catalogue's prices."""
OWN = Price(input=1.0, output=2.0, cached=0.5)


def spent(
    asked: str, *, form: str = ANTHROPIC_MESSAGES, money: Money = LISTED, sides: Sides | None = None, **counts: Any
) -> Spent | None:
    """What one call costs whose prompt of 100,000 tokens was for the model `asked`."""
    usage = LearnedUsage()
    usage.prompt_returned(SentTokens(asked, form, tokens=100_000, kept=0, limit=LIMIT, sides=sides))
    answer = usage.report(UsageCall("caller", "run", **counts), Calibration(), money)
    assert UsageOutcome.RECORDED is answer.outcome
    return answer.spent


@pytest.mark.parametrize(
    ("model", "form", "counts", "dollars"),
    [
        # Rates of platform.claude.com, "Pricing", and developers.openai.com, "Pricing", read in November 2026: dollars
        # for a million tokens.
        (
            "claude-opus-4-6",
            ANTHROPIC_MESSAGES,
            {"input_tokens": 10, "cached_tokens": 90_000, "cache_write_tokens": 10_000, "output_tokens": 1_000},
            10 * 5 + 90_000 * 0.5 + 10_000 * 6.25 + 1_000 * 25,
        ),
        (
            "claude-opus-5-5",
            ANTHROPIC_MESSAGES,
            {"input_tokens": 0, "cached_tokens": 100_000, "cache_write_tokens": 0, "output_tokens": 0},
            100_000 * 0.2,
        ),
        (
            "claude-fable-5-1",
            ANTHROPIC_MESSAGES,
            {
                "input_tokens": 0,
                "cached_tokens": 90_000,
                "cache_write_tokens": 10_000,
                "cache_write_hour_tokens": 4_000,
                "output_tokens": 10,
            },
            90_000 * 0.25 + 6_000 * 12.5 + 4_000 * 20 + 10 * 50,
        ),
        (
            "gpt-5.4",
            OPENAI_CHAT,
            {"input_tokens": 100_000, "cached_tokens": 60_000, "output_tokens": 100},
            40_000 * 2.5 + 60_000 * 0.25 + 100 * 15,
        ),
        (
            "gpt-5.4",
            OPENAI_CHAT,
            {"input_tokens": 272_001, "cached_tokens": 60_000, "output_tokens": 100},
            212_001 * 5 + 60_000 * 0.5 + 100 * 22.5,
        ),
        (
            "gpt-5.6-sol",
            OPENAI_CHAT,
            {"input_tokens": 100_000, "cached_tokens": 60_000, "cache_write_tokens": 40_000, "output_tokens": 0},
            60_000 * 0.4 + 40_000 * 5,
        ),
    ],
    ids=["writes", "reads at a twentieth", "an hour", "no write price", "long input", "OpenAI's writes"],
)
def test_a_call_costs_what_the_provider_charges(model: str, form: str, counts: dict[str, Any], dollars: float) -> None:
    """Input, cached, written for five minutes or an hour, output, and the tier of all the input."""
    found = spent(model, form=form, **counts)
    assert found is not None
    assert ("USD", None) == (found.currency, found.unpriced)
    assert dollars / MILLION == pytest.approx(found.cost)


@pytest.mark.parametrize(
    ("model", "counts", "why"),
    [
        ("a-model-of-this-morning", {"input_tokens": 5}, Unpriced.MODEL),
        ("claude-opus-4-6", {"input_tokens": 5, "cached_tokens": 0, "model": "our-own-7b"}, Unpriced.MODEL),
        ("claude-opus-4-6", {"input_tokens": 5, "cached_tokens": 0, "service_tier": "priority"}, Unpriced.SERVICE_TIER),
        ("claude-opus-4-6", {"output_tokens": 5}, Unpriced.NO_COUNT),
    ],
    ids=["unknown", "another answered", "priority", "no input"],
)
def test_what_has_no_price_is_reported_and_not_guessed(model: str, counts: dict[str, Any], why: Unpriced) -> None:
    """It costs nothing in the figures, and its number says that something is missing."""
    found = spent(model, **counts)
    assert found is not None
    assert (0.0, why) == (found.cost, found.unpriced)


def test_a_call_whose_cache_is_not_reported_is_not_counted_as_cheap() -> None:
    """Anthropic counts cached tokens apart: without them most of the prompt is missing."""
    usage = LearnedUsage()
    usage.prompt_returned(SentTokens("claude-opus-4-6", ANTHROPIC_MESSAGES, tokens=100_000, kept=90_000, limit=LIMIT))
    answer = usage.report(UsageCall("caller", "run", input_tokens=5), Calibration(), LISTED)
    assert answer.spent is not None
    assert Unpriced.NO_COUNT is answer.spent.unpriced


def test_a_report_that_comes_too_late_is_counted_as_missing() -> None:
    """Nothing is known of its prompt any more."""
    engine = Engine(limit=LIMIT, model="claude-opus-4-6", rules=Rules(_general(), money=LISTED))
    send(engine, ANTHROPIC_MESSAGES, 1)
    engine.runs.report_usage(UsageCall(CALLER, RUN_ID, input_tokens=9, cached_tokens=0, revision=b"r" * 40))
    found = engine.figures()
    assert (1, 0) == (found.unpriced_calls, len(found.model_costs))


def test_a_refused_prompt_costs_and_saves_nothing() -> None:
    """A provider does not charge for it, and trimming gets no credit."""
    sides = Sides(Extent(100_000, 0), Extent(150_000, 0), room=400_000)
    assert spent("claude-opus-4-6", sides=sides, refusal=ReportedRefusal("too long")) is None


def test_what_trimming_saved_is_beside_the_cost() -> None:
    """Both sides by the model's prices and tiers; untrimmed this prompt had cost the tier above 272,000 tokens."""
    price = LISTED.of("gpt-5.4")
    sides = Sides(Extent(100_000, 90_000), Extent(300_000, 290_000), room=900_000, price=price)
    counts: dict[str, Any] = {"input_tokens": 100_000, "cached_tokens": 90_000, "output_tokens": 1_000}
    found = spent("gpt-5.4", form=OPENAI_CHAT, sides=sides, **counts)
    assert found is not None
    assert (10_000 * 2.5 + 90_000 * 0.25) / MILLION == pytest.approx(found.returned)
    assert (10_000 * 5 + 290_000 * 0.5) / MILLION == pytest.approx(found.untrimmed)
    assert found.returned + 1_000 * 15 / MILLION == pytest.approx(found.cost)
    observed = spent("gpt-5.4", form=OPENAI_CHAT, sides=replace(sides, observed=True), **counts)
    assert observed is not None
    assert (0.0, 0.0) == (observed.returned, observed.untrimmed)


def test_prices_of_the_settings_come_first_and_are_of_one_currency() -> None:
    """The catalogue fills in where the tables are said to be in its currency."""
    own = CeilingPrices({"claude-opus-4-6": OWN})
    unsaid, dollars, euros = (Money(own, Models(), currency) for currency in ("", "usd", "EUR"))
    assert ("own", "USD", "EUR") == (unsaid.currency, dollars.currency, euros.currency)
    assert ModelPrice(OWN) == unsaid.of("claude-opus-4-6") == dollars.of("claude-opus-4-6")
    assert (None, None) == (unsaid.of("gpt-5.4"), euros.of("gpt-5.4"))
    assert LISTED.of("gpt-5.4") == dollars.of("gpt-5.4")
    tier = spent("claude-opus-4-6", money=dollars, input_tokens=MILLION, cached_tokens=0, service_tier="batch")
    assert tier is not None
    assert 1.0 == tier.cost


def test_a_deployment_has_the_prices_of_the_model_that_it_is_like() -> None:
    """By its table `[models]`, under whatever name the answer comes."""
    money = Money(None, Models({"prod-chat": ModelFacts(like="gpt-5.4")}))
    assert LISTED.of("gpt-5.4") == money.of("prod-chat")
    assert LISTED.of("claude-opus-4-6") == LISTED.of("bedrock/us.anthropic.claude-opus-4-6-v1:0")


def test_a_run_tells_what_its_reported_calls_cost() -> None:
    """By model; a prompt without a report is in no figure of money, and a second report on one changes nothing."""
    engine = Engine(limit=LIMIT, model="claude-opus-4-6", rules=Rules(_general(), money=LISTED))
    for iterations, model in enumerate(("", "claude-opus-4-6-20260205", "who-knows", "")):
        answer = send(engine, ANTHROPIC_MESSAGES, iterations)
        call = UsageCall(CALLER, RUN_ID, model, 100, answer.tokens.after - 100, 0, output_tokens=10)
        for _ in range(2 if iterations < 3 else 0):
            engine.runs.report_usage(replace(call, revision=answer.prompt.revision))
    found = engine.figures()
    assert [1, 1] == [each.calls for each in found.model_costs]
    assert {"claude-opus-4-6", "claude-opus-4-6-20260205"} == {each.model for each in found.model_costs}
    assert 1 == found.unpriced_calls
    tokens = found.usage.input_tokens - answer.tokens.after
    assert tokens > 0
    assert all(each.cost > 0 and each.currency == "USD" for each in found.model_costs)


def test_a_ceiling_on_cost_counts_by_the_catalogue() -> None:
    """Without any table of prices; a model without a price is said to be none."""
    general = replace(_general(), ceilings=Ceilings(run_cost=5.0))
    known = Engine(limit=LIMIT, model="claude-opus-4-6", rules=Rules(general, money=LISTED))
    unknown = Engine(limit=LIMIT, model="a-model-of-this-morning", rules=Rules(general, money=LISTED))
    first, other = (send(engine, ANTHROPIC_MESSAGES, 2) for engine in (known, unknown))
    assert (True, False) == (first.guard.priced, other.guard.priced)
    assert 0 < first.guard.ceilings[0].used < 1
    assert 0 == other.guard.ceilings[0].used


def test_sums_add_up_and_are_bounded() -> None:
    """Names of models come from answers: of a run's, the first have figures of their own."""
    whole = Spending()
    for number in range(3 * MODELS_OF_RUN):
        whole = whole.plus(Spent(f"model-{number}", "USD", 0.1))
    whole = whole.plus(Spent("model-0", "USD", 0.1, None, 1.0, 3.0)).plus(Spent("x", "USD", unpriced=Unpriced.MODEL))
    assert MODELS_OF_RUN + 1 == len(whole.models)
    assert ModelCost("model-0", "USD", 2, 0.2, 2.0) == whole.models[-1]
    assert pytest.approx(0.1 * (3 * MODELS_OF_RUN + 1)) == sum(each.cost for each in whole.models)
    both = whole.and_then(whole)
    assert (2, 4) == (both.unpriced, next(each.calls for each in both.models if each.model == "model-0"))
    assert any(each.model == OTHER_MODELS for each in both.models)


def test_agents_may_count_otherwise_than_the_provider() -> None:
    """What holds is how the report says that it counts."""
    counting = InputCounting.WITH_CACHED
    found = spent("claude-opus-4-6", input_tokens=100_000, cached_tokens=100_000, counting=counting)
    assert found is not None
    assert 0.05 == pytest.approx(found.cost)


def _general() -> CallerRules:
    return CallerRules(preset("cache_first"), {}, Ceilings())


def test_another_process_goes_on_from_the_sums() -> None:
    """What the store has of a run holds its money, and figures of before that have none are read."""
    engine = Engine(limit=LIMIT, model="gpt-5.4", rules=Rules(_general(), money=LISTED))
    send(engine, OPENAI_CHAT, 1)
    engine.runs.report_usage(UsageCall(CALLER, RUN_ID, input_tokens=1_000, cached_tokens=0))
    figures = engine.figures()
    written = msgspec.msgpack.encode(figures)
    kept = msgspec.msgpack.decode(written, type=RunFigures)
    assert list(figures.model_costs) == list(kept.model_costs)
    both = Spending(kept.model_costs, kept.unpriced_calls).and_then(Spending(figures.model_costs))
    assert [2] == [each.calls for each in both.models]
    earlier = msgspec.msgpack.decode(written)
    del earlier["model_costs"], earlier["unpriced_calls"]
    assert () == msgspec.convert(earlier, RunFigures).model_costs
