"""Forwards WebSockets message by message, until one side closes or is lost.

Either side may send endlessly, read nothing, or vanish. So a message has a size limit, compression is not negotiated (a
small frame could become any size), buffered messages count as request bodies, an agent must read each message in time,
other requests are served between messages, and a silent side is pinged. A close is forwarded with its code and reason.
If a side is lost, the other side gets an error code, so that it does not take a part for the whole.
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
"""Headers of a WebSocket handshake that belong to one connection and are not forwarded."""
_MESSAGES_IN_A_TURN: Final = 256
"""Messages that are forwarded before other requests are served: some two milliseconds."""
UNSAID: Final = frozenset({1004, 1005, 1006, 1015})
"""Close codes that are never sent: they represent a close frame without a code, or none (RFC 6455, 7.4.1)."""
_NO_CODE: Final = 1005
_CLOSE_SECONDS: Final = 10.0
"""Time for a side to answer a close frame; then its connection is cut. aiohttp waits this long for each message."""
_JSON: Final = (b"{", b"[", b'"')
"""First bytes of a binary message that may be JSON: some SDKs send JSON as binary."""
_REASON_BYTES: Final = 123
"""Longest reason in a close frame (RFC 6455, 5.5)."""
_NO_ROOM: Final = b"no room for the message (http.body_bytes); retry a little later"

# aiohttp's warnings quote the subprotocols that an agent asks for; some agents put an API key there.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Sockets:
    """Forwards WebSockets; `most_bytes` limits one message, and `reached` is called when one is longer."""

    upstreams: Upstreams
    most_bytes: int
    reached: Callable[[], None]

    async def passed(
        self,
        request: web.Request,
        agent: RequestingAgent,
        provider: Provider,
        masking: Masking | None = None,
        more_headers: Callable[[], Mapping[str, str]] = dict,
    ) -> tuple[web.StreamResponse, int]:
        """Forward a WebSocket until it is closed; return the response and the upstream's status.

        `masking` masks the agent's messages; None: they are forwarded unchanged. `more_headers`: see `passed`.
        """
        if not self._here().can_prepare(request):
            return error_response(None, 400, "the request opens no WebSocket (RFC 6455, 4.1)", "WEBSOCKET"), 0
        full = asyncio.Event()
        if not isinstance(request.transport, asyncio.Transport):
            raise ConnectionResetError  # the agent has left
        wire = Wire(request.transport, agent.hold, agent.let_go, full.set, masked=True)
        try:
            return await self._connected(request, agent, provider, wire, full, masking, more_headers)
        except aiohttp.WSServerHandshakeError as error:
            if error.status < 400:
                raise
            headers = forwarded(error.headers or CIMultiDict(), "content-length", "content-encoding")
            headers.update(more_headers())
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
        more_headers: Callable[[], Mapping[str, str]],
    ) -> tuple[web.StreamResponse, int]:
        """Connect the agent with the provider; `full` is set when there is no memory for a message."""
        asked = request.headers.get("sec-websocket-protocol", "")
        protocols = tuple(each.strip() for each in asked.split(",") if each.strip())
        headers = forwarded(request.headers, *OPENING)
        connecting = self.upstreams.connect(provider, request.rel_url, headers, protocols, self.most_bytes)
        async with connecting as there:
            assert isinstance(there, ProviderSocket)
            from_provider = Wire(there.transport, agent.hold, agent.let_go, full.set, masked=False)
            try:
                here = self._here((there.protocol,) if there.protocol else ())
                here.headers.update(more_headers())
                await here.prepare(request)
                await self._relayed(_Side(here, from_agent), _Side(there, from_provider), agent, full, masking)
            finally:
                from_provider.leave()
        return here, 101

    async def _relayed(
        self, here: _Side, there: _Side, agent: RequestingAgent, full: asyncio.Event, masking: Masking | None
    ) -> None:
        """Forward messages both ways, until a side closes, is lost, or sends a message that there is no memory for."""
        ways = [
            asyncio.create_task(self._pump(here, there, WSCloseCode.GOING_AWAY, _at_once, masking)),
            asyncio.create_task(self._pump(there, here, WSCloseCode.BAD_GATEWAY, agent.taken)),
            asyncio.create_task(full.wait()),
        ]
        watches = [asyncio.create_task(side.wire.watch(side.socket.ping)) for side in (here, there)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ways[0].done():  # an agent may disconnect while the error for its message is sent
                self._count(here.socket.close_code)
            for way in (*ways, *watches):
                way.cancel()
            await asyncio.gather(*ways, *watches, return_exceptions=True)
            close_reason = (
                (WSCloseCode.TRY_AGAIN_LATER, _NO_ROOM) if full.is_set() else (WSCloseCode.SERVICE_RESTART, b"")
            )
            await asyncio.gather(
                close(there.socket, WSCloseCode.GOING_AWAY), close(here.socket, *close_reason), return_exceptions=True
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
        """Forward one side's messages to the other until it closes.

        Args:
            source: the side to read from.
            sink: the side to write to.
            lost: the close code sent to `sink` if `source` is lost.
            taken: waits until `sink` has accepted what is sent.
            masking: masks the messages; None: they are forwarded unchanged.
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
        """Count a close whose code says that a message was too long."""
        if code == WSCloseCode.MESSAGE_TOO_BIG:
            self.reached()


@dataclass(frozen=True, slots=True)
class Masking:
    """Masks the messages of an agent; `work` runs what takes processor time."""

    use_cases: UseCases
    caller: str
    work: CallWorkers

    async def masked(self, data: bytes, *, is_text: bool) -> bytes:
        """Return a message with masks.

        Raises:
            SidecarError: the message cannot be read, is refused by a rule, or needs more memory than there is.
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
    """One side of a forwarded WebSocket."""

    socket: Any
    wire: Wire


async def close(socket: Any, code: int, reason: bytes = b"") -> None:
    """Close one side without waiting for it, as it may keep sending instead of answering."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await socket.close(code=code, message=reason)


async def _at_once(sending: Awaitable[None]) -> None:
    await sending
