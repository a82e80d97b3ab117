"""What the settings say of a model, over what the catalogue has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.facts.known_models import KnownModel, ModelFacts, Models, faults
from prompt_sidecar.facts.trim_calls import TrimAnswer
from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.providers import catalogue
from tests.promises.engine import CALLER, RUN_ID, Engine

TABLES = {
    "prod.chat": ModelFacts(like="gpt-5"),
    "Prod-Claude": ModelFacts(like="claude-opus-4-8", window=150_000),
    "this-morning-1": ModelFacts(window=777_000, most_input=700_000, most_output=9_000),
    "gpt-4o": ModelFacts(window=64_000),
    "gpt-5.4": ModelFacts(most_input=300_000),
    "claude-sonnet-4-5": ModelFacts(window=100_000),
    "claude-sonnet-4-6[1m]": ModelFacts(window=500_000),
}
MODELS = Models(TABLES)


def known(name: str) -> KnownModel:
    """What is known of a model that is."""
    found = MODELS.find(name)
    assert found is not None, name
    return found


@pytest.mark.parametrize(
    ("name", "window", "most_input", "table", "row"),
    [
        ("prod.chat", 400_000, 272_000, "prod.chat", "gpt-5"),
        ("azure/prod.chat", 400_000, 272_000, "prod.chat", "gpt-5"),
        ("PROD-claude", 150_000, None, "Prod-Claude", "claude-opus-4-8"),
        ("this-morning-1", 777_000, 700_000, "this-morning-1", ""),
        ("openrouter/maker/this-morning-1:free", 777_000, 700_000, "this-morning-1", ""),
        ("this-morning-1-2027-01-02", 777_000, 700_000, "this-morning-1", ""),
        ("gpt-4o", 64_000, None, "gpt-4o", "gpt-4o"),
        ("openai/gpt-4o-2024-08-06", 64_000, None, "gpt-4o", "gpt-4o"),
        ("gpt-4o-our-own", 64_000, None, "gpt-4o", "gpt-4o"),
        ("gpt-4o-mini", 128_000, None, "", "gpt-4o-mini"),
        ("gpt-5.4", 1_050_000, 300_000, "gpt-5.4", "gpt-5.4"),
        ("claude-sonnet-4-5", 100_000, None, "claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5[1m]", 1_000_000, None, "claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("claude-sonnet-4-6[1m]", 500_000, None, "claude-sonnet-4-6[1m]", "claude-sonnet-4-6"),
    ],
)
def test_a_table_holds_for_every_spelling_of_its_name(
    name: str, window: int, most_input: int | None, table: str, row: str
) -> None:
    """What a table says holds before the catalogue; what it does not say is of its like, else of the catalogue."""
    found = known(name)
    assert (window, most_input, table, row) == (found.model.window, found.model.most_input, found.table, found.row)
    assert (window, most_input) == (MODELS.window(name), MODELS.most_input(name))


def test_a_model_behaves_like_the_one_that_it_is_like() -> None:
    """Its name stands for the other's wherever a name says how a model counts or thinks; other names stay."""
    assert "gpt-5" == MODELS.alike("azure/prod.chat")
    assert "claude-opus-4-8[1m]" == MODELS.alike("prod-claude[1m]")
    assert "this-morning-1" == MODELS.alike("this-morning-1")
    assert "x/gpt-4o" == MODELS.alike("x/gpt-4o")
    assert "prod.chat" == Models().alike("prod.chat")


@given(st.text(max_size=300))
def test_without_tables_all_is_as_the_catalogue_has_it(name: str) -> None:
    """Whatever the name: the same facts, or none."""
    found = Models().find(name)
    assert catalogue.find(name) == (found and found.model)
    assert name == Models().alike(name)


@pytest.mark.parametrize("name", ["gpt-4o" * 170_000, "/" * 1_000_000])
def test_a_huge_name_is_unknown_and_cheap(name: str) -> None:
    """A megabyte of name, a thousand times."""
    for _ in range(1_000):
        assert (None, name) == (MODELS.find(name), MODELS.alike(name))


def test_tables_that_can_be_used_have_no_faults() -> None:
    """What is said of them is nothing."""
    assert [] == list(faults(TABLES))


def _trimmed(models: Models, format: str, model: str) -> TrimAnswer:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Count to three."}]}).encode()
    return Engine(limit=0, models=models).trim(format, body)


@pytest.mark.parametrize(
    ("model", "limit", "assumed"),
    [
        ("prod.chat", 272_000, False),
        ("this-morning-1", 700_000, False),
        ("gpt-4o", 64_000, False),
        ("no", 128_000, True),
    ],
)
def test_a_prompt_is_trimmed_to_the_window_of_its_table(model: str, limit: int, assumed: bool) -> None:
    """The engine's limit is what the tables say; only a model of which nothing is known has the assumed window."""
    answer = _trimmed(MODELS, "openai_chat", model)
    assert (limit, assumed) == (answer.tokens.limit, answer.tokens.window_assumed)


def test_a_deployment_is_counted_as_the_model_that_it_is_like() -> None:
    """Its vocabulary is that model's own, and so is the factor before the first report."""
    assert not _trimmed(Models(), "openai_chat", "prod.chat").tokens.exact
    assert _trimmed(MODELS, "openai_chat", "prod.chat").tokens.exact
    own = _trimmed(Models(), "anthropic_messages", "claude-opus-4-8")
    alike = _trimmed(MODELS, "anthropic_messages", "prod-claude")
    other = _trimmed(Models(), "anthropic_messages", "prod-claude")
    assert own.tokens.before == alike.tokens.before > other.tokens.before


def test_thinking_is_bound_as_that_of_the_model_that_it_is_like() -> None:
    """A deployment of a Claude model whose thinking is bound is taken for one, though its name says nothing."""
    body = json.dumps({"model": "d1", "messages": [{"role": "user", "content": "Count to three."}]}).encode()
    for models, bound in ((Models(), False), (Models({"d1": ModelFacts("claude-sonnet-5-5")}), True)):
        engine = Engine(limit=0, models=models)
        engine.trim("anthropic_messages", body)
        run = engine.runs.table.known(CALLER, RUN_ID)
        assert run is not None
        assert run.memory.format is not None
        assert bound is (run.memory.format.reasoning is ReasoningRule.BOUND)
