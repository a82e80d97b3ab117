"""One side's connection of a WebSocket, byte by byte: counts buffered bytes, and detects a dead peer.

aiohttp delivers a message when it is complete, and buffers its beginning until then. So bytes are counted when they
arrive, and released once their message has been forwarded; if there is no memory for more, the rest is discarded.

A peer that has lost power is silent, and so is one that waits. So a silent peer is pinged. It does not count as silent
while it reads what it is sent, since the ping is queued behind that, nor while reading from it is paused because the
other side is slow: its pong would not be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from prompt_sidecar.errors import TooLarge

PING_SECONDS: Final = 60.0
"""Seconds of silence after which a peer is pinged; after as many more its connection is cut. As long as an agent has to
read an answer, so that a slow reader reaches the ping."""
_SMALL, _LARGE = 126, 65_536
"""Message sizes from which on the length is written in two, or in eight, more bytes (RFC 6455, 5.2)."""
_HEAD, _MASK = 2, 4
"""Bytes of a frame header for a small message, and of an agent's masking key."""


class Between(asyncio.Protocol):
    """A protocol between a transport and its real protocol that forwards every event."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol

    def connection_lost(self, error: Exception | None) -> None:
        """Forward the event."""
        self._protocol.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Forward the event."""
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward the event."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Forward the event."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Forward the event."""
        self._protocol.resume_writing()


class Wire(Between):
    """A protocol between a transport and its real protocol, until `leave`. On the event loop only."""

    def __init__(
        self,
        transport: asyncio.Transport,
        hold: Callable[[int], None],
        let_go: Callable[[int], None],
        full: Callable[[], None],
        *,
        masked: bool,
    ) -> None:
        """Insert this protocol between the transport and its protocol.

        Args:
            transport: of the connection.
            hold: counts bytes as buffered; raises TooLarge if there is no memory.
            let_go: releases counted bytes.
            full: called once, when there is no memory; what arrives from then on is discarded.
            masked: whether the side masks its messages, as agents do.
        """
        super().__init__(cast("asyncio.Protocol", transport.get_protocol()))  # both sides' are aiohttp's
        self._transport = transport
        self._hold = hold
        self._let_go = let_go
        self._full = full
        self._drops = False
        self._head = _HEAD + (_MASK if masked else 0)
        self._held = 0
        self._unsent = 0
        """Bytes not yet sent to the peer at the last check."""
        self._received = False
        """Whether bytes have arrived since the last check."""
        transport.set_protocol(self)

    def leave(self) -> None:
        """Give the connection back to its protocol, and release all counted bytes."""
        if not self._transport.is_closing():  # its protocol needs the end of the connection
            self._transport.set_protocol(self._protocol)
        self._let_go(self._held)
        self._held = 0

    def went_on(self, size: int) -> None:
        """Release the bytes of a message of `size` bytes that has been forwarded.

        A message of several frames had more headers. These few bytes stay counted until `leave`.
        """
        gone = min(self._held, size + self._head + (0 if size < _SMALL else 2 if size < _LARGE else 8))
        self._held -= gone
        self._let_go(gone)

    async def watch(self, ping: Callable[[], Awaitable[None]]) -> None:
        """Ping the peer when it is silent, and cut the connection when it stays so. Returns only then."""
        pinged = False
        while True:
            await asyncio.sleep(PING_SECONDS)
            if self._shows_life():
                pinged = False
            elif pinged:
                self._transport.abort()
                return
            else:
                pinged = True
                if not self._unsent:  # otherwise it still has bytes to read
                    await ping()

    def _shows_life(self) -> bool:
        """Whether bytes arrived or were accepted since the last check, or reading is paused."""
        unsent, received = self._transport.get_write_buffer_size(), self._received
        moved = unsent != self._unsent
        self._unsent, self._received = unsent, False
        return received or moved or not self._transport.is_reading()

    def data_received(self, data: bytes) -> None:
        """Count the bytes, and forward them."""
        self._received = True
        if self._drops:
            return
        try:
            self._hold(len(data))
        except TooLarge:
            self._drops = True
            self._full()
            return
        self._held += len(data)
        super().data_received(data)
