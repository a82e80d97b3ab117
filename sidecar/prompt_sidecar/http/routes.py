"""Which provider a request is for, and which dialect reads it: by its path, and where that is no help by its headers.

A path that is not known passes through to its provider, so everything else that a provider offers works as without the
sidecar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from posixpath import normpath
from typing import Final
from urllib.parse import unquote

from prompt_sidecar.serving.dialects.base import Dialect
from prompt_sidecar.serving.dialects.table import DIALECTS
from prompt_sidecar.serving.provider_paths import LONGEST_PATH, provider_path

SIGNED: Final = "AWS4-HMAC-SHA256"
"""How a credential begins that signs the body too, so that the body cannot be changed."""


class Provider(StrEnum):
    """Whose API a request is for."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    BEDROCK = "bedrock"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes and how it is read."""

    name: str
    """In metrics."""
    provider: Provider
    dialect: Dialect | None = None
    """None: it passes through."""
    model: str = ""
    """The model that the path names; empty: the body does."""
    counting: bool = False
    """Whether only tokens are to be counted."""
    in_array: bool = False
    """Whether the answer is asked for as an array that comes in pieces, which is not read event by event."""


PASSED: Final = "passed_through"

_BY_FORMAT: Final[Mapping[str, Route]] = {
    format_name: Route(name, provider, DIALECTS[format_name])
    for format_name, name, provider in (
        ("openai_chat", "chat_completions", Provider.OPENAI),
        ("openai_responses", "responses", Provider.OPENAI),
        ("anthropic_messages", "messages", Provider.ANTHROPIC),
        ("gemini_contents", "generate_content", Provider.GEMINI),
        ("bedrock_converse", "converse", Provider.BEDROCK),
    )
}
_MESSAGES: Final = DIALECTS["anthropic_messages"]
_GEMINI: Final = DIALECTS["gemini_contents"]
_COUNTING: Final = re.compile(r"/(?:models|tunedModels)/([^/:]+)(?::|%3[Aa])countTokens$")
_GEMINI_PATH: Final = re.compile(r"/(?:v1|v1beta|v1alpha)/(?:models|tunedModels)/")


def route(method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> Route:
    """Return a request's route.

    Args:
        method: of HTTP.
        path: without the query, as it was sent.
        headers: the request's.
        query: the request's.
    """
    known = _known(path, query) if method == "POST" else None
    if known is not None and known.provider is Provider.BEDROCK and SIGNED in headers.get("authorization", ""):
        return Route(PASSED, Provider.BEDROCK)
    return known or Route(PASSED, _provider(path, headers))


def prompts_by_websocket(path: str) -> Route | None:
    """Return the route of the prompts that an agent would send on a WebSocket at a path; None: it would send none.

    More spellings count than for a request with a body: what is not recognised here passes unread.
    """
    of = provider_path("POST", normpath(unquote(path)).lower()[-LONGEST_PATH:])
    return _BY_FORMAT[of.format] if of is not None else None


def _known(path: str, query: Mapping[str, str]) -> Route | None:
    if path.endswith("/v1/messages/count_tokens"):
        return Route("count_tokens", Provider.ANTHROPIC, _MESSAGES, counting=True)
    if (found := _COUNTING.search(path)) is not None:
        return Route("count_tokens", Provider.GEMINI, _GEMINI, unquote(found[1]), counting=True)
    of = provider_path("POST", path)
    if of is None:
        return None
    in_events = of.format != _GEMINI.format or "sse" in (query.get("alt"), query.get("$alt"))
    return replace(_BY_FORMAT[of.format], model=of.model, in_array=of.streams and not in_events)


def _provider(path: str, headers: Mapping[str, str]) -> Provider:
    if path.startswith("/model/"):
        return Provider.BEDROCK
    if path.startswith("/v1beta/") or "x-goog-api-key" in headers or _GEMINI_PATH.match(path):
        return Provider.GEMINI
    if "anthropic-version" in headers or path.startswith("/v1/messages"):
        return Provider.ANTHROPIC
    return Provider.OPENAI
