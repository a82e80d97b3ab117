"""The providers' side: connections, addresses, headers, and what a refusal means.

A request is sent to its provider's address in the settings, whatever its own `Host` or target says, and over verified
TLS unless that address is on loopback. Nothing is retried here: SDKs have their own rules for that.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, Final

import aiohttp
from multidict import CIMultiDict, MultiMapping
from yarl import URL

from prompt_sidecar.calls.headers import PREFIX
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.providers.api import Provider
from prompt_sidecar.providers.refusals import says_bound_thinking
from prompt_sidecar.providers.table import PROVIDERS

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
    }
)
"""Hop-by-hop headers (RFC 9110, section 7.6.1), also older ones that are still sent. `Expect` is answered by the door,
which sends bodies without waiting: many servers never send `100 Continue`."""
_VERSION: Final = re.compile(r"v[0-9]+[a-z0-9]*")
"""A path segment that names a version of an API: v1, v1beta."""
_log = logging.getLogger("prompt_sidecar.http")
_TRACEPARENT: Final = "traceparent"
_OF_TRACES: Final = frozenset({"tracestate", "baggage"})
"""W3C headers that are never sent to a provider: they carry data between the agent's own systems."""
_NEVER: Final = _HOP_BY_HOP | _OF_TRACES
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""All control characters but the tab."""


def refuses_thinking(status: int, body: bytes) -> bool:
    """Whether a provider refused a prompt because its thinking is bound to another prompt."""
    return status == 400 and says_bound_thinking(body[:MOST_ERROR].decode("utf-8", "replace"))


def forwarded(headers: MultiMapping[str], *without: str) -> CIMultiDict[str]:
    """Return the headers to forward: all except hop-by-hop headers, trace headers, the sidecar's own, and `without`.

    Providers' headers may contain control characters, which cannot be forwarded: each becomes a space (RFC 9110,
    section 5.5).
    """
    named = set(without)
    for line in headers.getall("connection", ()):
        named.update(each.strip().lower() for each in line.split(","))
    kept: list[tuple[str, str]] = []
    for name, value in headers.items():
        lower = name.lower()
        if lower not in _NEVER and lower not in named and not lower.startswith(PREFIX):
            kept.append((name, value if value.isprintable() else _CONTROLS.sub(" ", value)))
    return CIMultiDict(kept)


def reason(answer: aiohttp.ClientResponse) -> str | None:
    """Return a response's reason phrase; None if it has characters that cannot be sent: use the standard one."""
    words = answer.reason or ""
    return words if words.isascii() and words.isprintable() else None


def media_type(answer: aiohttp.ClientResponse) -> str:
    """Return a response's content type in lower case, without parameters, or an empty string.

    aiohttp also parses the parameters, in quadratic time: a minute for a header of 60 kB.
    """
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


MOST_ERROR: Final = 65_536
"""Bytes of an error body that are read; real ones have some hundred."""


class NoAnswer(aiohttp.ClientError):
    """A provider's status that does not end a request."""


def checked(answer: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    """Return the response. Raises NoAnswer if the agent would wait for another one, or leave HTTP."""
    if answer.status < 200:
        raise NoAnswer
    return answer


class ProviderSocket(aiohttp.ClientWebSocketResponse):
    """A WebSocket to a provider, with its connection's `Wire`."""

    def __init__(self, reader: Any, writer: Any, protocol: str | None, response: Any, *more: Any, **named: Any) -> None:
        super().__init__(reader, writer, protocol, response, *more, **named)
        self.transport: asyncio.Transport = response.connection.transport
        self.headers: MultiMapping[str] = response.headers


class Upstreams:
    """Connections to the providers. Created and closed on the event loop.

    Args:
        options: the providers' addresses and the headers sent to them.
        traceparent: returns the header for the call being sent; empty if it is not traced.
    """

    def __init__(self, options: HttpOptions, traceparent: Callable[[], str] = str) -> None:
        self._traceparent = traceparent if options.traceparent == "send" else None
        self._bases = {each: getattr(options, f"{each}_upstream", each.upstream) for each in PROVIDERS}
        urls = {each: URL(base) for each, base in self._bases.items()}
        self._addresses = {each: (url.host or "", url.port or 0) for each, url in urls.items()}
        self._doubled: set[Provider] = set()
        """Providers for which the log has warned that both their address and agents' paths contain a version."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=_READ_BYTES,
            ws_response_class=ProviderSocket,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
        )

    def url(self, provider: Provider, target: URL) -> URL:
        """Return the URL for a request, from the path and query of `target`.

        If the provider's address ends with the version that the path begins with, as an SDK's base URL does, the URL
        contains the version once.
        """
        query = f"?{target.raw_query_string}" if target.raw_query_string else ""
        path = target.raw_path if target.raw_path.startswith("/") else "/" + target.raw_path
        base = self._bases[provider].rstrip("/")
        version = base.rpartition("/")[2]
        if _VERSION.fullmatch(version) and (path + "/").startswith(f"/{version}/"):
            path = path.removeprefix(f"/{version}")
            self._say_doubled(provider, version)
        return URL(base + path + query, encoded=True)

    def _say_doubled(self, provider: Provider, version: str) -> None:
        if provider in self._doubled:
            return
        self._doubled.add(provider)
        _log.warning(
            "http.%s_upstream ends with /%s, and agents send it too: it is sent once; leave it out of the setting",
            provider,
            version,
        )

    def address(self, provider: Provider) -> tuple[str, int]:
        """Return host and port of a provider; empty and 0 if not known."""
        return self._addresses[provider]

    def _trace(self, headers: CIMultiDict[str]) -> None:
        """Set the trace context in the headers of a request, or remove it."""
        if self._traceparent is None:
            headers.popall(_TRACEPARENT, None)
        elif context := self._traceparent():
            headers[_TRACEPARENT] = context

    def send(self, provider: Provider, method: str, target: URL, headers: CIMultiDict[str], data: Any) -> Any:
        """Send a request; use the result with `async with`, as aiohttp's."""
        self._trace(headers)
        return self._session.request(
            method, self.url(provider, target), headers=headers, data=data, allow_redirects=False
        )

    def connect(
        self,
        provider: Provider,
        target: URL,
        headers: CIMultiDict[str],
        protocols: tuple[str, ...],
        most_bytes: int,
    ) -> Any:
        """Open a WebSocket with messages of at most `most_bytes`; use the result with `async with`, as aiohttp's.

        The context's value is a `ProviderSocket`.
        """
        url = self.url(provider, target)
        self._trace(headers)
        return self._session.ws_connect(
            url.with_scheme({"https": "wss", "http": "ws"}[url.scheme]),
            headers=headers,
            protocols=protocols,
            max_msg_size=most_bytes,
            autoping=True,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


_READ_BYTES: Final = 262_144
"""Bytes of an answer that are buffered ahead of the agent: four times aiohttp's default, as answers reach a
megabyte."""
_LINE_BYTES: Final = 65_536
"""Longest header line, in bytes: some gateways send cookies and traces of more than aiohttp's 8,190."""
