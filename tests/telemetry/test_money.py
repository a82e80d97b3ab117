"""What providers charge is counted by model and currency, from their answers through the HTTP door and from reports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from prompt_sidecar.answers.reported_usage import UsageReader, usage_call
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.facts.known_models import ModelFacts, Models
from prompt_sidecar.facts.money import Money, Spent, Unpriced
from prompt_sidecar.telemetry import catalog, changes
from prompt_sidecar.trim.presets import preset
from prompt_sidecar.v1 import run_pb2, usage_pb2
from tests.client.provider import MODEL, Says
from tests.doors.http.serving import Proxied
from tests.telemetry.test_doors import ask, through_http
from tests.telemetry.watched import prompt, watched

MODELS = Models({MODEL: ModelFacts(like="gpt-5.4")})
RULES = Rules(CallerRules(preset("cache_first")), money=Money(None, MODELS))
"""The scripted provider's model costs what gpt-5.4 does."""


def test_calls_through_http_are_money_in_the_figures() -> None:
    """The usage in the answer, at the price of the model; an answer without usage is none."""
    says = Says("Done.", tokens={"input": 100_000, "cached": 60_000, "output": 1_000})

    def asked(here: Proxied) -> None:
        assert 200 == ask(here)

    figures = through_http(asked, says, rules=RULES, window=400_000)
    dollars = (40_000 * 2.5 + 60_000 * 0.25 + 1_000 * 15) / 1_000_000
    assert dollars == pytest.approx(figures.of(catalog.COST, model="other", currency="USD"))
    assert 0 == figures.of(catalog.COST_UNPRICED)
    assert 0 == figures.of(catalog.COST_COMPARED)  # these counts cannot be those of a prompt of one word

    unknown = through_http(asked, says, rules=replace(RULES, money=Money(None, Models())))
    assert 0 == unknown.of(catalog.COST)
    assert 1 == unknown.of(catalog.COST_UNPRICED, why="model", model="other") == unknown.of(catalog.COST_UNPRICED)


def test_calls_that_agents_report_are_money_and_in_the_run() -> None:
    """Through gRPC; a report that comes twice counts once, and what was saved is kept apart from the cost."""
    with watched(rules=RULES) as seen:
        stub = seen.served.stub
        size = stub.TrimPrompt(prompt(2, model="claude-opus-4-6")).tokens.after
        report = usage_pb2.ReportUsageRequest(run_id="run", input_tokens=size, cached_tokens=0, output_tokens=1_000_000)
        for _ in range(2):
            stub.ReportUsage(report)
        run = stub.GetRun(run_pb2.GetRunRequest(run_id="run")).run
        figures = seen.scrape()
    (cost,) = run.model_costs
    assert ("claude-opus-4-6", "USD", 1, 0) == (cost.model, cost.currency, cost.calls, run.unpriced_calls)
    assert 25 + size * 5 / 1_000_000 == pytest.approx(cost.cost)
    assert cost.cost == pytest.approx(figures.of(catalog.COST, currency="USD"))
    sides = [figures.of(catalog.COST_COMPARED, prompts=prompts) for prompts in ("returned", "untrimmed")]
    assert size * 5 / 1_000_000 == pytest.approx(sides[0])
    assert cost.estimated_saved == pytest.approx(sides[1] - sides[0])


@pytest.mark.parametrize(
    ("form", "answer", "read"),
    [
        (
            "anthropic_messages",
            {
                "usage": {
                    "input_tokens": 5,
                    "cache_creation_input_tokens": 30,
                    "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
                    "service_tier": "priority",
                }
            },
            (30, 20, "priority"),
        ),
        ("anthropic_messages", {"usage": {"input_tokens": 5, "service_tier": "standard"}}, (None, None, "")),
        ("anthropic_messages", {"usage": {"input_tokens": 5, "speed": "fast"}}, (None, None, "fast")),
        (
            "openai_responses",
            {
                "service_tier": "flex",
                "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 7}},
            },
            (7, None, "flex"),
        ),
        (
            "openai_chat",
            {
                "service_tier": "default",
                "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 7}},
            },
            (7, None, ""),
        ),
        ("openai_chat", {"service_tier": 3, "usage": {"prompt_tokens": 9}}, (None, None, "")),
    ],
    ids=["hour", "standard", "fast", "flex", "default", "odd"],
)
def test_what_answers_say_of_their_price_is_read(form: str, answer: Any, read: tuple[Any, ...]) -> None:
    """Tokens written to the cache, those kept for an hour, and a tier that is not the standard one."""
    reader = UsageReader(form, 200, "application/json")
    reader.feed(json.dumps(answer).encode())
    call = usage_call(reader.end(), "caller", "run", b"")
    assert read == (call.cache_write_tokens, call.cache_write_hour_tokens, call.service_tier)


def test_counters_of_money_hold_no_call_twice() -> None:
    """What is unpriced is in no sum, and what is not compared in no estimate."""
    unpriced = Spent("m", "USD", unpriced=Unpriced.SERVICE_TIER)
    assert [(catalog.COST_UNPRICED, ("service_tier", "other"), 1)] == changes.spent(unpriced, "other")
    assert [(catalog.COST, ("m", "USD"), 2.0)] == changes.spent(Spent("m", "USD", 2.0), "m")
