"""A WebSocket on which prompts are sent: each `response.create` is one exchange, as its body would be over HTTP.

    the agent's messages ─► Stream of that name ─► one exchange after another ─► the provider
    the provider's messages ─► the response that is made on their stream ─► the agent

Messages that carry no input for a model are forwarded, masked where the guard masks. An unreadable message closes the
WebSocket, and the next WebSocket of that session is answered with 426, so that the agent continues over HTTP.
Compression is not negotiated, as a small frame could become any size.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import WSCloseCode, WSMsgType, web
from multidict import CIMultiDict

from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.calls.conversations import session_of
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.provider_errors import error_body, http_status
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.agents import RequestingAgent
from prompt_sidecar.doors.http.exchange import RequestOutcome, TooLongAnswer
from prompt_sidecar.doors.http.front import error_response, use_http
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.doors.http.prompting import Prompter, PromptRequest
from prompt_sidecar.doors.http.routes import Route
from prompt_sidecar.doors.http.socket_exchanges import (
    KeptResponses,
    MessageSource,
    PromptSender,
    ResponseMessages,
    SocketClient,
    SocketExchange,
    head,
)
from prompt_sidecar.doors.http.upstream import ProviderSocket, Upstreams, forwarded
from prompt_sidecar.doors.http.websockets import OPENING, UNSAID, Masking, close
from prompt_sidecar.doors.http.wires import Wire
from prompt_sidecar.errors import GuardUnread, SidecarError
from prompt_sidecar.facts.http_calls import CREATED, AgentRequest
from prompt_sidecar.process.logs import about, begin_about, frames
from prompt_sidecar.prompt.members import Members, loads
from prompt_sidecar.providers import responses_socket as wire
from prompt_sidecar.telemetry.observer import Observer

MOST_AT_ONCE: Final = 2 * wire.MOST_STREAMS
"""Requests of one WebSocket that wait or are being answered; no further message is read until one is answered. Twice
the provider's number of streams: one request in progress and one waiting on each."""
_MOST_LANES: Final = 4 * wire.MOST_STREAMS
"""Streams with requests, or with responses that are no longer read; beyond, the WebSocket is closed."""
_REFUSED_SESSIONS: Final = 1_024
"""Sessions whose next WebSocket is answered with 426; beyond, the oldest one may open a WebSocket again."""
CALLER_BOUND: Final = "http.caller_websockets"
SENT_TO_HTTP: Final = "sent_to_http"
OPENED: Final = "opened"
"""Outcome in metrics of a request that opened a WebSocket."""
_NO_SOCKETS: Final = frozenset({404, 405, 426, 501})
"""Statuses by which a server says that it has no WebSocket at this path, as does any status below 400: the agent is
told to use HTTP."""
_LOOK_SECONDS: Final = 0.05
"""Seconds between two checks whether a WebSocket is still used, at least."""
_NO_ROOM: Final = b"no room for the message (http.body_bytes); retry a little later"
_UNREADABLE: Final = b"the message cannot be read; send this session's requests over HTTP"
_NOT_STEERED: Final = "Prompt Sidecar does not steer responses that are being made: say it in the next request."
_log = logging.getLogger("prompt_sidecar.http")


@dataclass(frozen=True, slots=True)
class SocketOpening:
    """The request that opens a WebSocket, and what is derived from it."""

    request: web.Request
    agent: RequestingAgent
    route: Route
    dialect: Dialect
    caller: str
    masking: Masking | None
    """Masks messages that are not prompts; None: they are forwarded unchanged."""


@dataclass(frozen=True, slots=True)
class SocketServices:
    """Services that all WebSockets for prompts share."""

    options: HttpOptions
    limits: ServerOptions
    prompter: Prompter
    upstreams: Upstreams
    reached: Callable[[str], None]
    observer: Observer
    """Is notified of each request."""
    refused: Callable[[str, BaseException, str, str], None]
    """Logs and counts a refusal."""
    work: Callable[[web.Request, str, int], CallWorkers]
    """Returns what runs functions in worker threads, for a request of so many bytes."""
    held: Callable[[web.Request, str, RequestingAgent], AbstractContextManager[None]]
    """Occupies a slot for a request, and counts its memory. Raises SidecarError."""


class ResponseSockets:
    """The open WebSockets for prompts. On the event loop only."""

    def __init__(self, shared: SocketServices) -> None:
        self._shared = shared
        self._open: set[_ResponseSocket] = set()
        self._callers: Counter[str] = Counter()
        self._refused: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Callers and sessions whose next WebSocket is answered with 426."""

    async def serve(self, opened: SocketOpening, outcome: RequestOutcome) -> web.StreamResponse:
        """Serve a WebSocket until it is closed; `outcome` receives the outcome of its opening."""
        request, caller = opened.request, opened.caller
        session = caller, _session(request)
        if session in self._refused:
            del self._refused[session]
            outcome.ended = SENT_TO_HTTP
            return use_http(opened.route)
        if self._callers[caller] >= self._shared.options.caller_websockets:
            self._shared.reached(CALLER_BOUND)
            outcome.ended = SENT_TO_HTTP
            return use_http(opened.route)
        one = _ResponseSocket(self._shared, opened, outcome, partial(self._refuse, session))
        self._open.add(one)
        self._callers[caller] += 1
        try:
            return await one.serve()
        finally:
            self._open.discard(one)
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]

    def _refuse(self, session: tuple[str, str]) -> None:
        """Answer the next WebSocket of a session with 426."""
        self._refused[session] = None
        if len(self._refused) > _REFUSED_SESSIONS:
            self._refused.popitem(last=False)

    def drain(self) -> None:
        """Close all WebSockets after the answers in progress."""
        for each in self._open:
            each.drain()


def _session(request: web.Request) -> str:
    return session_of(request.headers, Members(b"{}"))


@dataclass(slots=True)
class _Lane:
    """The requests and responses of one stream."""

    waiting: deque[tuple[MessageSource, bytes]] = field(default_factory=deque)
    """Requests that wait for the one before them."""
    works: bool = False
    """Whether a request is being answered."""
    streams: deque[ResponseMessages] = field(default_factory=deque)
    """Responses that the provider generates, in order."""


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides of a WebSocket, and the count of bytes buffered for them."""

    here: web.WebSocketResponse
    """The WebSocket to the agent."""
    from_agent: Wire
    there: ProviderSocket
    """The WebSocket to the provider."""
    from_provider: Wire


class _ResponseSocket:
    """One WebSocket."""

    _sides: _Sides

    def __init__(
        self, shared: SocketServices, opened: SocketOpening, outcome: RequestOutcome, unreadable: Callable[[], None]
    ) -> None:
        """`unreadable` is called when the WebSocket is closed because a message of the agent's cannot be read."""
        self._shared = shared
        self._opened = opened
        self._outcome = outcome
        self._lanes: dict[str, _Lane] = {}
        self._kept = KeptResponses()
        self._provided: dict[int, PromptSender] = {}
        """The senders of requests in progress, by their exchange."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._over = asyncio.Event()
        """Set when the WebSocket has to be closed."""
        self._drains = False
        self._used = asyncio.get_running_loop().time()
        self._close_reason: tuple[int, bytes] = (WSCloseCode.GOING_AWAY, b"")
        """Close code and reason for the agent's side."""
        self._left = False
        """Whether the provider has closed its side."""
        self._unreadable = unreadable

    # -- life cycle ------------------------------------------------------------------------------------------------

    async def serve(self) -> web.StreamResponse:
        """See `ResponseSockets.serve`."""
        request, agent = self._opened.request, self._opened.agent
        if not self._here().can_prepare(request):
            message = "the request opens no WebSocket (RFC 6455, 4.1)"
            self._outcome.ended = "refused"
            return error_response(self._opened.route, 400, message, "WEBSOCKET")
        if not isinstance(request.transport, asyncio.Transport):
            raise ConnectionResetError  # the agent has disconnected
        from_agent = Wire(request.transport, agent.hold, agent.let_go, self._is_full, masked=True)
        try:
            return await self._connected(from_agent)
        except aiohttp.WSServerHandshakeError as error:
            self._outcome.status = error.status
            if error.status in _NO_SOCKETS or error.status < wire.REFUSED:
                self._outcome.ended = SENT_TO_HTTP
                return use_http(self._opened.route)
            message = "the provider opens no WebSocket"
            headers = forwarded(error.headers or CIMultiDict(), "content-length", "content-encoding")
            return error_response(self._opened.route, error.status, message, "WEBSOCKET", headers)
        finally:
            from_agent.leave()

    async def _connected(self, from_agent: Wire) -> web.StreamResponse:
        request, agent = self._opened.request, self._opened.agent
        asked = request.headers.get("sec-websocket-protocol", "")
        protocols = tuple(each.strip() for each in asked.split(",") if each.strip())
        connecting = self._shared.upstreams.connect(
            self._opened.route.provider,
            request.rel_url,
            forwarded(request.headers, *OPENING),
            protocols,
            self._shared.options.max_body_bytes,
        )
        async with connecting as there:
            assert isinstance(there, ProviderSocket)
            from_provider = Wire(there.transport, agent.hold, agent.let_go, self._is_full, masked=False)
            try:
                here = self._here((there.protocol,) if there.protocol else ())
                here.headers.update(forwarded(there.headers, *OPENING, "sec-websocket-accept", "content-length"))
                await here.prepare(request)
                self._outcome.status, self._outcome.ended = 101, OPENED
                self._sides = _Sides(here, from_agent, there, from_provider)
                await self._served()
            finally:
                from_provider.leave()
        return here

    def _here(self, protocols: tuple[str, ...] = ()) -> web.WebSocketResponse:
        most = self._shared.options.max_body_bytes
        return web.WebSocketResponse(protocols=protocols, max_msg_size=most, compress=False)

    async def _served(self) -> None:
        sides = self._sides
        here, there = sides.here, sides.there
        ways = [
            asyncio.create_task(self._of_agent()),
            asyncio.create_task(self._of_provider()),
            asyncio.create_task(self._over.wait()),
        ]
        watches = [
            asyncio.create_task(sides.from_agent.watch(here.ping)),
            asyncio.create_task(sides.from_provider.watch(there.ping)),
            asyncio.create_task(self._watched()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closing = asyncio.ensure_future(self._closed(ways, watches))
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError:  # the agent has disconnected meanwhile
                await asyncio.gather(closing, return_exceptions=True)
                raise

    async def _closed(self, ways: list[asyncio.Task[Any]], watches: list[asyncio.Task[None]]) -> None:
        """Close both sides, once the reported usage of interrupted answers is read."""
        here, there = self._sides.here, self._sides.there
        if there.close_code == WSCloseCode.MESSAGE_TOO_BIG:
            self._shared.reached("http.max_body_bytes")
        if not ways[0].done():  # an agent may disconnect while the error for its message is sent
            self._look_whether_too_long(here.close_code)
        for task in (ways[0], *self._tasks):
            task.cancel()
        await asyncio.gather(ways[0], *self._tasks, return_exceptions=True)
        for task in (*ways, *watches):
            task.cancel()
        await asyncio.gather(*ways, *watches, return_exceptions=True)
        await asyncio.gather(
            close(there, WSCloseCode.GOING_AWAY), close(here, *self._close_reason), return_exceptions=True
        )

    def _look_whether_too_long(self, code: int | None) -> None:
        if code == WSCloseCode.MESSAGE_TOO_BIG:
            self._shared.reached("http.max_body_bytes")
            self._unreadable()

    async def _watched(self) -> None:
        """Close the WebSocket when it is idle, or when its time limit is reached."""
        loop, options = asyncio.get_running_loop(), self._shared.options
        ends = loop.time() + options.websocket_time
        while True:
            since = loop.time() if self._busy else self._used
            await asyncio.sleep(max(_LOOK_SECONDS, min(since + options.websocket_idle, ends) - loop.time()))
            now = loop.time()
            if now >= ends:
                self._shared.reached("http.websocket_time")
                self.drain()
                return
            if not self._busy and now >= self._used + options.websocket_idle:
                self._shared.reached("http.websocket_idle")
                self.drain()
                return

    @property
    def _busy(self) -> bool:
        return bool(self._tasks)

    def drain(self) -> None:
        """Close the WebSocket after the answers in progress."""
        self._drains = True
        if not self._busy:
            self._over.set()

    def _is_full(self) -> None:
        self._end(WSCloseCode.TRY_AGAIN_LATER, _NO_ROOM)

    def _end(self, code: int, reason: bytes = b"") -> None:
        if not self._over.is_set():
            if not self._left:
                self._close_reason = code, reason
            self._over.set()

    def _cannot_read(self) -> None:
        self._unreadable()
        self._end(WSCloseCode.POLICY_VIOLATION, _UNREADABLE)

    # -- messages --------------------------------------------------------------------------------------------------

    async def _of_agent(self) -> None:
        """Handle the agent's messages until it closes."""
        here, from_agent = self._sides.here, self._sides.from_agent
        while True:
            await self._room.acquire()
            message = await here.receive()
            if message.type not in {WSMsgType.TEXT, WSMsgType.BINARY}:
                error = message.data
                self._look_whether_too_long(error.code if isinstance(error, aiohttp.WebSocketError) else None)
                if message.type is WSMsgType.CLOSE:
                    self._end(_code(message.data), (message.extra or "").encode())
                return
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            found = head(data)
            self._used = asyncio.get_running_loop().time()
            if found is None or not isinstance(found.stream_id, str | None):
                self._cannot_read()
                return
            if self._drains:  # the agent sends the request again on the next WebSocket that it opens
                await self._over.wait()
                return
            if found.type == wire.CREATE:
                self._take(found, data)
            else:
                self._room.release()
                if not await self._other(found, data):
                    return
            from_agent.went_on(len(data))

    async def _other(self, found: MessageSource, data: bytes) -> bool:
        """Handle a message that asks for no response; return whether the WebSocket stays open."""
        if found.type == wire.STEER:
            refusal = wire.steering_failed(orjson.loads(data), _NOT_STEERED)
            await self._opened.agent.taken(self._sides.here.send_frame(refusal, WSMsgType.TEXT))
            return True
        if found.type == wire.INJECT and wire.is_injection(loads(data)):
            for each in self._provided.values():  # its id need not say which of them it is for
                each.injected = True
        elif found.type != wire.PROCESSED:  # it may carry input for the model in an unknown form
            self._cannot_read()
            return False
        masking = self._opened.masking
        try:
            sent = data if masking is None else await masking.masked(data, is_text=True)
        except SidecarError:
            self._cannot_read()
            return False
        await self._sides.there.send_frame(sent, WSMsgType.TEXT)
        return True

    async def _of_provider(self) -> None:
        """Handle the provider's messages until it closes."""
        here, there, from_provider = self._sides.here, self._sides.there, self._sides.from_provider
        while True:
            message = await there.receive()
            if message.type not in {WSMsgType.TEXT, WSMsgType.BINARY}:
                break
            data = message.data.encode() if message.type is WSMsgType.TEXT else message.data
            if (stream := self._stream_of(found := head(data))) is not None:
                await stream.put(data, ends=found is not None and found.type in wire.ENDS)
                continue
            await self._opened.agent.taken(here.send_frame(data, message.type))
            from_provider.went_on(len(data))
        self._close_reason = WSCloseCode.BAD_GATEWAY, b""
        if message.type is WSMsgType.CLOSE:
            self._close_reason = _code(message.data), (message.extra or "").encode()
        self._left = True
        for lane in self._lanes.values():
            for stream in lane.streams:
                stream.lose()
        if self._tasks:  # each notes how much of its answer has arrived
            await asyncio.wait(self._tasks)
        self._over.set()

    def _stream_of(self, found: MessageSource | None) -> ResponseMessages | None:
        """Return the response that an event belongs to, or None."""
        if found is None or not (found.type == "error" or found.type.startswith(wire.OF_RESPONSES)):
            return None
        name = found.stream
        lane = self._lanes.get(name)
        if lane is None or not lane.streams:
            return None
        if found.type not in wire.ENDS:
            return lane.streams[0]
        ended = lane.streams.popleft()
        self._leave(name, lane)
        return ended

    def _leave(self, name: str, lane: _Lane) -> None:
        """Forget a stream that has no requests or responses."""
        if not (lane.works or lane.waiting or lane.streams):
            self._lanes.pop(name, None)

    # -- requests --------------------------------------------------------------------------------------------------

    def _take(self, found: MessageSource, data: bytes) -> None:
        """Queue a request behind those before it on its stream."""
        name = found.stream
        lane = self._lanes.setdefault(name, _Lane())
        lane.waiting.append((found, data))
        if len(self._lanes) > _MOST_LANES:
            self._end(WSCloseCode.TRY_AGAIN_LATER, _NO_ROOM)
        elif not lane.works:
            lane.works = True
            task = asyncio.create_task(self._work_off(name, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work_off(self, name: str, lane: _Lane) -> None:
        """Answer the requests of a stream one after another."""
        try:
            while lane.waiting and not self._over.is_set():
                try:
                    await self._answered(name, lane, *lane.waiting.popleft())
                finally:
                    self._room.release()
                    self._used = asyncio.get_running_loop().time()
        except ConnectionError:
            self._end(WSCloseCode.GOING_AWAY)
        finally:
            lane.works = False
            self._leave(name, lane)
            if self._drains and len(self._tasks) <= 1:
                self._over.set()

    async def _answered(self, name: str, lane: _Lane, found: MessageSource, data: bytes) -> None:
        """Answer one request, and count it."""
        opened, shared, here = self._opened, self._shared, self._sides.here
        request, route = opened.request, opened.route
        client = SocketClient(
            request, shared.limits, shared.reached, here, name, lambda: self._end(WSCloseCode.BAD_GATEWAY)
        )
        outcome, word = RequestOutcome(caller=opened.caller), "failed"
        asked = AgentRequest(CREATED, route.name, request.scheme, request.rel_url.raw_path, request.headers)
        begin_about("http")
        about(caller=opened.caller)
        begun = shared.observer.request_begun(asked)

        async def refuse(status: int, message: str, reason: str) -> None:
            error = orjson.loads(error_body(opened.dialect.format, status, message, reason))["error"]
            await client.taken(here.send_frame(wire.refusal(status, error, name), WSMsgType.TEXT))

        try:
            with shared.held(request, opened.caller, client):
                size = len(data) + shared.prompter.bytes_behind(opened.caller, found.previous)
                client.hold(size)
                work = shared.work(request, opened.caller, size)
                await self._exchanged(client, name, lane, data, work, outcome)
            word = outcome.word
        except SidecarError as error:
            word, outcome.reason = "refused", error.reason
            shared.refused(f"http {route.name}", error, error.status, str(request.remote or ""))
            if isinstance(error, GuardUnread):
                self._cannot_read()
            else:
                await refuse(http_status(error), error.message, error.reason)
        except TooLongAnswer:
            word, outcome.reason = "upstream_failed", "TOO_LARGE"
            shared.reached("http.max_body_bytes")
            await refuse(502, "the provider's refusal is too long", "TOO_LARGE")
        except (aiohttp.ClientError, TimeoutError):
            word, outcome.reason = "upstream_failed", "UPSTREAM_UNREACHABLE"
            self._end(WSCloseCode.BAD_GATEWAY)
        except (asyncio.CancelledError, ConnectionError):
            word = "cancelled"
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent gets an answer
            outcome.reason = "INTERNAL"
            _log.error("a request failed: %s", frames(error))
            await refuse(500, "the sidecar failed; see its log", "INTERNAL")
        finally:
            shared.observer.requested(route.name, word, outcome.status, outcome.hidden)
            outcome.became = word
            shared.observer.request_ended(begun, outcome.facts(outcome.status))

    async def _exchanged(  # noqa: PLR0917 - what an exchange is made of
        self, client: SocketClient, name: str, lane: _Lane, data: bytes, work: CallWorkers, outcome: RequestOutcome
    ) -> None:
        opened, shared, sides = self._opened, self._shared, self._sides

        def stream() -> ResponseMessages:
            made = ResponseMessages(sides.from_provider.went_on)
            lane.streams.append(made)
            return made

        exchange = SocketExchange(
            opened.request,
            client,
            opened.route,
            opened.dialect,
            shared.prompter,
            PromptSender(sides.there, stream, opened.dialect, work, self._kept, name),
            outcome=outcome,
            work=work,
            most_bytes=shared.options.max_body_bytes,
        )
        assert isinstance(exchange.upstreams, PromptSender)
        exchange.provided = exchange.upstreams
        self._provided[id(exchange)] = exchange.provided
        try:
            await exchange.run(
                PromptRequest(opened.dialect, opened.caller, opened.request.headers, data, on_socket=True)
            )
        finally:
            del self._provided[id(exchange)]


def _code(code: Any) -> int:
    """Return the close code for the other side."""
    if code in {0, 1005}:
        return int(WSCloseCode.OK)
    return int(WSCloseCode.GOING_AWAY if code in UNSAID else code)
