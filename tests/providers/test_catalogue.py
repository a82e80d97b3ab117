"""The catalogue of models: names as agents send them, facts, and the file itself."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar import providers
from prompt_sidecar.providers.catalogue import MAX_NAME_CHARS, Model, ModelPrices, Tier, built, find, names
from tests.oracle.data import need


def known(name: str) -> Model:
    """The facts of a model that is known."""
    model = find(name)
    assert model is not None, name
    return model


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude-opus-4-6-v1", "claude-opus-4-6"),
        ("vertex_ai/claude-opus-4-6@20260205", "claude-opus-4-6"),
        ("claude-sonnet-5-5-latest", "claude-sonnet-5-5"),
        ("Claude-Sonnet-4-5", "claude-sonnet-4-5"),
        ("azure/gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-6.1-sol-2026-09-29", "gpt-6.1-sol"),
        ("openai:gpt-4o", "gpt-4o"),
        ("ft:gpt-4o-mini-2024-07-18:team::id", "gpt-4o-mini"),
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("moonshotai/kimi-k3:free", "kimi-k3"),
        ("zai-org/GLM-5.3", "glm-5.3"),
        ("qwen/qwen3-coder", "qwen3-coder"),
        ("gpt-4o-our-own", "gpt-4o"),
    ],
)
def test_what_gateways_clouds_and_snapshots_add_to_a_name(name: str, plain: str) -> None:
    """Each spelling is known as the model's own name."""
    assert plain == known(name).name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        ":",
        "-",
        "gpt",
        "claude",
        "claude-opus-4-99",
        "gpt-5.99",
        "gpt-45",
        "gpt-9-sol",
        "gemini-9-pro",
        "x" * 300,
    ],
)
def test_a_version_without_a_row_is_unknown(name: str) -> None:
    """It is not taken for another version of its family."""
    assert find(name) is None


def test_the_tag_for_a_long_context() -> None:
    """Claude Code's `[1m]` selects a window of a million tokens, of Claude alone."""
    windows = (
        known("claude-sonnet-4-5").window,
        known("anthropic/claude-sonnet-4-5[1m]").window,
        known("gpt-4o[1m]").window,
    )
    assert (200_000, 1_000_000, 128_000) == windows


@pytest.mark.parametrize(
    ("name", "window", "most_input"),
    [
        ("gpt-5", 400_000, 272_000),
        ("gpt-5.5", 1_050_000, 922_000),
        ("gpt-6.2-sol", 1_050_000, 922_000),
        ("gpt-4o", 128_000, None),
    ],
)
def test_the_most_that_a_prompt_may_take(name: str, window: int, most_input: int | None) -> None:
    """OpenAI keeps the greatest output free of the window, on models whose pages say "Maximum input tokens"."""
    assert (window, most_input) == (known(name).window, known(name).most_input)


def test_prices_above_a_threshold() -> None:
    """Of a request with more input than a tier's threshold all costs more."""
    model = known("gpt-6.2-sol")
    assert (Tier(272_000, ModelPrices(4, 0.2, 5, 15)),) == model.tiers
    assert ModelPrices(2, 0.1, 2.5, 10) == model.prices


def test_each_row_is_found_by_its_name_and_has_a_fact() -> None:
    """The file is sorted as it is searched, and each row can be read."""
    text = resources.files(providers).joinpath("catalogue.tsv").read_text("utf-8")
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert rows == sorted(set(rows), key=lambda row: row.partition("\t")[0] + "\t")
    for name in names():
        model = known(name)
        assert model.window or model.prices.input is not None, name
        assert not model.most_input or not model.window or model.most_input < model.window, name
    assert built().day[:2] == "20"
    assert "genai-prices" in built().sources


@given(st.text(st.characters(exclude_categories=()), max_size=2 * MAX_NAME_CHARS))
def test_any_name_is_looked_up(name: str) -> None:
    """Control characters, lone surrogates and anything else are names like any other."""
    model = find(name)
    assert model is None or model.name


def test_names_of_today_have_the_windows_that_their_sources_give() -> None:
    """Those that ../shared lists, by window or by input cap as its source has it; of those without a source, ours."""
    listed = json.loads(need("failing/models_windows.json").read_text("utf-8"))["names"]
    unknown = [name for name in listed if find(name) is None]
    assert not unknown
    hosts = {"kimi-k3", "glm-5.3"}  # the source has a host's row; ours are the makers'
    for name, facts in listed.items():
        if facts is not None and facts["max_input_tokens"] is not None and name not in hosts:
            assert facts["max_input_tokens"] in (known(name).window, known(name).most_input), name
