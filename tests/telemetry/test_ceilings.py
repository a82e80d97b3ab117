"""Ceilings, models without a price and the mode that only observes, as Prometheus sees them."""

from __future__ import annotations

import grpc
import pytest

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.facts.money import Money
from prompt_sidecar.guard.ceilings import CeilingAction, CeilingPrices, Ceilings, Price
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.trim.presets import preset
from tests.telemetry.watched import prompt, watched

CEILINGS = Ceilings(
    run_model_calls=1,
    run_model_calls_action=CeilingAction.REFUSE,
    caller_input_tokens=1,
    caller_input_tokens_action=CeilingAction.WARN,
)
GENERAL = CallerRules(preset("cache_first"), {}, CEILINGS)


def test_ceilings_are_counted_by_scope_kind_and_action() -> None:
    """An answered prompt counts for each ceiling that it passes, a refused one for the ceiling that refused it."""
    with watched(rules=Rules(GENERAL, {}, Money(CeilingPrices({})))) as seen:
        seen.served.stub.TrimPrompt(prompt(0))
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as refused:
                seen.served.stub.TrimPrompt(prompt(1))
            assert grpc.StatusCode.FAILED_PRECONDITION is refused.value.code()
        figures = seen.scrape()
    passed = catalog.CEILINGS_PASSED
    assert 2 == figures.of(passed, scope="run", kind="model_calls", action="refuse")
    assert 1 == figures.of(passed, scope="caller", kind="input_tokens", action="warn")
    assert 3 == figures.of(passed)
    assert 2 == figures.of(catalog.PROMPTS, outcome="refused")
    assert (0, 0) == (figures.of(catalog.UNPRICED), figures.of(catalog.OBSERVING))


def test_observing_and_models_without_a_price() -> None:
    """Where the sidecar observes, a ceiling that would refuse is counted, and the prompt is answered."""
    rules = Rules(GENERAL, {}, Money(CeilingPrices({"claude": Price(1.0, 1.0)})), observe=True)
    with watched(rules=rules) as seen:
        for _ in range(2):
            assert seen.served.stub.TrimPrompt(prompt(0, model="gpt-5")).observed_only
        figures = seen.scrape()
    assert 1 == figures.of(catalog.CEILINGS_PASSED, scope="run", action="refuse")
    assert (2, 1) == (figures.of(catalog.UNPRICED), figures.of(catalog.OBSERVING))
