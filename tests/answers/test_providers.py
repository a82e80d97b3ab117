"""What doors know of providers: paths, usage in answers, errors in their shapes."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from prompt_sidecar.answers.reported_usage import UsageReader
from prompt_sidecar.calls.provider_errors import error_body, error_headers, http_status, is_final
from prompt_sidecar.errors import GuardRefused
from prompt_sidecar.providers.usage import ProviderUsage
from prompt_sidecar.providers.usage_reader import MOST_BYTES


def read(format_name: str, kind: str, *pieces: bytes, status: int = 200) -> ProviderUsage:
    """Read an answer in pieces."""
    reader = UsageReader(format_name, status, kind)
    for piece in pieces:
        reader.feed(piece)
    return reader.end()


ANSWERS: list[tuple[str, Any, ProviderUsage]] = [
    (
        "openai_chat",
        {
            "model": "m",
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
        },
        ProviderUsage(9, 3, None, 2, "m"),
    ),
    (
        "openai_responses",
        {"model": "m", "usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}}},
        ProviderUsage(9, 3, None, 2, "m"),
    ),
    (
        "anthropic_messages",
        {
            "model": "m",
            "usage": {
                "input_tokens": 9,
                "output_tokens": 2,
                "cache_read_input_tokens": 3,
                "cache_creation_input_tokens": 4,
            },
        },
        ProviderUsage(9, 3, 4, 2, "m"),
    ),
    (
        "gemini_contents",
        {
            "modelVersion": "m",
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 5},
        },
        ProviderUsage(9, None, None, 7, "m"),
    ),
    ("bedrock_converse", {"usage": {"inputTokens": 9, "outputTokens": 2}}, ProviderUsage(9, None, None, 2)),
]


@pytest.mark.parametrize(
    ("format_name", "answer", "usage"), ANSWERS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_usage_of_a_whole_answer(format_name: str, answer: Any, usage: ProviderUsage) -> None:
    """Each provider's figures, however the answer is cut into pieces."""
    text = json.dumps(answer).encode()

    assert usage == read(format_name, "application/json; charset=utf-8", text)
    assert usage == read(format_name, "application/json", *(text[at : at + 1] for at in range(len(text))))


def events(*objects: Any) -> bytes:
    """Return server-sent events."""
    return b"".join(b"event: e\r\ndata: " + json.dumps(each).encode() + b"\r\n\r\n" for each in objects)


@pytest.mark.parametrize(
    ("format_name", "stream", "usage"),
    [
        (
            "openai_chat",
            events({"choices": [1]}, {"model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 2}})
            + b"data: [DONE]\n\n",
            ProviderUsage(9, None, None, 2, "m"),
        ),
        (
            "anthropic_messages",
            events(
                {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}},
                {"type": "message_delta", "usage": {"output_tokens": 20}},
            ),
            ProviderUsage(9, None, None, 20, "m"),
        ),
        (
            "openai_responses",
            events({"type": "response.completed", "response": {"model": "m", "usage": {"input_tokens": 9}}}),
            ProviderUsage(9, None, None, None, "m"),
        ),
        (
            "gemini_contents",
            events({"usageMetadata": {"promptTokenCount": 9}}, {"usageMetadata": {"candidatesTokenCount": 2}}),
            ProviderUsage(9, None, None, 2),
        ),
    ],
)
def test_usage_of_a_stream(format_name: str, stream: bytes, usage: ProviderUsage) -> None:
    """What the first event says and what the last one says are joined, however the stream is cut."""
    assert usage == read(format_name, "text/event-stream", stream)
    for size in (1, 7, 64):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert usage == read(format_name, "text/event-stream", *pieces)


def test_usage_of_amazons_event_stream() -> None:
    """Frames of lengths, headers, payload and CRC; the figures are in the last one."""
    frames = b""
    for payload in (b'{"contentBlockIndex":0}', b'{"usage":{"inputTokens":9,"outputTokens":2}}'):
        headers = b"\x0b:event-type\x07\x00\x08metadata"
        total = 16 + len(headers) + len(payload)
        frames += struct.pack(">II", total, len(headers)) + b"crc1" + headers + payload + b"crc2"
    kind = "application/vnd.amazon.eventstream"

    assert ProviderUsage(9, None, None, 2) == read("bedrock_converse", kind, frames)
    assert ProviderUsage(9, None, None, 2) == read("bedrock_converse", kind, *(bytes([each]) for each in frames))


@pytest.mark.parametrize(
    "answer",
    [
        b"[1, 2",
        b'"usage"',
        b'{"usage": 3}',
        b'{"usage": {"prompt_tokens": -1}}',
        b'{"usage": {"prompt_tokens": true}}',
        b'{"usage": {"prompt_tokens": 1e99}}',
        b'{"usage": {"prompt_tokens": [[[[]]]]}}',
        b'{"choices": "\\"usage\\": {\\"prompt_tokens\\": 5}"}',
    ],
)
def test_what_is_not_of_the_known_shape_is_not_reported(answer: bytes) -> None:
    """The answer is the provider's, and its text the model's: neither makes figures up."""
    assert not read("openai_chat", "application/json", answer).reported


def test_what_cannot_be_read_is_not_kept() -> None:
    """Compressed answers, other types, other statuses, and what is too large for memory."""
    large = UsageReader("openai_chat", 200, "application/json")
    large.feed(b" " * MOST_BYTES)
    large.feed(b" ")

    assert not large.reads
    assert not UsageReader("openai_chat", 200, "application/json", encoded=True).reads
    assert not UsageReader("openai_chat", 200, "text/html").reads
    assert not UsageReader("openai_chat", 500, "application/json").reads


def test_a_refusal_of_a_long_prompt_is_distinguished_from_other_errors() -> None:
    """Only the former is reported, in the provider's words."""
    long = b'{"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}'

    assert long.decode() == read("anthropic_messages", "application/json", long, status=400).refusal
    assert not read("anthropic_messages", "application/json", b'{"error": "no such model"}', status=400).reported
    assert not read("anthropic_messages", "application/json", long, status=429).reported


@pytest.mark.parametrize(
    ("format_name", "message"),
    [
        ("openai_chat", ("error", "message")),
        ("openai_responses", ("error", "message")),
        ("anthropic_messages", ("error", "message")),
        ("gemini_contents", ("error", "message")),
        ("bedrock_converse", ("message",)),
    ],
)
def test_a_final_refusal_has_the_providers_shape(format_name: str, message: tuple[str, ...]) -> None:
    """The message is where the provider's SDK looks for it."""
    error = GuardRefused("the prompt holds what must not leave")
    found = json.loads(error_body(format_name, http_status(error), error.message, error.reason))
    for name in message:
        found = found[name]

    assert is_final(error)
    assert found.endswith("the prompt holds what must not leave")
    assert "application/json" == error_headers(format_name, 400)["content-type"]
