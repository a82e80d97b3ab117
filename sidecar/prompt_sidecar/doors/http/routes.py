"""Decides by a request's path, or else by its headers, which provider it is for and which dialect reads it.

A request to an unknown path is forwarded to its provider, so everything else that a provider offers works as without
the sidecar.
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
    """The route's name in metrics."""
    provider: Provider
    dialect: Dialect | None = None
    """Reads the request; None if it is forwarded unread."""
    model: str = ""
    """The model that the path names; empty if the body names it."""
    counting: bool = False
    """Whether the request only counts tokens."""
    compacting: bool = False
    """Whether the provider answers with a shorter history."""
    untrimmed: Untrimmed | None = None
    """Why it is forwarded untrimmed; None if it is trimmed."""
    in_array: bool = False
    """Whether the answer is requested as a JSON array that is sent in pieces; its events are not read one by one."""


PASSED: Final = "passed_through"
COUNTED: Final = "count_tokens"
"""Requests of any API that only count tokens."""


def route(method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> Route:
    """Return a request's route.

    Args:
        method: the HTTP method.
        path: as it was sent, without the query.
        headers: of the request.
        query: of the request.
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
    """Return the route of the prompts that an agent sends on a WebSocket at a path; None if it sends no prompts there.

    More spellings of the path are accepted than for a request with a body: an unrecognised WebSocket is forwarded
    unread.
    """
    found = api_of(normpath(unquote(path)).lower()[-LONGEST_PATH:])
    if found is None or not found.asks:
        return None
    return Route(found.api.route, found.api.provider, DIALECTS[found.format])


def trimmed_by_websocket(path: str) -> Route | None:
    """Return the route of prompts on a WebSocket at a path, if they can be trimmed; None otherwise.

    The path has to be spelt as for a request with a body: the provider may interpret another spelling differently.
    """
    found = api_of(path)
    if found is None or found.counts or not found.api.websocket or not path.endswith(found.api.websocket):
        return None
    return Route(found.api.route, found.api.provider, DIALECTS[found.format])
