"""Connections with limits on each use: on its total time, and on the bytes read.

The library sets a timeout for each read from a socket, and buffers what a server sends until the reply is complete. So
a server that sends a byte now and then would hold a call for ever, and one that sends without end would take all
memory. Here a use of a connection, from when it is taken from its pool until it is given back, has one time limit and
one limit on bytes, for the command and the whole reply. Connecting, with TLS and the login, is a use of its own, as it
takes some five round trips. Where either is used up, the library ends the connection, as it does for other errors.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final

from valkey.connection import (
    AbstractConnection,
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
)
from valkey.exceptions import InvalidResponse
from valkey.sentinel import SentinelConnectionPool, SentinelManagedConnection, SentinelManagedSSLConnection

LINE_COST: Final = 128
"""Bytes that each line counts for in addition to its own: an empty value takes as much in Python, and a reply with
three bytes for each value would otherwise take sixty times the memory of its bytes. Sealed values look random, so every
256th of their bytes is a line feed: they count one and a half times."""


class ConnectionUse:
    """The time and the bytes that are left for one use of a connection."""

    def __init__(self, seconds: float, size: int) -> None:
        """Begin a use that may last so many seconds, and read so many bytes as `take` counts them."""
        self._ends = monotonic() + seconds
        self._left = size

    def seconds(self) -> float:
        """Return the seconds that are left, more than 0. Raises TimeoutError, which the library converts to its own."""
        left = self._ends - monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def take(self, data: bytes) -> None:
        """Count bytes that were read. Raises InvalidResponse if there are more than any reply of ours has."""
        self._left -= len(data) + LINE_COST * data.count(b"\n")
        if self._left < 0:
            raise InvalidResponse("the reply is longer than any that was asked for")


class _Socket:
    """The methods of a socket that the library needs. `use` returns the connection's current use."""

    def __init__(self, connected: socket.socket, use: Callable[[], ConnectionUse]) -> None:
        self._socket, self._use = connected, use
        self._most = inf

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of a single read; 0 where the library asks whether there is anything to read."""
        self._most = inf if seconds is None else seconds

    def recv(self, size: int) -> bytes:
        """Read some bytes, within the limits of the use."""
        use = self._use()
        self._socket.settimeout(min(use.seconds(), self._most))
        data = self._socket.recv(size)
        use.take(data)
        return data

    def recv_into(self, buffer: bytearray) -> int:
        """As `recv`; the library's parser in C reads this way, where it is installed."""
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all data; TLS sends it in parts, each with its own timeout."""
        left = memoryview(data)
        while left:
            self._socket.settimeout(self._use().seconds())
            left = left[self._socket.send(left) :]

    def shutdown(self, how: int) -> None:
        """As of any socket."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """As of any socket."""
        self._socket.close()


class _Bounded(AbstractConnection):
    """The common part of the library's kinds of connections."""

    def __init__(
        self, reply_bytes: int, *, socket_timeout: float, socket_connect_timeout: float | None = None, **given: Any
    ) -> None:
        """`given`: the library's other options."""
        self._seconds, self._reply_bytes = socket_timeout, reply_bytes
        self._connect_seconds = socket_timeout if socket_connect_timeout is None else socket_connect_timeout
        self._use: ConnectionUse | None = None
        super().__init__(socket_timeout=socket_timeout, **given)

    def use(self) -> ConnectionUse:
        """Return the current use, which begins when it is first asked for."""
        if self._use is None:
            self._use = ConnectionUse(self._seconds, self._reply_bytes)
        return self._use

    def connect(self) -> None:
        """Connect, unless connected."""
        if self._sock is not None:
            return
        self._use = ConnectionUse(self._connect_seconds, self._reply_bytes)
        try:
            super().connect()  # type: ignore[no-untyped-call]
        finally:
            self._use = None

    def end_use(self) -> None:
        """End the use of a connection that was returned to its pool."""
        self._use = None

    def _connect(self) -> Any:
        self.socket_connect_timeout = self.use().seconds()
        connected = super()._connect()  # type: ignore[safe-super, no-untyped-call]  # of what is mixed in below
        return _Socket(connected, self.use)


class _Plain(_Bounded, Connection):
    pass


class _Tls(_Bounded, SSLConnection):
    def _wrap_socket_with_ssl(self, connected: socket.socket) -> Any:
        connected.settimeout(self.use().seconds())  # for the whole handshake
        return super()._wrap_socket_with_ssl(connected)  # type: ignore[no-untyped-call]


class _Unix(_Bounded, UnixDomainSocketConnection):
    pass


class _Found(SentinelManagedConnection, _Plain):
    pass


class _FoundTls(SentinelManagedSSLConnection, _Tls):
    pass


_KINDS: Final[dict[Any, Any]] = {
    Connection: _Plain,
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Unix,
    SentinelManagedConnection: _Found,
    SentinelManagedSSLConnection: _FoundTls,
}


class BoundedPool(ConnectionPool):
    """A pool of such connections."""

    def __init__(self, *, reply_bytes: int, connection_class: Any = Connection, **given: Any) -> None:
        """`reply_bytes`: most bytes that a use may read; `given`: the library's options, with a socket_timeout."""
        super().__init__(connection_class=partial(_KINDS[connection_class], reply_bytes=reply_bytes), **given)

    def release(self, connection: Any) -> None:
        """Take a connection back."""
        connection.end_use()
        super().release(connection)


class FoundPool(SentinelConnectionPool, BoundedPool):
    """A pool of such connections to the primary that Sentinels name, who are asked at each connecting."""
