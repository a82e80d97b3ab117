"""Which provider a request is for, and which dialect reads it: by its path, and where that is no help by its headers.

A path that is not known passes through to its provider, so everything else that a provider offers works as without the
sidecar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Final
from urllib.parse import unquote

from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.calls.passing import passes
from prompt_sidecar.facts.untrimmed import Untrimmed
from prompt_sidecar.providers.api import Provider, signs_body
from prompt_sidecar.providers.table import LONGEST_PATH, api_of, provider_of


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
    compacting: bool = False
    """Whether the provider answers with a shorter history."""
    untrimmed: Untrimmed | None = None
    """Why it passes through; None: it does not."""
    in_array: bool = False
    """Whether the answer is asked for as an array that comes in pieces, which is not read event by event."""


PASSED: Final = "passed_through"
COUNTED: Final = "count_tokens"
"""Requests that only count tokens, of whichever API."""


def route(method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> Route:
    """Return a request's route.

    Args:
        method: of HTTP.
        path: without the query, as it was sent.
        headers: the request's.
        query: the request's.
    """
    found = api_of(path) if method == "POST" else None
    if found is None:
        return Route(PASSED, provider_of(path, headers), untrimmed=passes(method, path, headers))
    api = found.api
    if signs_body(headers):
        return Route(PASSED, api.provider, untrimmed=Untrimmed.SIGNED)
    return Route(
        COUNTED if found.counts else api.route,
        api.provider,
        DIALECTS[api.format],
        found.model,
        counting=found.counts,
        compacting=found.compacts,
        in_array=found.streams and api.streams_array(query),
    )


def prompts_by_websocket(path: str) -> Route | None:
    """Return the route of the prompts that an agent would send on a WebSocket at a path; None: it would send none.

    More spellings count than for a request with a body: what is not recognised here passes unread.
    """
    found = api_of(normpath(unquote(path)).lower()[-LONGEST_PATH:])
    if found is None or not found.asks:
        return None
    return Route(found.api.route, found.api.provider, DIALECTS[found.format])


def trimmed_by_websocket(path: str) -> Route | None:
    """Return the route of prompts on a WebSocket at a path where they can be trimmed; None: they cannot, or are none.

    The path has to be spelt as for a request with a body: the provider may read another spelling otherwise.
    """
    found = api_of(path)
    if found is None or found.counts or not found.api.websocket or not path.endswith(found.api.websocket):
        return None
    return Route(found.api.route, found.api.provider, DIALECTS[found.format])
