"""The MCP server over stdio or streamable HTTP.

Over HTTP it has no sessions, so that any replica can answer any request, and no streams that a host opens by GET: it
sends no messages of its own, and such streams would occupy all connections. The Host header must be a name of loopback,
or one of `hosts`; so must the Origin header, if a browser sends one: a web page must not reach the tools by another
name of this machine (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from prompt_sidecar.mcp.connections import Connection
from prompt_sidecar.mcp.options import MOST_BODY_BYTES, MOST_CALLS, McpOptions
from prompt_sidecar.mcp.relay import Relay
from prompt_sidecar.mcp.telemetry import Middleware, Telemetry, begin

_log = logging.getLogger("prompt_sidecar.mcp")
_THEIRS = "OpenTelemetryMiddleware"
"""The middleware of MCP's library that ours replaces."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def run(options: McpOptions) -> None:
    """Serve until stdin ends, or until a signal arrives.

    Raises:
        ValueError: the address cannot be used.
        OSError: the address cannot be listened on.
    """
    relay = Relay(options)
    try:
        installed = version("prompt-sidecar")
    except PackageNotFoundError:
        installed = ""
    server: Server[Any] = Server(
        "prompt-sidecar", version=installed, on_list_tools=relay.list_tools, on_call_tool=relay.call_tool
    )
    telemetry = begin(installed=installed)
    ours = Middleware(telemetry, "tcp" if options.listen else "pipe")
    server.middleware[:] = [ours, *(each for each in server.middleware if type(each).__name__ != _THEIRS)]
    end = _flush_at(signal.SIGTERM, telemetry)
    try:
        if options.listen:
            _over_http(options, server)
        else:
            asyncio.run(_over_stdio(server, relay, end))
    finally:
        signal.signal(signal.SIGTERM, end)  # the loop has taken its own away
        telemetry.stop()


def _flush_at(number: signal.Signals, telemetry: Telemetry) -> Callable[..., None]:
    """Have a signal take effect once everything is pushed; return the handler. uvicorn raises caught signals again."""

    def end(*_: object) -> None:
        telemetry.stop()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    signal.signal(number, end)
    return end


async def _over_stdio(server: Server[Any], relay: Relay, end: Callable[[], None]) -> None:
    if sys.platform != "win32":  # loops there have no handlers
        # Python's own handler would run with the loop's next event if another thread receives the signal.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await relay.close()


def _over_http(options: McpOptions, server: Server[Any]) -> None:
    host, port = options.address
    names = [*_LOOPBACK, *options.hosts]
    hosts = [each for name in names for each in (name, f"{name}:*")]
    origins = [f"{scheme}://{each}" for each in hosts for scheme in ("http", "https")]
    application = server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=MOST_BODY_BYTES,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=origins
        ),
        host=host,
    )
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("mcp").setLevel(logging.WARNING)
    configuration = uvicorn.Config(
        _PostOnly(application),
        host=host,
        port=port,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        limit_concurrency=MOST_CALLS,
    )
    _log.info("MCP on http://%s:%s/mcp, the sidecar at %s", host, port, options.target)
    uvicorn.Server(configuration).run()


class _PostOnly:
    """Answers all methods but POST with 405, as MCP requires of a server without such streams."""

    def __init__(self, application: Any) -> None:
        """`application`, an ASGI application, answers POST."""
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] == "POST":
            await self._application(scope, receive, send)
            return
        headers = [(b"allow", b"POST"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 405, "headers": headers})
        await send({"type": "http.response.body"})
