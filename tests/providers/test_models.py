"""Model names in their many spellings: encoding and window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiktoken.model import MODEL_TO_ENCODING

from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.providers.models import first_factor
from prompt_sidecar.tokens import encoding_for


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", ("o200k_base", True)),
        ("gpt-4o-2024-08-06", ("o200k_base", True)),
        ("GPT-4o", ("o200k_base", True)),
        ("openai/gpt-4o", ("o200k_base", True)),
        ("azure/gpt-4o-2024-08-06", ("o200k_base", True)),
        ("openrouter/openai/gpt-4o:free", ("o200k_base", True)),
        ("openai:gpt-4.1-mini", ("o200k_base", True)),
        ("ft:gpt-4o-mini-2024-07-18:team::id", ("o200k_base", True)),
        ("chatgpt-4o-latest", ("o200k_base", True)),
        ("gpt-5.1-codex", ("o200k_base", True)),
        ("o3-mini", ("o200k_base", True)),
        ("gpt-oss-120b", ("o200k_base", True)),
        ("gpt-oss:20b", ("o200k_base", True)),
        ("us.openai.gpt-oss-120b-1:0", ("o200k_base", True)),
        ("gpt-4", ("cl100k_base", True)),
        ("gpt-4-turbo-2024-04-09", ("cl100k_base", True)),
        ("gpt-35-turbo-16k", ("cl100k_base", True)),
        ("text-davinci-003", ("cl100k_base", False)),
        ("davinci", ("cl100k_base", False)),
        ("gpt2", ("cl100k_base", False)),
        ("claude-sonnet-4-5-20250929", ("o200k_base", False)),
        ("anthropic/claude-3.5-sonnet", ("o200k_base", False)),
        ("gemini-2.5-pro", ("o200k_base", False)),
        ("", ("o200k_base", False)),
        ("/", ("o200k_base", False)),
        (":", ("o200k_base", False)),
    ],
)
def test_each_model_has_its_encoding(model: str, expected: tuple[str, bool]) -> None:
    """Each spelling is counted in the encoding of its model, exact where that is public."""
    assert expected == encoding_for(model)


@pytest.mark.parametrize("model", sorted(MODEL_TO_ENCODING))
def test_every_model_of_tiktoken_is_counted(model: str) -> None:
    """Exact for every model of tiktoken's table whose vocabulary is carried."""
    theirs = MODEL_TO_ENCODING[model]
    assert (theirs in {"o200k_base", "cl100k_base"}) == encoding_for(model)[1]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o-mini-2024-07-18", 128_000),
        ("azure/gpt-4o", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("gpt-4", 8_192),
        ("gpt-4-0613", 8_192),
        ("gpt-4-32k-0613", 32_768),
        ("gpt-4-turbo", 128_000),
        ("gpt-4-1106-preview", 128_000),
        ("gpt-4.5-preview", 128_000),
        ("gpt-3.5-turbo-0125", 16_385),
        ("gpt-3.5-turbo-instruct", 4_096),
        ("gpt-5-mini-2025-08-07", 400_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.99", None),
        ("gpt-45", None),
        ("o1-2024-12-17", 200_000),
        ("o1-mini", 128_000),
        ("o3-pro", 200_000),
        ("o4-mini:free", 200_000),
        ("ft:gpt-4o-mini-2024-07-18:team::id", 128_000),
        ("claude-3-haiku-20240307", 200_000),
        ("anthropic/claude-3.7-sonnet:thinking", 200_000),
        ("claude-opus-4-20250514", 200_000),
        ("claude-opus-4-1-20250805", 200_000),
        ("claude-opus-4@20250514", 200_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("claude-sonnet-4-5[1m]", 1_000_000),
        ("claude-opus-4-6", 1_000_000),
        ("claude-opus-4-99", None),
        ("claude-2.1", 200_000),
        ("models/gemini-1.5-pro-002", 2_097_152),
        ("gemini-2.0-flash-001", 1_048_576),
        ("google/gemini-2.5-flash-image", 32_768),
        ("llama-9.9-70b", None),
        ("gpt-4o[1m]", 128_000),
        ("", None),
    ],
)
def test_each_family_has_its_window(model: str, expected: int | None) -> None:
    """A documented family has its window in every spelling; an unknown version has none."""
    assert expected == Models().window(model)


@pytest.mark.parametrize("model", ["gpt-4o" * 170_000, ":" * 1_000_000, "/" * 1_000_000, "ft:" * 350_000])
def test_a_huge_name_is_unknown_and_cheap(model: str) -> None:
    """A megabyte of name is unknown, a thousand times: time that grew with its square would be hours."""
    for _ in range(1_000):
        assert ("o200k_base", False) == encoding_for(model)
        assert Models().window(model) is None


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_any_name_is_safe(model: str) -> None:
    """Control characters, lone surrogates and anything else are names like any other."""
    encoding, exact = encoding_for(model)
    assert encoding in {"o200k_base", "cl100k_base"}
    assert isinstance(exact, bool)
    assert Models().window(model) is None or (Models().window(model) or 0) > 0


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        ("claude-opus-4-6", 1.0),
        ("claude-3-7-sonnet-latest", 1.0),
        ("claude-sonnet-4-20250514", 1.0),
        ("claude-opus-4-7", 1.5),
        ("us.anthropic.claude-sonnet-5-5-20261001-v1:0", 1.5),
        ("claude-fable-5", 1.5),
        ("claude-opus-10", 1.5),
        ("claude", 1.0),
        ("gpt-5.4", 1.0),
        ("", 1.0),
    ],
)
def test_first_factor(model: str, factor: float) -> None:
    """Claude models from 4.7 on count more tokens than o200k_base before anything is reported."""
    assert factor == first_factor(model)
