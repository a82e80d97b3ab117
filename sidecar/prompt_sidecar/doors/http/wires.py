"""One side's connection of a WebSocket, byte by byte: what of its messages is held, and whether it shows life.

aiohttp gives a message when it is whole, and until then keeps its beginning. So bytes are counted as they come in,
and are counted no more once their message has gone on; where there is no room for more, the rest is not kept.

A side that has lost its power says nothing, and neither does one that waits. So one that is silent is pinged. It is not
silent while it takes what it is sent, as the ping stands behind that, nor while it is not read, as the other side is
slow: its answer would not be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from prompt_sidecar.errors import TooLarge

PING_SECONDS: Final = 60.0
"""Of silence, after which a side is pinged; after as many more it is cut off. As long as an agent has to take an
answer, so that one that reads slowly comes to the ping."""
_SMALL, _LARGE = 126, 65_536
"""Bytes of a message from which on its length is written in two, or in eight, bytes more (RFC 6455, 5.2)."""
_HEAD, _MASK = 2, 4
"""Bytes of a frame's head with the length of a small message, and of an agent's mask."""


class Between(asyncio.Protocol):
    """A protocol between a connection and its real protocol that passes everything on."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol

    def connection_lost(self, error: Exception | None) -> None:
        """Hand on."""
        self._protocol.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Hand on."""
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Hand on."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Hand on."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Hand on."""
        self._protocol.resume_writing()


class Wire(Between):
    """A protocol between a connection and its real protocol until `leave`. On the event loop only."""

    def __init__(
        self,
        transport: asyncio.Transport,
        hold: Callable[[int], None],
        let_go: Callable[[int], None],
        full: Callable[[], None],
        *,
        masked: bool,
    ) -> None:
        """Stand there.

        Args:
            transport: the connection.
            hold: counts so many bytes that are held; raises TooLarge where there is no room.
            let_go: counts so many bytes no more.
            full: called once, when there was no room; what comes from then on is dropped.
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
        """Bytes that the side had not taken when it was last asked whether it shows life."""
        self._came = False
        """Whether something has come since."""
        transport.set_protocol(self)

    def leave(self) -> None:
        """Give the connection back to its protocol; nothing is held any more."""
        if not self._transport.is_closing():  # its end is to be handed on
            self._transport.set_protocol(self._protocol)
        self._let_go(self._held)
        self._held = 0

    def went_on(self, size: int) -> None:
        """Note that a message of `size` bytes is no longer held.

        One that came in several frames had as many heads more. These few bytes stay counted until `leave`.
        """
        gone = min(self._held, size + self._head + (0 if size < _SMALL else 2 if size < _LARGE else 8))
        self._held -= gone
        self._let_go(gone)

    async def watch(self, ping: Callable[[], Awaitable[None]]) -> None:
        """Ping the side when it is silent, and cut it off when it stays so. Ends only then."""
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
                if not self._unsent:  # otherwise it has something to take
                    await ping()

    def _shows_life(self) -> bool:
        """Whether something came from the side or was taken by it since the last time, or it cannot be heard now."""
        unsent, came = self._transport.get_write_buffer_size(), self._came
        moved = unsent != self._unsent
        self._unsent, self._came = unsent, False
        return came or moved or not self._transport.is_reading()

    def data_received(self, data: bytes) -> None:
        """Count, and hand on."""
        self._came = True
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
