"""The agent's side of one request: its body, and the answer to it, each within a time.

An agent that sends headers and no body, or takes no more of its answer, would keep its place among the requests for
ever; a machine that loses its power closes no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from io import BytesIO
from typing import Final

from aiohttp import web

from prompt_sidecar.calls.options import ServerOptions

_WRITTEN_AT_ONCE: Final = 65_536
"""Bytes of an answer that are left to the connection, whether the agent takes them or not."""


class LateBody(Exception):
    """A request's body did not come in time."""


class NotTaken(ConnectionError):
    """An agent has taken nothing of its answer for too long; its connection is cut off."""


class RequestingAgent:
    """Who has sent a request. `reached` is called with the name of each bound that is reached."""

    def __init__(self, request: web.Request, limits: ServerOptions, reached: Callable[[str], None]) -> None:
        self._request = request
        self._limits = limits
        self._reached = reached
        self.came = 0
        """Bytes of its body that came."""
        self.late = False
        """Whether its body did not come in time."""
        self.broken = False
        """Whether the provider broke its answer off."""
        self.answering = False
        """Whether an answer to it has begun."""
        self.stopping: Callable[[], bool] = lambda: False
        """Whether requests in progress are ended, as the grace of a stop is over."""
        self.hold: Callable[[int], None] = lambda _: None
        """Is told of each part of a body that is kept, in bytes; raises TooLarge where there is no room for it."""
        self.hold_answer: Callable[[int], None] = lambda _: None
        """The same for parts of the answer to it that are kept."""
        self.let_go: Callable[[int], None] = lambda _: None
        """Is told what of a body is kept no more, in bytes, before the request is answered."""
        self.settle: Callable[[], None] = lambda: None
        """Is called when nothing more is made of the body: the prompt has been sent on."""
        self.settle_answer: Callable[[], None] = lambda: None
        """The same for the answer: what comes of it passes."""

    async def body(self, most: int) -> bytes:
        """Return the request's body. As `request.read`, which copies it twice.

        Raises:
            HTTPRequestEntityTooLarge: it has more than `most` bytes.
            LateBody: it did not come in time.
            TooLarge: the memory for bodies is in use by others.
        """
        try:
            async with asyncio.timeout(self._limits.message_timeout):
                return await self._read(most)
        except TimeoutError:
            raise self._is_late() from None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Return the body in pieces, whatever its size.

        The agent's connection is cut off where a piece is not taken in time: as long as it waits nothing is read of the
        agent, not even that it has gone.

        Raises:
            LateBody: the next one does not come in time.
        """
        content, loop = self._request.content, asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(self._limits.message_timeout):
                    piece = await content.readany()
            except TimeoutError:
                raise self._is_late() from None
            if not piece:
                return
            self.came += len(piece)
            waiting = loop.call_later(self._limits.answer_timeout, self._not_taken)
            try:
                yield piece
            finally:
                waiting.cancel()

    def begun(self, status: int, reason: str | None, headers: Mapping[str, str]) -> web.StreamResponse:
        """Return an answer that comes in pieces."""
        self.answering = True
        return web.StreamResponse(status=status, reason=reason, headers=headers)

    async def send(
        self, body: bytes, headers: Mapping[str, str], status: int = 200, reason: str | None = None
    ) -> web.StreamResponse:
        """Send a whole answer. Raises NotTaken."""
        self.answering = True
        if len(body) <= _WRITTEN_AT_ONCE:
            response: web.StreamResponse = web.Response(status=status, reason=reason, headers=headers, body=body)
            await response.prepare(self._request)
        else:
            response = self.begun(status, reason, headers)
            response.content_length = len(body)
            await response.prepare(self._request)
            await self.write(response, body)
        await self.end(response)
        return response

    async def write(self, response: web.StreamResponse, piece: bytes) -> None:
        """Send a piece of the answer. Raises NotTaken."""
        await self.taken(response.write(piece))

    async def end(self, response: web.StreamResponse) -> None:
        """Send the end of the answer, behind what earlier answers have left to the connection. Raises NotTaken."""
        await self.taken(self._ended(response))

    async def taken(self, sending: Awaitable[None]) -> None:
        """Wait until the agent has taken what is sent. Raises NotTaken."""
        try:
            async with asyncio.timeout(self._limits.answer_timeout):
                await sending
        except TimeoutError:
            self._not_taken()
            raise NotTaken from None

    def cut_off(self) -> None:
        """Break the agent's connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _ended(self, response: web.StreamResponse) -> None:
        await response.write_eof()
        await self._request.writer.drain()  # aiohttp leaves this out where it has nothing to write

    async def _read(self, most: int) -> bytes:
        found, size = BytesIO(), 0  # it gives away what it has collected, without a copy
        content = self._request.content
        content.set_read_chunk_size(most)
        while part := await content.readany():
            size += len(part)
            self.came = size
            if size > most:
                raise web.HTTPRequestEntityTooLarge(most, size)
            self.hold(len(part))
            found.write(part)
        return found.getvalue()

    def _not_taken(self) -> None:
        self._reached("server.answer_timeout")
        self.cut_off()

    def _is_late(self) -> LateBody:
        self.late = True
        self._reached("server.message_timeout")
        return LateBody()


def connection(request: web.Request) -> str:
    """Return the connection that a request came on."""
    return "" if request.transport is None else str(request.transport.get_extra_info("peername"))
