"""Providers' HTTP APIs as far as a transport reads them: which path has which format, and where usage stands.

Sources: the API references of OpenAI (chat completions, responses), Anthropic (messages), Google (generateContent) and
Amazon (Bedrock Runtime, Converse and ConverseStream), read in November 2026.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from prompt_sidecar.client.arguments import Format, Usage
from prompt_sidecar.client.dialects import DIALECTS

_PATHS: Final[tuple[tuple[re.Pattern[str], Format], ...]] = (
    (re.compile(r"/chat/completions$"), "openai_chat"),
    (re.compile(r"/responses$"), "openai_responses"),
    # Not OpenAI's `/threads/{id}/messages`, which adds one message to a thread.
    (re.compile(r"/v1/messages$"), "anthropic_messages"),
    (re.compile(r"/(?P<model>[^/:]+):(?:generateContent|streamGenerateContent)$"), "gemini_contents"),
    (re.compile(r"/model/(?P<model>[^/]+)/(?:converse|converse-stream)$"), "bedrock_converse"),
)


@dataclass(frozen=True, slots=True)
class Api:
    """What a path says of the bodies that are sent to it."""

    format: Format
    model: str
    """The model, where the path and not the body names it; else empty."""


def api_of(path: str) -> Api | None:
    """Return the API of a URL's path; None: it is none whose bodies are prompts."""
    for pattern, format in _PATHS:
        found = pattern.search(path)
        if found is not None:
            return Api(format, unquote(found.groupdict().get("model", "")))
    return None


def usage_in(format: Format, content_type: str, content: bytes) -> Usage:
    """Return what the provider counted, from a whole answer or a whole stream; empty: the answer does not say.

    A stream that ended early may hold a part of the figures, such as Anthropic's, which begins with the input's.
    """
    usage: Usage = {}
    for event in _events(content_type, content):
        usage.update({name: count for name, count in _counted(format, event).items() if count is not None})  # type: ignore[typeddict-item]
    return usage if usage.get("input_tokens") is not None else {}


def _events(content_type: str, content: bytes) -> Iterator[Any]:
    """The JSON values of an answer that may hold usage."""
    if content_type.startswith("text/event-stream"):
        for line in content.removeprefix(BOM_UTF8).splitlines():
            if line.startswith(b"data:") and b"sage" in line:
                yield from _read(line[5:])
    elif content_type.startswith("application/vnd.amazon.eventstream"):
        for payload in _amazon(content):
            if b'"usage"' in payload:
                yield from _read(payload)
    else:
        yield from _read(content)


def _read(raw: bytes) -> Iterator[Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return
    yield from value if isinstance(value, list) else [value]  # Gemini streams an array where no SSE is asked for


def _amazon(content: bytes) -> Iterator[bytes]:
    """The payloads of an event stream: https://smithy.io/2.0/aws/amazon-eventstream.html. Cut messages are left out."""
    at = 0
    while at + 16 <= len(content):
        total, headers = (int.from_bytes(content[at + start : at + start + 4], "big") for start in (0, 4))
        if total < 16 + headers or at + total > len(content):
            return
        yield content[at + 12 + headers : at + total - 4]
        at += total


def _counted(format: Format, event: Any) -> Usage:
    if not isinstance(event, Mapping):
        return {}
    found: Usage = {}
    for place in _PLACES[format](event):
        if isinstance(place, Mapping):
            counted = _COUNTED[format](place)
            found.update({name: count for name, count in counted.items() if isinstance(count, int)})  # type: ignore[typeddict-item]
    return found


def _inner(event: Mapping[str, Any], name: str) -> Any:
    value = event.get(name)
    return value.get("usage") if isinstance(value, Mapping) else None


_PLACES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[Any]]]] = {
    "openai_chat": lambda event: (event.get("usage"),),
    "openai_responses": lambda event: (event.get("usage"), _inner(event, "response")),
    "anthropic_messages": lambda event: (_inner(event, "message"), event.get("usage")),
    "gemini_contents": lambda event: (event.get("usageMetadata"),),
    "bedrock_converse": lambda event: (event.get("usage"),),
}


def _gemini(usage: Mapping[str, Any]) -> Usage:
    said = [usage.get(name) for name in ("candidatesTokenCount", "thoughtsTokenCount")]
    output = sum(each for each in said if isinstance(each, int))
    return {
        "input_tokens": usage.get("promptTokenCount"),
        "cached_tokens": usage.get("cachedContentTokenCount"),
        "output_tokens": output or None,
    }


def _bedrock(usage: Mapping[str, Any]) -> Usage:
    return {
        "input_tokens": usage.get("inputTokens"),
        "cached_tokens": usage.get("cacheReadInputTokens"),
        "cache_write_tokens": usage.get("cacheWriteInputTokens"),
        "output_tokens": usage.get("outputTokens"),
    }


_COUNTED: Final[Mapping[str, Callable[[Any], Usage]]] = {
    **{format: dialect.counted for format, dialect in DIALECTS.items()},
    "gemini_contents": _gemini,
    "bedrock_converse": _bedrock,
}
