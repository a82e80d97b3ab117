"""Callers in metrics: names that operators gave, in bounds."""

from __future__ import annotations

import grpc
import pytest

from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.money import Money
from prompt_sidecar.telemetry import catalog
from prompt_sidecar.telemetry.labels import MOST_CALLERS, CallerLabels
from prompt_sidecar.trim.presets import preset
from prompt_sidecar.v1 import usage_pb2
from tests.telemetry.watched import prompt, watched


def test_names_of_operators_are_labels_and_others_are_not() -> None:
    """A digest of a key, or a certificate's subject, may be any number: they are one label."""
    names = CallerLabels(["research", "sha256:1"])
    asked = ("local", "unix", "research", "sha256:1", "token:nightly", "sha256:2", "mtls:CN=a", "jwt:a b", "")
    assert ["local", "unix", "research", "sha256:1", "token:nightly", *["other"] * 4] == [
        names.label(each) for each in asked
    ]


def test_there_are_so_many_labels_at_most() -> None:
    """Those of the settings have theirs, whatever tokens come first."""
    names = CallerLabels(["last"])
    given = {names.label(f"token:{number}") for number in range(100)}
    assert MOST_CALLERS - 2 == len(given)
    assert "other" in given
    assert "last" == names.label("last")


def test_prompts_tokens_and_cost_are_counted_by_caller() -> None:
    """The sums are those of the metrics without callers."""
    rules = Rules(CallerRules(preset("cache_first")), money=Money(None, Models()))
    with watched(rules=rules) as seen:
        answer = seen.served.stub.TrimPrompt(prompt(12, model="claude-sonnet-4-5"))
        seen.served.stub.ReportUsage(usage_pb2.ReportUsageRequest(run_id="run", input_tokens=answer.tokens.after))
        broken = prompt(1)
        broken.json.body = b"{"
        with pytest.raises(grpc.RpcError):
            seen.served.stub.TrimPrompt(broken)
        figures = seen.scrape()
    for by_caller, plain in ((catalog.CALLER_PROMPTS, catalog.PROMPTS), (catalog.CALLER_COST, catalog.COST)):
        assert figures.of(plain) == figures.of(by_caller, caller="local") == figures.of(by_caller) > 0
    for state in ("before", "after"):
        counted = figures.of(catalog.CALLER_TOKENS, caller="local", state=state)
        assert figures.of(catalog.PROMPT_TOKENS, state=state) == counted > 0
    assert 1 == figures.of(catalog.CALLER_PROMPTS, caller="local", outcome="refused")
