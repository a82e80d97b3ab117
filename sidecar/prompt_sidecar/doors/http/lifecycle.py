"""Life cycle of the HTTP door: bind, serve on an event loop in its own thread, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from prompt_sidecar.browsers import Sites, Visitors
from prompt_sidecar.calls import headers as names
from prompt_sidecar.calls.call_pool import LARGE
from prompt_sidecar.calls.conversations import Conversations
from prompt_sidecar.calls.memory import ANSWER_COPIES, REQUEST_COPIES
from prompt_sidecar.calls.pool import InFlight
from prompt_sidecar.calls.provider_errors import http_status
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.turns import Owner, OwnerCounts
from prompt_sidecar.calls.work import CallWorkers
from prompt_sidecar.doors.http.agents import LateBody, RequestingAgent, connection
from prompt_sidecar.doors.http.bodies import SMALL, USUAL, Bodies
from prompt_sidecar.doors.http.callers import Callers
from prompt_sidecar.doors.http.connections import Connections
from prompt_sidecar.doors.http.encodings import encoding_of
from prompt_sidecar.doors.http.exchange import STOPPING, HttpExchange, RequestOutcome, TooLongAnswer, go_on
from prompt_sidecar.doors.http.front import Front, error_response, opens_websocket
from prompt_sidecar.doors.http.gateways import Endpoint, Gateways
from prompt_sidecar.doors.http.hidden import HiddenTurns
from prompt_sidecar.doors.http.options import HttpOptions
from prompt_sidecar.doors.http.passthrough import passed
from prompt_sidecar.doors.http.prompting import Modes, Prompter, PromptRequest
from prompt_sidecar.doors.http.response_sockets import OPENED, ResponseSockets, SocketOpening
from prompt_sidecar.doors.http.response_sockets import SocketServices as SharedBySockets
from prompt_sidecar.doors.http.routes import Route, route
from prompt_sidecar.doors.http.turns import Beginnings, BeginningTurn, StreamPace
from prompt_sidecar.doors.http.unknown_bodies import UnknownBodies
from prompt_sidecar.doors.http.unpacking import unpacked
from prompt_sidecar.doors.http.upstream import Upstreams
from prompt_sidecar.doors.http.websockets import Masking, Sockets
from prompt_sidecar.errors import SidecarError, Stopping, TooLarge
from prompt_sidecar.facts.held_connections import HeldConnections
from prompt_sidecar.facts.http_calls import AgentAnswered, AgentRequest
from prompt_sidecar.facts.recall_offer import RecallOffer
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed
from prompt_sidecar.process.logs import about, begin_about, frames
from prompt_sidecar.process.starting import held, listening_socket

HELD_BOUND: Final = "http.held_connections"
_END_SECONDS: Final = 5.0
"""Seconds that a stop waits for the thread after the grace period."""
_MOST_PARTS: Final = 8
"""Parts of an unknown API's path that telemetry reports, as a shape without names."""
_log = logging.getLogger("prompt_sidecar.http")


class HttpDoor:
    """A `Door` for agents that use it as their base URL."""

    early: Final = False
    notice: Final = ""

    def __init__(
        self,
        options: HttpOptions,
        shared: DoorServices,
        key: bytes,
        modes: Modes | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        """`listening` is a socket that listens at the address already; None: `bind` opens one."""
        self._modes = modes or Modes()
        self._options = options
        self._shared = shared
        self._key = key
        self._tls = shared.tls.context if shared.tls is not None else None
        self._socket = listening
        self._held_at_start = 0
        self.port = 0
        """The port, also if port 0 was requested."""
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._handler: _RequestHandler | None = None
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._drained = monotonic()
        """Time at which it began to refuse requests."""

    @property
    def address(self) -> str:
        """The base URL for agents."""
        host = self._options.listen.rpartition(":")[0]
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The base URL, as `address`."""
        return (self.address,)

    def bind(self) -> None:
        """Open the listening socket. Raises StartError."""
        if self._socket is None:
            self._socket = listening_socket("http.listen", self._options.listen, self._options.held_connections)
        self.port = self._socket.getsockname()[1]
        self._shared.observer.watch_held(self._held)

    def start(self) -> None:
        """Serve; return once requests are accepted."""
        ready = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            try:
                self._loop.run_until_complete(self._open())
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                failed.append(error)
                return
            finally:
                ready.set()
            self._loop.run_forever()
            self._loop.close()

        self._thread = threading.Thread(target=run, name="http", daemon=True)
        self._thread.start()
        ready.wait()
        if failed:
            self._thread = None
            raise failed[0]

    async def _open(self) -> None:
        self._handler = _RequestHandler(self._options, self._key, self._shared, self._modes)
        application = web.Application(client_max_size=self._options.max_body_bytes)
        application.router.add_route("*", _ANY_PATH, self._handler.handle)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=_KEEPALIVE_SECONDS,
            shutdown_timeout=_CUT_SECONDS,
            max_line_size=_LINE_BYTES,
            max_field_size=_LINE_BYTES,
        )
        await self._runner.setup()
        assert self._socket is not None
        assert self._runner.server is not None
        found = self._held()
        self._held_at_start = found.waiting
        if found.waiting >= found.limit:
            self._shared.observer.reached(HELD_BOUND)
        if found.waiting:
            _log.info("connections that have waited for the start: %s", f"{found.waiting:,}")
        self._listener = await self._loop.create_server(
            self._handler.connections.bounded(self._runner.server),
            sock=self._socket,
            ssl=self._tls,
            backlog=_ACCEPTED_AT_ONCE,
            ssl_handshake_timeout=self._shared.options.handshake_timeout if self._tls is not None else None,
        )
        self._socket.listen(self._options.held_connections)  # the loop has made its own number the system's, too

    def _held(self) -> HeldConnections:
        """Return the connections that wait to be accepted now, and the limit on them."""
        assert self._socket is not None
        return replace(held(self._socket, self._options.held_connections), at_start=self._held_at_start)

    def drain(self) -> None:
        """Refuse further requests."""
        self._drained = monotonic()
        if self._handler is not None:
            self._handler.closing = True
            if self._thread is not None:
                self._loop.call_soon_threadsafe(self._handler.sockets.drain)

    def stop(self, grace: float) -> bool:
        """Wait up to `grace` seconds for requests in progress, then end; return whether all finished."""
        if self._thread is None or self._handler is None:
            if self._socket is not None:
                self._socket.close()
            return True
        # A stop without a grace period waits for no stream either.
        streams = self._drained + self._options.stream_grace - monotonic() if grace > 0 else 0.0
        clean = self._handler.in_progress.wait_for_none(max(grace, streams))
        if clean:
            # A request may be arriving on an open connection, and would be lost with it; new connections fail at once.
            asyncio.run_coroutine_threadsafe(self._close_listener(), self._loop).result(_END_SECONDS)
            self._handler.connections.wait_for_none(min(grace, _LINGER_SECONDS))
            clean = self._handler.in_progress.wait_for_none(grace)
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_END_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)
        self._thread = None
        return clean

    async def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _close(self) -> None:
        assert self._runner is not None
        assert self._handler is not None
        await self._close_listener()
        await self._handler.end()
        await self._runner.cleanup()
        await self._handler.close()


_SIGNED: Final = (
    "requests to Bedrock that are signed (SigV4) pass through untrimmed, as the signature covers the body; "
    "use a bearer key (AWS_BEARER_TOKEN_BEDROCK) to have them trimmed"
)
_ENDING_SECONDS: Final = 1.0
"""Time for the error events of streams that are in progress when the grace period of a stop is over."""
_LINGER_SECONDS: Final = 0.25
"""Time for which requests are still refused before idle connections are closed: some round trips to a load balancer,
which stops using a connection once a request on it was refused."""
_RETRY_SECONDS: Final = 1
"""Seconds after which agents retry when a sidecar stops: it may have restarted, and a load balancer has chosen
another."""
_CUT_SECONDS: Final = 0.1
"""Time for a request that is still in progress when the grace period of a stop is over."""
_ACCEPTED_AT_ONCE: Final = 8
"""Connections that the event loop accepts before it serves others, in about a millisecond."""
_KEEPALIVE_SECONDS: Final = 900.0
"""How long a connection without requests stays open: like server.connection_idle, for the same reason."""
_ANY_PATH: Final = "/{path:(?s:.*)}"
"""Any path, also with encoded line ends, which the provider may refuse."""
_LINE_BYTES: Final = 65_536
"""Longest header line, in bytes: a revision and a JWT may have some thousand bytes each."""


class _RequestHandler:
    """Handles requests, on the event loop."""

    def __init__(self, options: HttpOptions, key: bytes, shared: DoorServices, modes: Modes) -> None:
        self._options = options
        self._limits = shared.options
        self._shared = shared
        self._observer = shared.use_cases.observer
        self.connections = Connections(shared.options, self._observer.reached)
        self._callers = Callers(shared.tokens, shared.names, key, by_credential=options.caller_by == "credential")
        reached = self._observer.reached
        conversations = partial(
            Conversations, key, options.max_conversations, "http-", partial(reached, "http.max_conversations")
        )
        hidden = HiddenTurns(
            options.run_hidden_bytes,
            options.hidden_bytes,
            reached,
            self._observer.hidden_lost,
            shared.use_cases.runs.now,
        )
        self._prompter = Prompter(shared, options, conversations(), hidden, modes=modes)
        self._upstreams = Upstreams(options, self._observer.traceparent)
        self.sockets = ResponseSockets(
            SharedBySockets(
                options,
                shared.options,
                self._prompter,
                self._upstreams,
                reached,
                self._observer,
                shared.refused,
                self._work,
                self._held_on_socket,
            )
        )
        """The WebSockets for prompts."""
        self._sockets = Sockets(self._upstreams, options.max_body_bytes, partial(reached, "http.max_body_bytes"))
        self._unknown = UnknownBodies(shared.use_cases, self._upstreams, options.max_body_bytes)
        of_gateways = conversations()
        shared.use_cases.runs.table.keep_with(of_gateways)
        self._gateways = Gateways(options, shared, of_gateways, key)
        visitors = Visitors("http", "http.hosts", Sites.of(options.hosts, private_names=True))
        visitors.count = self._observer.foreign
        self._front = Front(visitors, shared.readiness, trims_sockets=options.websocket == "trim")
        self.closing = False
        self.in_progress = InFlight()
        """Requests in progress."""
        self._tasks: set[asyncio.Task[Any]] = set()
        """The tasks that handle requests."""
        self._ending = False
        """Whether requests in progress are being ended, because the grace period of a stop is over."""
        self._places = OwnerCounts()
        """Requests by owner that occupy a slot of `http.max_requests`."""
        self._beginnings = Beginnings(options.beginning_requests, reached)
        self._bodies = Bodies(options.body_bytes, shared.use_cases.memory, reached)

    async def close(self) -> None:
        """Close the connections to providers."""
        await self._upstreams.close()

    async def end(self) -> None:
        """End requests in progress: streams with an error event, and requests without an answer with 503."""
        self._ending = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_ENDING_SECONDS)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle a request."""
        self.in_progress.add()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with self.connections.asking(request.transport):
                response = await self._answered(request)
            # If a WebSocket is not opened, aiohttp took further bytes for its messages; at a stop none follow.
            if (opens_websocket(request) or self.closing) and not response.prepared:
                response.force_close()
            return response
        finally:
            self._tasks.discard(task)
            self.in_progress.remove()

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        found = route(request.method, request.rel_url.raw_path, request.headers, request.rel_url.query)
        gateway = self._gateways.of(request.method, request.rel_url.raw_path)
        name = found.name if gateway is None else gateway.name
        began = perf_counter()
        begin_about("http")
        if (reply := self._front.reply(request, found, name)) is not None:
            self._observer.requested(reply.route, reply.outcome, 0, 0)
            answered = AgentAnswered(reply.response.status, reply.outcome)
            asked = AgentRequest(request.method, reply.route, request.scheme, "", request.headers)
            self._observer.request_served(asked, answered, perf_counter() - began)
            return reply.response
        if (prompts := self._front.trimmed(request)) is not None:
            found, name = prompts, prompts.name
        if prompts is not None:  # each request on it has a span
            return await self._handled(request, found, gateway, name, RequestOutcome())
        path = request.rel_url.raw_path
        if gateway is None and found.dialect is None:  # an unknown path may contain anything
            path = "/".join("…" if part else "" for part in path.split("/", _MOST_PARTS))
        asked = AgentRequest(request.method, name, request.scheme, path, request.headers)
        begun = self._observer.request_begun(asked)
        outcome, status = RequestOutcome(), 0
        try:
            response = await self._handled(request, found, gateway, name, outcome)
            status = response.status
            return response
        finally:
            answered = outcome.facts(status)
            if not opens_websocket(request):
                self._observer.request_served(asked, answered, perf_counter() - began)
            self._observer.request_ended(begun, answered)

    async def _handled(
        self, request: web.Request, found: Route, gateway: Endpoint | None, name: str, outcome: RequestOutcome
    ) -> web.StreamResponse:
        agent = RequestingAgent(request, self._limits, self._observer.reached)
        agent.stopping = lambda: self._ending
        word = "failed"
        place: Owner | None = None
        try:
            caller, place = self._admitted(request)
            outcome.caller = caller
            about(caller=caller)
            with self._held(place, agent, ANSWER_COPIES if opens_websocket(request) else REQUEST_COPIES):
                response = await self._served(request, agent, gateway or found, caller, outcome)
        except SidecarError as error:
            word, outcome.reason = "refused", error.reason
            self._shared.refused(f"http {name}", error, error.status, _peer(request))
            later = _later(begun=False) if isinstance(error, Stopping) else None
            return error_response(found, http_status(error), error.message, error.reason, later)
        except web.HTTPRequestEntityTooLarge:
            word, outcome.reason = "refused", "TOO_LARGE"
            self._observer.reached("http.max_body_bytes")
            most = f"{self._options.max_body_bytes:,}"
            return error_response(found, 413, f"the body has more than {most} bytes (http.max_body_bytes)", "TOO_LARGE")
        except (aiohttp.ClientError, TimeoutError, LateBody) as error:
            if agent.late:
                word, outcome.reason = "refused", "TOO_SLOW"
                self._shared.refused(f"http {name}", error, "LateBody", _peer(request))
                message = f"the body did not come within {self._limits.message_timeout:g} s (server.message_timeout)"
                return error_response(found, 408, message, "TOO_SLOW")
            word, outcome.reason = "upstream_failed", "UPSTREAM_UNREACHABLE"
            if found.dialect is None:  # `ProviderStates` is notified of the others
                self._shared.refused(f"http {name} by {found.provider}", error, type(error).__name__, _peer(request))
            message = "the sidecar cannot reach the provider"
            return error_response(found, 502, message, "UPSTREAM_UNREACHABLE", CIMultiDict(outcome.headers))
        except TooLongAnswer:
            word, outcome.reason = "upstream_failed", "TOO_LARGE"
            self._observer.reached("http.max_body_bytes")
            message = f"the answer has more than {self._options.max_body_bytes:,} bytes (http.max_body_bytes)"
            return error_response(found, 502, message, "TOO_LARGE")
        except (asyncio.CancelledError, ConnectionError):
            word = OPENED if outcome.ended == OPENED else "cancelled"
            if not self._ending or agent.answering or opens_websocket(request):
                raise
            go_on()
            outcome.reason = Stopping.reason
            return error_response(found, 503, STOPPING, Stopping.reason, _later(begun=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the agent gets an answer
            outcome.reason = "INTERNAL"
            _log.error("a request failed: %s", frames(error))
            return error_response(found, 500, "the sidecar failed; see its log", "INTERNAL")
        else:
            word = "upstream_failed" if agent.broken else outcome.word
            return response
        finally:
            if place is not None:
                self._places.add(place, -1)
            outcome.became = word
            self._observer.requested(name, word, outcome.status, outcome.hidden)

    @contextmanager
    def _held(self, owner: Owner, agent: RequestingAgent, copies: int) -> Iterator[None]:
        """Count the memory of a request, whose bytes are in memory so many times, and of the answer to it."""
        held = self._bodies.of(owner, SMALL, copies), self._bodies.of(owner, USUAL, ANSWER_COPIES)
        with held[0] as body, held[1] as answer:
            agent.hold, agent.let_go, agent.settle = body.take, body.give, body.settle
            agent.hold_answer, agent.settle_answer = answer.take, answer.settle
            yield

    def _admitted(self, request: web.Request) -> tuple[str, Owner]:
        """Return a request's caller, and the owner whose slot it occupies from now on.

        Raises:
            Stopping: the sidecar is draining.
            Unauthenticated: a credential is needed.
            TooLarge: no slot is free.
        """
        if self.closing:
            raise Stopping("this sidecar is stopping; call it when it is back")
        caller = self._callers.of(request.headers, _certificate(request))
        return caller, self._placed(request, caller)

    def _placed(self, request: web.Request, caller: str) -> Owner:
        """Occupy a slot for a request; return its owner. Raises TooLarge if no slot is free."""
        owner = self._shared.names.owner(caller, connection(request))
        left = self._options.max_requests - self._places.total
        if left <= 0 or not self._places.share_may(owner.share, left):
            raise TooLarge("too many requests are in progress (http.max_requests)", bound="http.max_requests")
        self._places.add(owner, 1)
        return owner

    @contextmanager
    def _held_on_socket(self, request: web.Request, caller: str, agent: RequestingAgent) -> Iterator[None]:
        """Occupy a slot for a request on a WebSocket, and count its memory. Raises TooLarge."""
        place = self._placed(request, caller)
        try:
            with self._held(place, agent, REQUEST_COPIES):
                yield
        finally:
            self._places.add(place, -1)

    async def _served(
        self,
        request: web.Request,
        agent: RequestingAgent,
        found: Route | Endpoint,
        caller: str,
        outcome: RequestOutcome,
    ) -> web.StreamResponse:
        if isinstance(found, Endpoint):
            return await found.answer(request, agent, caller, outcome)
        if found.dialect is None:
            return await self._passed(request, agent, found, caller, outcome)
        if opens_websocket(request):
            masking = self._masking(request, caller)
            opened = SocketOpening(request, agent, found, found.dialect, caller, masking)
            return await self.sockets.serve(opened, outcome)
        most = self._options.max_body_bytes
        body = await agent.body(most)
        work = self._work(request, caller, len(body))
        plain = await self._plain(work, agent, body, encoding_of(request.headers))
        sent = body if plain is None else plain
        work.size = len(sent)
        asked = PromptRequest(
            found.dialect,
            caller,
            request.headers,
            sent,
            found.model,
            found.counting,
            decoded=plain is not None,
            recalls=not found.in_array,
            compacting=found.compacting,
        )
        beginning = BeginningTurn()
        if len(sent) <= LARGE:
            beginning = await self._beginnings.turn(work.owner)
            work.waits = beginning.end_in_thread
        exchange = HttpExchange(
            request,
            agent,
            found,
            found.dialect,
            self._prompter,
            self._upstreams,
            outcome=outcome,
            work=work,
            most_bytes=most,
            beginning=beginning,
            pace=StreamPace(self._options.stream_rate, USUAL, self._observer.reached),
        )
        return await exchange.run(asked)

    async def _passed(
        self, request: web.Request, agent: RequestingAgent, found: Route, caller: str, outcome: RequestOutcome
    ) -> web.StreamResponse:
        """Forward a request whose path says that it is not trimmed."""
        if found.untrimmed is Untrimmed.SIGNED:
            self._shared.once.warning(_log, _SIGNED)
        recall = None if found.untrimmed is Untrimmed.NO_PROMPT else RecallOffer.UNTRIMMED
        provider, path = found.provider, request.rel_url.raw_path

        def more_headers() -> Mapping[str, str]:
            run_id = request.headers.get(names.RUN, "")
            handled = Handled(Through.HTTP, found.untrimmed, agent.received_bytes, recall, caller, run_id, path)
            self._shared.use_cases.handled(handled)
            return names.handled(found.untrimmed, recall)

        if opens_websocket(request):
            mask = self._masking(request, caller)
            response, outcome.status = await self._sockets.passed(request, agent, provider, mask, more_headers)
            outcome.ended = "" if outcome.status else "refused"
        elif self._unknown.reads(request, caller):
            work = self._work(request, caller, 0)
            sending = self._unknown.sent_on(request, agent, provider, caller, work, more_headers=more_headers)
            response, outcome.status = await sending
        else:
            response, outcome.status = await passed(
                request, agent, provider, self._upstreams, more_headers=more_headers
            )
        return response

    def _work(self, request: web.Request, caller: str, size: int) -> CallWorkers:
        """Return what runs functions in worker threads, for a request of so many bytes."""
        return CallWorkers(self._shared, self._shared.names.owner(caller, connection(request)), size)

    def _masking(self, request: web.Request, caller: str) -> Masking | None:
        """Return what masks an agent's messages on a WebSocket; None: they are forwarded unchanged."""
        use_cases = self._shared.use_cases
        return (
            Masking(use_cases, caller, self._work(request, caller, 0))
            if use_cases.runs.guarding.unread(caller)
            else None
        )

    async def _plain(self, work: CallWorkers, agent: RequestingAgent, body: bytes, encoding: str) -> bytes | None:
        """Return a decompressed body; None if it has no encoding, or an unknown one.

        Raises:
            HTTPRequestEntityTooLarge: it is too large once decompressed.
            TooLarge: there is no memory for the decompressed body now.
        """
        if not encoding:
            return None
        most = self._options.max_body_bytes
        plain = await unpacked(work, body, encoding, most, REQUEST_COPIES)
        if plain is not None and len(plain) > most:
            raise web.HTTPRequestEntityTooLarge(most, len(plain))
        agent.hold(len(plain or b""))
        return plain


def _later(*, begun: bool) -> CIMultiDict[str]:
    """Return headers that say when to retry and, if no answer has begun, that another sidecar may be asked."""
    more_headers = CIMultiDict({"Retry-After": str(_RETRY_SECONDS)})
    if not begun:
        more_headers[names.STOPPING] = "true"
    return more_headers


def _peer(request: web.Request) -> str:
    return str(request.remote or "")


def _certificate(request: web.Request) -> Any:
    connection = request.get_extra_info("ssl_object")
    return connection.getpeercert() if connection is not None else None
