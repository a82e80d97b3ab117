"""WebSockets pass through, message by message, until one side closes or is lost.

Either side may send without end, take nothing, or go without a word. So a message has a bound, nothing is compressed on
the way (a small frame could become any size), what is held of messages counts among the bodies of requests, an agent
must take each message in time, other requests have their turn between messages, and a silent side is pinged. The other
side is told why a side has closed; a side that was lost has not said so, and nobody may take a part for the whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web
from multidict import CIMultiDict, MultiMapping

from prompt_sidecar.http.agents import Agent
from prompt_sidecar.http.routes import Provider
from prompt_sidecar.http.upstream import ProviderSocket, Upstreams, forwarded
from prompt_sidecar.http.wires import Wire
from prompt_sidecar.serving.provider_errors import error_body, error_headers

_OPENING: Final = (
    "host",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
)
"""Headers of a WebSocket's opening that belong to one connection."""
_MESSAGES_IN_A_TURN: Final = 256
"""Messages that are sent on before other requests have their turn: some two milliseconds."""
_UNSAID: Final = frozenset({1004, 1005, 1006, 1015})
"""Codes of a close that are never sent: they stand for a close without a code, or none (RFC 6455, 7.4.1)."""
_NO_CODE: Final = 1005
_CLOSE_SECONDS: Final = 10.0
"""For a side to answer that a WebSocket is closed; then it is cut off. aiohttp waits so long for each message."""
_NO_ROOM: Final = b"no room for the message (http.body_bytes); retry a little later"

# Its warnings quote the protocols that an agent asks for; some agents put an API key there.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Sockets:
    """Passes WebSockets through: `most_bytes` of one message; `reached` is called when one is longer."""

    upstreams: Upstreams
    most_bytes: int
    reached: Callable[[], None]

    async def passed(self, request: web.Request, agent: Agent, provider: Provider) -> tuple[web.StreamResponse, int]:
        """Pass a WebSocket through until it is closed; return the answer, and the upstream's status."""
        if not self._here().can_prepare(request):
            return _refusal(400, "the request opens no WebSocket (RFC 6455, 4.1)"), 0
        full = asyncio.Event()
        if not isinstance(request.transport, asyncio.Transport):
            raise ConnectionResetError  # the agent has left
        wire = Wire(request.transport, agent.hold, agent.let_go, full.set, masked=True)
        try:
            return await self._connected(request, agent, provider, wire, full)
        except aiohttp.WSServerHandshakeError as error:
            if error.status < 400:
                raise
            return _refusal(error.status, "the provider opens no WebSocket", error.headers), error.status
        finally:
            wire.leave()

    async def _connected(
        self, request: web.Request, agent: Agent, provider: Provider, from_agent: Wire, full: asyncio.Event
    ) -> tuple[web.StreamResponse, int]:
        """Connect the agent with the provider; `full` is set when a message has no room."""
        asked = request.headers.get("sec-websocket-protocol", "")
        protocols = tuple(each.strip() for each in asked.split(",") if each.strip())
        headers = forwarded(request.headers, *_OPENING)
        connecting = self.upstreams.connect(provider, request.rel_url, headers, protocols, self.most_bytes)
        async with connecting as there:
            assert isinstance(there, ProviderSocket)
            from_provider = Wire(there.transport, agent.hold, agent.let_go, full.set, masked=False)
            try:
                here = self._here((there.protocol,) if there.protocol else ())
                await here.prepare(request)
                await self._relayed(_Side(here, from_agent), _Side(there, from_provider), agent, full)
            finally:
                from_provider.leave()
        return here, 101

    async def _relayed(self, here: _Side, there: _Side, agent: Agent, full: asyncio.Event) -> None:
        """Send messages on, both ways, until a side closes or is lost, or one has no room."""
        ways = [
            asyncio.create_task(self._pump(here, there, WSCloseCode.GOING_AWAY, _at_once)),
            asyncio.create_task(self._pump(there, here, WSCloseCode.BAD_GATEWAY, agent.taken)),
            asyncio.create_task(full.wait()),
        ]
        watches = [asyncio.create_task(side.wire.watch(side.socket.ping)) for side in (here, there)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ways[0].done():  # an agent may leave while it is told that its message is too long
                self._count(here.socket.close_code)
            for way in (*ways, *watches):
                way.cancel()
            await asyncio.gather(*ways, *watches, return_exceptions=True)
            told = (WSCloseCode.TRY_AGAIN_LATER, _NO_ROOM) if full.is_set() else (WSCloseCode.SERVICE_RESTART, b"")
            await asyncio.gather(
                _close(there.socket, WSCloseCode.GOING_AWAY), _close(here.socket, *told), return_exceptions=True
            )

    def _here(self, protocols: tuple[str, ...] = ()) -> web.WebSocketResponse:
        return web.WebSocketResponse(protocols=protocols, max_msg_size=self.most_bytes, compress=False)

    async def _pump(
        self, source: _Side, sink: _Side, lost: int, taken: Callable[[Awaitable[None]], Awaitable[None]]
    ) -> None:
        """Send one side's messages to the other until it closes.

        Args:
            source: the one side.
            sink: the other side.
            lost: the code that the other side gets if this one is lost.
            taken: waits until the other side has taken what is sent.
        """
        messages = 0
        while True:
            message = await source.socket.receive()
            if message.type not in {WSMsgType.TEXT, WSMsgType.BINARY}:
                break
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            await taken(sink.socket.send_frame(data, message.type))
            source.wire.went_on(len(data))
            messages += 1
            if not messages % _MESSAGES_IN_A_TURN:
                await asyncio.sleep(0)
        code, reason = lost, b""
        if message.type is WSMsgType.CLOSE:
            code = WSCloseCode.OK if message.data in {0, _NO_CODE} else message.data
            reason = (message.extra or "").encode()
        elif isinstance(message.data, aiohttp.WebSocketError):
            self._count(message.data.code)
        if code in _UNSAID:
            code = lost
        await _close(sink.socket, code, reason)

    def _count(self, code: int | None) -> None:
        """Count that a side was closed for a message that is too long."""
        if code == WSCloseCode.MESSAGE_TOO_BIG:
            self.reached()


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a WebSocket that passes through."""

    socket: Any
    wire: Wire


async def _close(socket: Any, code: int, reason: bytes = b"") -> None:
    """Close one side, which may send on instead of answering."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await socket.close(code=code, message=reason)


async def _at_once(sending: Awaitable[None]) -> None:
    await sending


def _refusal(status: int, message: str, headers: MultiMapping[str] | None = None) -> web.Response:
    """An error of a WebSocket's opening, with the provider's `headers` but for those of a body, which was not read."""
    told = CIMultiDict[str]() if headers is None else forwarded(headers, "content-length", "content-encoding")
    told.update(error_headers("", status))
    return web.Response(status=status, body=error_body("", status, message, "WEBSOCKET"), headers=told)
