"""Requests that the door answers by itself, before it looks at their caller.

Requests from web pages of other sites are refused (`browsers.py`); preflights, and paths that no provider has, are
answered here.

A WebSocket for prompts would be forwarded unread: neither trimmed nor masked, and without recall. Those for OpenAI's
Responses API are trimmed, if the settings say so (`response_sockets.py`). Agents that try a WebSocket first change to
HTTP at once when it is answered with 426; after any other refusal Codex retries five times (openai/codex,
codex-rs/core/src/client.rs and responses_retry.rs, read in November 2026).
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Final

import orjson
from aiohttp import web
from multidict import CIMultiDict

from prompt_sidecar.browsers import BrowserHeaders, Visitors
from prompt_sidecar.calls.provider_errors import error_body, error_headers
from prompt_sidecar.calls.readiness import Readiness, State
from prompt_sidecar.doors.http.routes import Route, prompts_by_websocket, trimmed_by_websocket
from prompt_sidecar.providers.table import PROVIDERS

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_PREFLIGHT_SECONDS: Final = 600
"""Seconds for which a browser may cache a preflight's answer; Chromium caches it for 7,200 at most."""
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,4096}")
"""A list of names of headers (RFC 9110, 5.6.2)."""
_HERE: Final = "Agents use this address as the base URL of their model's provider."
_MORE: Final = "Codex and others read it elsewhere: prompt-sidecar wrap AGENT sets it for one agent; see docs/http.md."
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Prompt Sidecar</title></head>
<body><main><h1>Prompt Sidecar</h1><p>{here} {state}</p><pre>{variables}</pre><p>{more}</p></main></body></html>
"""
_PAGE_HEADERS: Final = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}
_PROBES: Final = frozenset({"/health", "/readyz"})


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the door's own; `route` and `outcome` are values of the metric."""

    response: web.Response
    route: str
    outcome: str = "answered"


class Front:
    """Answers requests that need no caller. See the file.

    Args:
        visitors: refuses requests from web pages of other sites.
        readiness: what health probes are answered.
        trims_sockets: whether WebSockets for prompts are accepted.
    """

    def __init__(self, visitors: Visitors, readiness: Readiness, *, trims_sockets: bool) -> None:
        self._visitors = visitors
        self._readiness = readiness
        self._trims_sockets = trims_sockets

    def reply(self, request: web.Request, found: Route, name: str) -> Reply | None:
        """Return the answer to a request with this route, `name` in metrics; None if the door has to serve it."""
        if (refusal := self._visitors.refusal(_sent(request))) is not None:
            return Reply(error_response(found, refusal.status, refusal.message, refusal.reason), name, "refused")
        if request.method == "OPTIONS":
            return Reply(_preflight(request), name)
        path = request.rel_url.raw_path
        if request.method in {"GET", "HEAD"} and path in {"", "/"}:
            return Reply(self._here(request), name)
        if request.method in {"GET", "HEAD"} and path in _PROBES:
            return Reply(self._health(path), name)
        if request.method in {"GET", "HEAD"} and path == "/metrics":
            message = "metrics are served at telemetry.metrics_listen, by default http://127.0.0.1:9464/metrics"
            return Reply(error_response(found, 404, message, "NOT_SERVED"), name)
        if opens_websocket(request) and (prompts := prompts_by_websocket(path)) is not None:
            return None if self.trimmed(request) else Reply(use_http(prompts), prompts.name, "sent_to_http")
        return None

    def _here(self, request: web.Request) -> web.Response:
        """Return what this server is, whether it is ready, and the URL for agents: a page for browsers, else a text."""
        address = f"{request.scheme}://{request.host}"
        own = [each.base_urls[0] for each in PROVIDERS if each.base_urls]
        lines = [f"{each.variable}={address}{each.path}" for each in own]
        state = "It is ready." if self._readiness.state is State.SERVING else "It is not ready."
        if "text/html" not in request.headers.get("accept", ""):
            return web.Response(text="\n".join([f"Prompt Sidecar. {_HERE} {state}", "", *lines, "", _MORE, ""]))
        variables = html.escape("\n".join(lines))
        page = _PAGE.format(here=_HERE, state=state, variables=variables, more=_MORE)
        return web.Response(text=page, content_type="text/html", headers=_PAGE_HEADERS)

    def _health(self, path: str) -> web.Response:
        """Return whether calls are answered, in the format of headroom's proxy; `/readyz` also by its status."""
        state = self._readiness.state
        ready = state is State.SERVING
        health = {"service": "prompt-sidecar", "status": "healthy" if ready else state.name.lower(), "ready": ready}
        status = 200 if ready or path != "/readyz" else 503
        return web.Response(status=status, body=orjson.dumps(health), content_type="application/json")

    def trimmed(self, request: web.Request) -> Route | None:
        """Return the route of a WebSocket whose prompts are trimmed; None for any other request."""
        if not self._trims_sockets or request.method != "GET" or not opens_websocket(request):
            return None
        return trimmed_by_websocket(request.rel_url.raw_path)


def use_http(prompts: Route) -> web.Response:
    """Refuse a WebSocket for prompts so that its agent uses HTTP."""
    message = "prompts are taken over HTTP here, not on a WebSocket: POST them to the same path"
    response = error_response(prompts, 426, message, "USE_HTTP")
    response.headers.update({"Upgrade": "HTTP/1.1", "Connection": "Upgrade, close"})
    return response


def opens_websocket(request: web.Request) -> bool:
    """Whether a request asks for a WebSocket; bytes that follow it on its connection are not HTTP."""
    if "upgrade" not in request.headers:
        return False
    protocols = ",".join(request.headers.getall("upgrade", ())).lower().split(",")
    return "websocket" in (each.strip() for each in protocols)


def _sent(request: web.Request) -> BrowserHeaders:
    headers = request.headers

    def all_of(name: str) -> str:
        return ",".join(headers.getall(name)) if name in headers else ""

    return BrowserHeaders(all_of("host"), all_of("origin"), all_of("sec-fetch-site"), all_of("sec-fetch-mode"))


def _preflight(request: web.Request) -> web.Response:
    """Answer a preflight; a page of this machine, or of an origin in the settings, may send any header."""
    headers = {"Allow": _METHODS}
    if origin := request.headers.get("origin"):
        wanted = request.headers.get("access-control-request-headers", "")
        headers |= {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
            "Vary": "Origin",
        }
        if _HEADER_NAMES.fullmatch(wanted):
            headers["Access-Control-Allow-Headers"] = wanted
    return web.Response(status=204, headers=headers)


def error_response(
    found: Route | None, status: int, message: str, reason: str, headers: CIMultiDict[str] | None = None
) -> web.Response:
    """Return an error of the sidecar's in the format of the route's provider, with `headers` added."""
    format_name = "" if found is None or found.dialect is None else found.dialect.format
    all_headers = CIMultiDict[str]() if headers is None else headers
    all_headers.update(error_headers(format_name, status))
    return web.Response(status=status, body=error_body(format_name, status, message, reason), headers=all_headers)
