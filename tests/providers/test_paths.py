"""Which API a path is for. The doors, the client and the integrations all ask the same table."""

from __future__ import annotations

import pytest

from prompt_sidecar.providers.anthropic_messages import ANTHROPIC
from prompt_sidecar.providers.api import PassedPrompts, Provider, signs_body
from prompt_sidecar.providers.bedrock_converse import BEDROCK
from prompt_sidecar.providers.gemini_contents import GEMINI
from prompt_sidecar.providers.openai_chat import OPENAI
from prompt_sidecar.providers.table import LONGEST_PATH, api_of, passed_at, provider_of


@pytest.mark.parametrize(
    ("path", "format_name", "model"),
    [
        ("/v1/chat/completions", "openai_chat", ""),
        ("/v1/chat/completions/", "openai_chat", ""),
        ("/openai/deployments/gpt-4o/chat/completions?api-version=2026-01-01", "openai_chat", ""),
        ("/v1/responses", "openai_responses", ""),
        ("/openai/v1/responses/", "openai_responses", ""),
        ("/v1/messages", "anthropic_messages", ""),
        ("/v1/messages/", "anthropic_messages", ""),
        ("/v2/messages", "anthropic_messages", ""),
        ("/anthropic/v1/messages?beta=true", "anthropic_messages", ""),
        ("/v1beta/models/gemini-3-pro:generateContent", "gemini_contents", "gemini-3-pro"),
        ("/v1beta/models/gemini-3-pro%3AgenerateContent", "gemini_contents", "gemini-3-pro"),
        ("/v1beta/tunedModels/mine:generateContent", "gemini_contents", "mine"),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse", "gemini_contents", "gemini-3-pro"),
        ("/v1/projects/p/locations/l/publishers/google/models/g:generateContent", "gemini_contents", "g"),
        ("/v1/projects/p/locations/l/endpoints/123456:generateContent", "gemini_contents", "123456"),
        ("/v1beta/dynamic/abc:generateContent", "gemini_contents", "abc"),
        ("/model/anthropic.claude-opus-4-6-v1%3A0/converse", "bedrock_converse", "anthropic.claude-opus-4-6-v1:0"),
        ("/model/x/converse-stream", "bedrock_converse", "x"),
    ],
)
def test_a_path_is_known_by_its_end(path: str, format_name: str, model: str) -> None:
    """Each provider's path is known in every spelling, behind any gateway's prefix."""
    found = api_of(path)

    assert found is not None
    assert (format_name, model, False) == (found.format, found.model, found.counts)


@pytest.mark.parametrize(
    ("path", "streams"),
    [
        ("/v1beta/models/g:streamGenerateContent", True),
        ("/v1beta/models/g:generateContent", False),
        ("/model/x/converse-stream", True),
        ("/model/x/converse", False),
        ("/v1/messages", False),
    ],
)
def test_a_path_that_asks_for_a_stream(path: str, streams: bool) -> None:
    """Where the path and not the body says so."""
    found = api_of(path)

    assert found is not None
    assert streams == found.streams


@pytest.mark.parametrize(
    "path", ["/v1/messages/count_tokens", "/v1/messages/count_tokens/", "/v1beta/models/g:countTokens"]
)
def test_a_path_that_only_counts_tokens(path: str) -> None:
    """Its body is a prompt, to which no model answers."""
    found = api_of(path)

    assert found is not None
    assert found.counts


@pytest.mark.parametrize(
    "path",
    [
        "/v1/threads/t/messages",
        "/v1/messages/batches",
        "/v1/embeddings",
        "/v1/responses/r1/cancel",
        "/v1beta/models/g:embedContent",
        "/gemini:generateContent",
        "/" + "a" * LONGEST_PATH + "/v1/messages",
    ],
)
def test_another_path_holds_no_prompt(path: str) -> None:
    """What is not known to hold a prompt is left alone."""
    assert api_of(path) is None


@pytest.mark.parametrize(
    ("path", "headers", "provider"),
    [
        ("/v1/models", {}, OPENAI),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, ANTHROPIC),
        ("/v1/messages/batches", {}, ANTHROPIC),
        ("/v1beta/files", {}, GEMINI),
        ("/v1/models/g:embedContent", {}, GEMINI),
        ("/upload", {"x-goog-api-key": "k"}, GEMINI),
        ("/model/x/invoke", {}, BEDROCK),
    ],
)
def test_a_request_without_a_prompt_goes_to_its_provider(
    path: str, headers: dict[str, str], provider: Provider
) -> None:
    """By its path or its headers; to OpenAI's upstream where neither says anything."""
    assert provider == provider_of(path, headers)


@pytest.mark.parametrize("algorithm", ["AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"])
def test_a_signature_covers_the_body(algorithm: str) -> None:
    """Amazon's signatures, by HMAC or ECDSA, cover the body, which then cannot be changed."""
    assert signs_body({"authorization": f"{algorithm} Credential=k"})
    assert not signs_body({"authorization": "Bearer k"})


@pytest.mark.parametrize(
    ("path", "counts", "compacts"),
    [
        ("/v1/responses", False, False),
        ("/openai/v1/responses/input_tokens", True, False),
        ("/v1/responses/compact/", False, True),
        ("/v1/messages/count_tokens?beta=true", True, False),
    ],
)
def test_what_is_asked_of_a_prompt(path: str, counts: bool, compacts: bool) -> None:
    """The next turn, its tokens, or a shorter history."""
    found = api_of(path)

    assert found is not None
    assert (counts, compacts, not (counts or compacts)) == (found.counts, found.compacts, found.asks)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/v1/messages/batches", PassedPrompts.BATCH),
        ("/v1/messages/batches/", PassedPrompts.BATCH),
        ("/openai/v1/batches?x=1", PassedPrompts.BATCH),
        ("/v1/completions", PassedPrompts.TEXT_PROMPT),
        ("/openai/deployments/d/completions", PassedPrompts.TEXT_PROMPT),
        ("/v1/chat/completions", None),
        ("/v1/messages/batches/b1/cancel", None),
        ("/v1/embeddings", None),
        ("/" + "x" * LONGEST_PATH + "/v1/batches", None),
    ],
)
def test_why_a_path_passes(path: str, why: PassedPrompts | None) -> None:
    """Where it takes prompts that are not trimmed."""
    assert why is passed_at(path)
    assert why is None or api_of(path) is None
