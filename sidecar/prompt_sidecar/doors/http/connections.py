"""Limits agents' connections: their number, and the time until the first request.

Any client can connect and stay silent, and each connection takes a file descriptor. So their number is limited. At the
limit the connection that has been without a request for longest is closed, one that has never sent a request first; if
all have a request in progress, the new connection is closed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.pool import InFlight
from prompt_sidecar.doors.http.wires import Between


class Connections:
    """The connections of a door. On its event loop only, except `wait_for_none`."""

    def __init__(self, limits: ServerOptions, reached: Callable[[str], None]) -> None:
        """`reached` is called with the name of each bound that is reached."""
        self._most = limits.max_connections
        self._seconds = limits.handshake_timeout
        self._reached = reached
        self._open = InFlight()
        self._silent: OrderedDict[asyncio.BaseTransport, asyncio.TimerHandle] = OrderedDict()
        """Connections without a request so far."""
        self._idle: OrderedDict[asyncio.BaseTransport, None] = OrderedDict()
        """Connections between two requests, the one idle for longest first."""

    def wait_for_none(self, seconds: float) -> None:
        """Wait until no connection is open, at most so many seconds. From another thread."""
        self._open.wait_for_none(seconds)

    def bounded(self, make: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """Return a protocol factory that enforces the limits around the server's factory `make`."""
        return lambda: _Connection(self, make())

    @contextmanager
    def asking(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Mark a connection as having a request in progress, within this context."""
        if transport is None:
            yield
            return
        if (timer := self._silent.pop(transport, None)) is not None:
            timer.cancel()
        self._idle.pop(transport, None)
        try:
            yield
        finally:
            if not transport.is_closing():
                self._idle[transport] = None

    def opened(self, transport: asyncio.Transport) -> bool:
        """Register a new connection; return whether the limit allows it."""
        if self._open.count >= self._most:
            self._reached("server.max_connections")
            oldest = next(iter(self._silent or self._idle), None)
            if not isinstance(oldest, asyncio.Transport):
                return False
            self._forget(oldest)
            oldest.abort()
        self._open.add()
        self._silent[transport] = asyncio.get_running_loop().call_later(self._seconds, self._expired, transport)
        return True

    def closed(self, transport: asyncio.Transport) -> None:
        """Forget a registered connection."""
        self._open.remove()
        self._forget(transport)

    def _expired(self, transport: asyncio.Transport) -> None:
        self._reached("server.handshake_timeout")
        self._forget(transport)
        transport.abort()

    def _forget(self, transport: asyncio.Transport) -> None:
        if (timer := self._silent.pop(transport, None)) is not None:
            timer.cancel()
        self._idle.pop(transport, None)


class _Connection(Between):
    """Forwards events to the server's own protocol, unless the connection is over the limit."""

    def __init__(self, connections: Connections, protocol: asyncio.Protocol) -> None:
        super().__init__(protocol)
        self._connections = connections
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or close it at the limit."""
        assert isinstance(transport, asyncio.Transport)
        if self._connections.opened(transport):
            self._transport = transport
            self._protocol.connection_made(transport)
        else:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        if self._transport is not None:
            self._connections.closed(self._transport)
            super().connection_lost(error)
