"""Time limits of hosts' HTTP connections: to send a whole request, and to read the answer.

uvicorn counts connections, refuses requests beyond `MOST_CALLS`, and waits for ever for a connection to send or read,
so that silent ones would keep all hosts out. It is configured to serve each connection with the class below.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, h11

from prompt_sidecar.mcp.options import MOST_CALLS

REQUEST_SECONDS: Final = 20.0
"""Time for a whole request, from the connection or the request's first bytes on: as the sidecar's
server.message_timeout."""
ANSWER_SECONDS: Final = 60.0
"""Time from a whole request until its answer is read, ten seconds of which the sidecar may take: as its
server.answer_timeout."""
_COMES: Final = frozenset({h11.IDLE, h11.SEND_BODY})
"""States of a client whose request is incomplete."""


class Connection(H11Protocol):  # type: ignore[misc]  # typed where it is installed
    """A connection with time limits. See the module."""

    timer: asyncio.TimerHandle | None = None
    """Ends the connection at a time limit."""
    asks: bool = False
    """Whether a request is awaited."""

    def connection_made(self, transport: Any) -> None:
        """Register a connection; at the limit, end the one that has waited longest."""
        super().connection_made(transport)
        self._look()
        if len(self.connections) >= MOST_CALLS:
            waiting = [(each.timer.when(), id(each), each) for each in self.connections if each.timer and each.asks]
            if waiting:
                min(waiting)[-1].give_way()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        self._stop()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Process bytes."""
        super().data_received(data)
        self._look()

    def give_way(self) -> None:
        """End the connection now."""
        self._stop()
        self.transport.abort()

    def _look(self) -> None:
        """Set the timer for what is awaited now; that of an unread answer keeps running, whatever the host sends."""
        asks = self.conn.their_state in _COMES
        if self.transport.is_closing() or (asks and self.asks and self.timer is not None):
            return
        if not asks and not self.asks and self.timer is not None and self.transport.get_write_buffer_size():
            return
        self._stop()
        self.asks = asks
        self.timer = self.loop.call_later(REQUEST_SECONDS if asks else ANSWER_SECONDS, self.give_way)

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
