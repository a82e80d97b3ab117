"""WebSockets pass through, message by message, until one side closes or is lost.

Either side may send without end, take nothing, or go without a word. So a message has a bound, nothing is compressed on
the way (a small frame could become any size), what is held of messages counts among the bodies of requests, an agent
must take each message in time, other requests have their turn between messages, and a silent side is pinged. The other
side is told why a side has closed; a side that was lost gave no reason, and a part must not be taken for the whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web
from multidict import CIMultiDict

from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.agents import RequestingAgent
from prompt_sidecar.doors.http.front import error_response
from prompt_sidecar.doors.http.upstream import ProviderSocket, Upstreams, forwarded
from prompt_sidecar.doors.http.wires import Wire
from prompt_sidecar.errors import SidecarError
from prompt_sidecar.facts.guard_calls import MaskCall, SendingDoor, Unread
from prompt_sidecar.providers.api import Provider

OPENING: Final = (
    "host",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
)
"""Headers of a WebSocket's opening that belong to one connection."""
_MESSAGES_IN_A_TURN: Final = 256
"""Messages that are sent on before other requests have their turn: some two milliseconds."""
UNSAID: Final = frozenset({1004, 1005, 1006, 1015})
"""Codes of a close that are never sent: they represent a close without a code, or none (RFC 6455, 7.4.1)."""
_NO_CODE: Final = 1005
_CLOSE_SECONDS: Final = 10.0
"""For a side to answer that a WebSocket is closed; then it is cut off. aiohttp waits so long for each message."""
_JSON: Final = (b"{", b"[", b'"')
"""How a binary message begins that may be JSON: some SDKs send theirs so."""
_REASON_BYTES: Final = 123
"""Of the reason of a close (RFC 6455, 5.5)."""
_NO_ROOM: Final = b"no room for the message (http.body_bytes); retry a little later"

# Its warnings quote the protocols that an agent asks for; some agents put an API key there.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Sockets:
    """Passes WebSockets through: `most_bytes` of one message; `reached` is called when one is longer."""

    upstreams: Upstreams
    most_bytes: int
    reached: Callable[[], None]

    async def passed(
        self,
        request: web.Request,
        agent: RequestingAgent,
        provider: Provider,
        masking: Masking | None = None,
        told: Callable[[], Mapping[str, str]] = dict,
    ) -> tuple[web.StreamResponse, int]:
        """Pass a WebSocket through until it is closed; return the answer, and the upstream's status.

        `masking` masks the agent's messages; None: they go on as they come. `told`: see
        `passed`.
        """
        if not self._here().can_prepare(request):
            return error_response(None, 400, "the request opens no WebSocket (RFC 6455, 4.1)", "WEBSOCKET"), 0
        full = asyncio.Event()
        if not isinstance(request.transport, asyncio.Transport):
            raise ConnectionResetError  # the agent has left
        wire = Wire(request.transport, agent.hold, agent.let_go, full.set, masked=True)
        try:
            return await self._connected(request, agent, provider, wire, full, masking, told)
        except aiohttp.WSServerHandshakeError as error:
            if error.status < 400:
                raise
            headers = forwarded(error.headers or CIMultiDict(), "content-length", "content-encoding")
            headers.update(told())
            message = "the provider opens no WebSocket"
            return error_response(None, error.status, message, "WEBSOCKET", headers), error.status
        finally:
            wire.leave()

    async def _connected(  # noqa: PLR0917 - both sides, and what is between
        self,
        request: web.Request,
        agent: RequestingAgent,
        provider: Provider,
        from_agent: Wire,
        full: asyncio.Event,
        masking: Masking | None,
        told: Callable[[], Mapping[str, str]],
    ) -> tuple[web.StreamResponse, int]:
        """Connect the agent with the provider; `full` is set when a message has no room."""
        asked = request.headers.get("sec-websocket-protocol", "")
        protocols = tuple(each.strip() for each in asked.split(",") if each.strip())
        headers = forwarded(request.headers, *OPENING)
        connecting = self.upstreams.connect(provider, request.rel_url, headers, protocols, self.most_bytes)
        async with connecting as there:
            assert isinstance(there, ProviderSocket)
            from_provider = Wire(there.transport, agent.hold, agent.let_go, full.set, masked=False)
            try:
                here = self._here((there.protocol,) if there.protocol else ())
                here.headers.update(told())
                await here.prepare(request)
                await self._relayed(_Side(here, from_agent), _Side(there, from_provider), agent, full, masking)
            finally:
                from_provider.leave()
        return here, 101

    async def _relayed(
        self, here: _Side, there: _Side, agent: RequestingAgent, full: asyncio.Event, masking: Masking | None
    ) -> None:
        """Send messages on, both ways, until a side closes or is lost, or one has no room."""
        ways = [
            asyncio.create_task(self._pump(here, there, WSCloseCode.GOING_AWAY, _at_once, masking)),
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
                close(there.socket, WSCloseCode.GOING_AWAY), close(here.socket, *told), return_exceptions=True
            )

    def _here(self, protocols: tuple[str, ...] = ()) -> web.WebSocketResponse:
        return web.WebSocketResponse(protocols=protocols, max_msg_size=self.most_bytes, compress=False)

    async def _pump(
        self,
        source: _Side,
        sink: _Side,
        lost: int,
        taken: Callable[[Awaitable[None]], Awaitable[None]],
        masking: Masking | None = None,
    ) -> None:
        """Send one side's messages to the other until it closes.

        Args:
            source: the one side.
            sink: the other side.
            lost: the code that the other side gets if this one is lost.
            taken: waits until the other side has taken what is sent.
            masking: masks the messages; None: they go on as they come.
        """
        messages = 0
        while True:
            message = await source.socket.receive()
            if message.type not in {WSMsgType.TEXT, WSMsgType.BINARY}:
                break
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            try:
                goes_on = (
                    data if masking is None else await masking.masked(data, is_text=message.type is WSMsgType.TEXT)
                )
            except SidecarError as error:
                await close(source.socket, WSCloseCode.POLICY_VIOLATION, error.message.encode()[:_REASON_BYTES])
                return
            await taken(sink.socket.send_frame(goes_on, message.type))
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
        if code in UNSAID:
            code = lost
        await close(sink.socket, code, reason)

    def _count(self, code: int | None) -> None:
        """Count that a side was closed for a message that is too long."""
        if code == WSCloseCode.MESSAGE_TOO_BIG:
            self.reached()


@dataclass(frozen=True, slots=True)
class Masking:
    """Masks the messages of an agent; `work` runs what takes processor time."""

    use_cases: UseCases
    caller: str
    work: CallWorkers

    async def masked(self, data: bytes, *, is_text: bool) -> bytes:
        """A message with masks.

        Raises:
            SidecarError: it cannot be read, or a rule refuses it; or the sidecar has no room for it.
        """
        if not data:
            return data
        if not is_text and data.lstrip()[:1] not in _JSON:
            return self.use_cases.left_unread(SendingDoor.WEBSOCKET, self.caller, Unread.BINARY, data)
        self.work.size = len(data)
        call = MaskCall(self.caller, data)
        return await self.work.run(self.use_cases.mask, SendingDoor.WEBSOCKET, call, self.work.check, size=len(data))


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a WebSocket that passes through."""

    socket: Any
    wire: Wire


async def close(socket: Any, code: int, reason: bytes = b"") -> None:
    """Close one side, which may send on instead of answering."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await socket.close(code=code, message=reason)


async def _at_once(sending: Awaitable[None]) -> None:
    await sending
