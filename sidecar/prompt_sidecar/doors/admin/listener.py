"""The listener of the pages: who may read them, and which page is requested.

No client is trusted. Connections and their time are limited. A request must name this machine or a configured name as
its host, and must not come from a page of another site: such a site could let its own name resolve to this address, and
a browser would let it read the answers (`browsers.py`). Beyond loopback a token is required. The pages change nothing,
so there is no need of protection against forged requests.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from prompt_sidecar.browsers import BrowserRefusal, Sites, Visitors
from prompt_sidecar.calls.pages import PagesDoor
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.tokens import Tokens, read_tokens
from prompt_sidecar.doors.admin.options import AdminOptions
from prompt_sidecar.doors.admin.site import PageResponse, Pages
from prompt_sidecar.telemetry.scrapes import Bounds, sent

CONNECTIONS: Final = 16
"""Simultaneous connections: for some people with a browser each, which opens up to six."""
SECONDS: Final = 10.0
"""Time limit of one connection, in seconds."""
QUERY_CHARACTERS: Final = 4_096
QUERY_FIELDS: Final = 8
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)


class Admin(PagesDoor):
    """A `Door` that serves the pages. Raises TokensError if the token file cannot be used."""

    def __init__(self, options: AdminOptions, shared: DoorServices) -> None:
        bounds = Bounds(CONNECTIONS, "admin.connections", SECONDS, "admin.timeout")
        super().__init__("admin.listen", options.listen, self._answer, bounds, shared.observer.reached)
        self._shared = shared
        self._tokens = Tokens(_read(options.tokens_file))
        if options.tokens_file:
            shared.readers.append(lambda: f"admin {self._tokens.replace(_read(options.tokens_file))}")
        self._visitors = Visitors("admin", "admin.hosts", Sites.of(options.hosts, links=True))
        self._visitors.count = shared.observer.foreign
        self._pages = Pages()

    @property
    def notice(self) -> str:
        """The pages' address."""
        return f"pages of runs at http://{self.address}/runs"

    def _answer(self, environment: Any, start: Any) -> Iterable[bytes]:
        answer = self._look(environment)
        headers = [*_HEADERS, ("Content-Type", answer.kind), ("Content-Length", str(len(answer.body)))]
        start(answer.status, [*headers, *answer.headers])
        return [] if environment["REQUEST_METHOD"] == "HEAD" else [answer.body]

    def _look(self, environment: Any) -> PageResponse:
        if (refusal := self._refusal(environment)) is not None:
            return PageResponse.plain(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", refusal.message)
        if environment["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return PageResponse.plain("405 Method Not Allowed", "only GET and HEAD", ("Allow", "GET, HEAD"))
        if self._tokens and self._tokens.caller(token_of(environment.get("HTTP_AUTHORIZATION", ""))) is None:
            challenge = ("WWW-Authenticate", 'Basic realm="prompt-sidecar", charset="UTF-8"')
            return PageResponse.plain("401 Unauthorized", "a token of admin.tokens_file is needed", challenge)
        query = environment.get("QUERY_STRING", "")
        if len(query) > QUERY_CHARACTERS or query.count("&") >= QUERY_FIELDS:
            return PageResponse.plain("400 Bad Request", "the query is too long")
        fields = {name: values[0] for name, values in parse_qs(query).items()}
        return self._pages.answer(environment["PATH_INFO"], fields, self._shared.use_cases.runs)

    def _refusal(self, environment: Any) -> BrowserRefusal | None:
        """Return the refusal of a request that a page of another site may have sent; a browser always names a host."""
        asked = sent(environment)
        if not asked.host:
            return BrowserRefusal(421, "FOREIGN_HOST", "name the host that is asked")
        return self._visitors.refusal(asked)


def token_of(authorization: str) -> str:
    """Return the token in a header, a bearer token or a password, or an empty string."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


def _read(path: str) -> dict[str, str]:
    return dict(read_tokens(path, "admin.tokens_file")) if path else {}
