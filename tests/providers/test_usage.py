"""What answers report of tokens. The doors and the client read it by the same table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prompt_sidecar.client.model_calls import usage_of
from prompt_sidecar.providers.table import APIS, SDKS
from prompt_sidecar.providers.usage import ProviderUsage

CHAT = APIS["openai_chat"].usage
NONE = ProviderUsage()


@pytest.mark.parametrize(
    ("count", "read"),
    [
        (0, 0),
        (9, 9),
        (100_000_000, 100_000_000),
        (100_000_001, None),
        (-1, None),
        (True, None),
        (False, None),
        (9.0, None),
        ("9", None),
        (None, None),
        ([9], None),
        ({"tokens": 9}, None),
    ],
)
def test_a_count_is_a_plausible_whole_number(count: Any, read: int | None) -> None:
    """Whatever else stands in its place is unreported."""
    assert ProviderUsage(input_tokens=read) == CHAT.read({"usage": {"prompt_tokens": count}})
    expected = {} if read is None else {"input_tokens": read}
    assert expected == usage_of(SDKS["openai_chat"], {"usage": {"prompt_tokens": count}})


@pytest.mark.parametrize(
    "usage", [None, [], "usage", 7, {}, {"prompt_tokens_details": [1]}, {"prompt_tokens_details": "x"}]
)
def test_a_usage_of_another_shape_reports_nothing(usage: Any) -> None:
    """Answers are untrusted."""
    assert NONE == CHAT.read({"usage": usage})
    assert {} == usage_of(SDKS["openai_chat"], {"usage": usage})


@pytest.mark.parametrize(
    ("format_name", "event", "read"),
    [
        ("openai_responses", {"response": {"usage": {"input_tokens": 9}}}, ProviderUsage(9)),
        ("openai_responses", {"response": None, "usage": {"input_tokens": 9}}, NONE),
        ("openai_responses", {"usage": {"input_tokens": 9}}, ProviderUsage(9)),
        ("anthropic_messages", {"message": {"usage": {"input_tokens": 9}}}, ProviderUsage(9)),
        ("anthropic_messages", {"message": "m", "usage": {"input_tokens": 9}}, NONE),
        ("anthropic_messages", {"usage": {"output_tokens": 4}}, ProviderUsage(output_tokens=4)),
        ("gemini_contents", {"usageMetadata": {"thoughtsTokenCount": 5}}, ProviderUsage(output_tokens=5)),
        (
            "gemini_contents",
            {"usageMetadata": {"candidatesTokenCount": 2, "thoughtsTokenCount": True}},
            ProviderUsage(output_tokens=2),
        ),
        ("gemini_contents", {"usageMetadata": {"candidatesTokenCount": 0}}, ProviderUsage(output_tokens=0)),
        ("bedrock_converse", {"model": "m", "usage": {"inputTokens": 9}}, ProviderUsage(9)),
        ("openai_chat", {"model": ["m"], "usage": {"prompt_tokens": 9}}, ProviderUsage(9)),
        ("openai_chat", {"model": "m" * 1_000}, ProviderUsage(model="m" * 256)),
    ],
)
def test_each_place_of_a_usage(format_name: str, event: dict[str, Any], read: ProviderUsage) -> None:
    """In whole answers and in the events of streams."""
    assert read == APIS[format_name].usage.read(event)


def test_an_sdks_object_is_read_by_its_attributes() -> None:
    """As the dict of the same shape is."""
    details = SimpleNamespace(cached_tokens=3)
    usage = SimpleNamespace(prompt_tokens=9, prompt_tokens_details=details, completion_tokens=2)

    read = usage_of(SDKS["openai_chat"], SimpleNamespace(usage=usage))

    assert {"input_tokens": 9, "cached_tokens": 3, "output_tokens": 2} == read


def test_cached_tokens_stand_apart_where_the_provider_says_so() -> None:
    """Anthropic and Bedrock count them beside the input; OpenAI and Gemini count them as a part of it."""
    apart = {name for name, api in APIS.items() if api.usage.cached_apart}

    assert {"anthropic_messages", "bedrock_converse"} == apart


@pytest.mark.parametrize(
    ("usage", "apart", "whole"),
    [
        (ProviderUsage(9), True, 9),
        (ProviderUsage(9, 3), False, 9),
        (ProviderUsage(9, 3), True, 12),
        (ProviderUsage(9, 3, 4), True, 16),
        (ProviderUsage(9, 3, 6), False, 9),
        (ProviderUsage(2, 3), False, 5),
        (ProviderUsage(cached_tokens=3), True, None),
    ],
)
def test_the_whole_input_holds_the_cached_tokens(usage: ProviderUsage, whole: int | None, *, apart: bool) -> None:
    """Added where the provider leaves them out, or where they are more than what it calls the input."""
    assert whole == usage.whole_input(cached_apart=apart)
