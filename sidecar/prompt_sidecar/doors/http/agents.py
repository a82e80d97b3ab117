"""The agent's side of one request: reads its body and sends the answer, each with a timeout.

An agent that sends headers but no body, or stops reading its answer, would otherwise occupy a slot of
`http.max_requests` for ever; a machine that loses power closes no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from functools import partial
from types import coroutine
from typing import Any, Final

from aiohttp import web

from prompt_sidecar.calls.options import ServerOptions

_WRITTEN_AT_ONCE: Final = 65_536
"""Bytes of an answer that are buffered by the connection, whether or not the agent reads them."""


class LateBody(Exception):
    """A request's body did not arrive in time."""


class NotTaken(ConnectionError):
    """An agent has read nothing of its answer for too long; its connection is cut."""


class RequestingAgent:
    """The agent behind one request. `reached` is called with the name of each bound that is reached."""

    def __init__(self, request: web.Request, limits: ServerOptions, reached: Callable[[str], None]) -> None:
        self._request = request
        self._limits = limits
        self._reached = reached
        self.received_bytes = 0
        """Bytes of the request's body received so far."""
        self.late = False
        """Whether the body did not arrive in time."""
        self.broken = False
        """Whether the provider's answer was cut off."""
        self.answering = False
        """Whether an answer to the agent has begun."""
        self.stopping: Callable[[], bool] = lambda: False
        """Returns whether requests in progress are being ended, because the grace period of a stop is over."""
        self.hold: Callable[[int], None] = lambda _: None
        """Called with the size of each part of a body that is kept, in bytes; raises TooLarge if there is no memory for
        it."""
        self.hold_answer: Callable[[int], None] = lambda _: None
        """The same for parts of the answer that are kept."""
        self.let_go: Callable[[int], None] = lambda _: None
        """Called with the bytes of a body that are no longer kept, before the request is answered."""
        self.settle: Callable[[], None] = lambda: None
        """Called when the body is no longer needed for processing: the prompt has been forwarded."""
        self.settle_answer: Callable[[], None] = lambda: None
        """The same for the answer: the rest of it passes unread."""

    async def body(self, most: int) -> bytes:
        """Return the request's body. Like `request.read`, but with one copy, not three.

        Raises:
            HTTPRequestEntityTooLarge: it has more than `most` bytes.
            LateBody: it did not arrive in time.
            TooLarge: the memory for bodies is in use by others.
        """
        try:
            async with asyncio.timeout(self._limits.message_timeout):
                return await self._read(most)
        except TimeoutError:
            raise self._is_late() from None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces, without a limit on its size.

        The agent's connection is cut if the consumer does not take a piece in time: until it does, nothing is read from
        the agent, so that a disconnect goes unnoticed.

        Raises:
            LateBody: the next piece does not arrive in time.
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
            self.received_bytes += len(piece)
            waiting = loop.call_later(self._limits.answer_timeout, self._not_taken)
            try:
                yield piece
            finally:
                waiting.cancel()

    def begun(self, status: int, reason: str | None, headers: Mapping[str, str]) -> web.StreamResponse:
        """Begin an answer that is sent in pieces; return its response object."""
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
        """Send a piece of the answer. Raises NotTaken.

        A large one is sent in parts: the connection copies what it is given up to three times, on the event loop.
        """
        if len(piece) <= _WRITTEN_AT_ONCE:
            await self.taken(response.write(piece))
            return
        for at in range(0, len(piece), _WRITTEN_AT_ONCE):
            await self.taken(response.write(piece[at : at + _WRITTEN_AT_ONCE]))
            await asyncio.sleep(0)

    async def end(self, response: web.StreamResponse) -> None:
        """End the answer, after waiting until the connection's buffer is written. Raises NotTaken."""
        await self.taken(self._ended(response))

    async def taken(self, sending: Awaitable[None]) -> None:
        """Wait until the agent has accepted what is sent. Raises NotTaken.

        Most pieces are accepted at once: only if one has to wait is the timeout set, which takes as long as sending.
        """
        steps = sending.__await__()
        try:
            first = next(steps)
        except StopIteration:
            return
        try:
            async with asyncio.timeout(self._limits.answer_timeout):
                await _rest(first, steps)
        except TimeoutError:
            self._not_taken()
            raise NotTaken from None

    def cut_off(self) -> None:
        """Abort the agent's connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _ended(self, response: web.StreamResponse) -> None:
        await response.write_eof()
        await self._request.writer.drain()  # aiohttp does not drain when it has nothing to write

    async def _read(self, most: int) -> bytes:
        found, size = list[bytes](), 0  # joined once: a buffer that grows by large parts takes ten times as long
        content = self._request.content
        content.set_read_chunk_size(most)
        while part := await content.readany():
            size += len(part)
            self.received_bytes = size
            if size > most:
                raise web.HTTPRequestEntityTooLarge(most, size)
            self.hold(len(part))
            found.append(part)
        return b"".join(found)

    def _not_taken(self) -> None:
        self._reached("server.answer_timeout")
        self.cut_off()

    def _is_late(self) -> LateBody:
        self.late = True
        self._reached("server.message_timeout")
        return LateBody()


@coroutine
def _rest(first: Any, steps: Generator[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await the rest of an awaitable whose iterator has yielded `first` already."""
    step = first
    while True:
        try:
            yield step
        except BaseException as error:  # noqa: BLE001 - a cancellation, for example, which it has to see
            proceed = partial(steps.throw, error)
        else:
            proceed = partial(next, steps)
        try:
            step = proceed()
        except StopIteration:
            return


def connection(request: web.Request) -> str:
    """Return an identifier of the connection that a request arrived on."""
    return "" if request.transport is None else str(request.transport.get_extra_info("peername"))
