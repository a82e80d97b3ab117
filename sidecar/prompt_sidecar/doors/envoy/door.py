"""The external processor's server: grpc.aio on its own event loop, and threads that trim.

A stream lasts as long as its exchange, minutes if the response is read: a server with a thread for each stream would
forward prompts untrimmed as soon as there are more streams than threads. Here streams wait on the event loop, and only
a prompt takes a thread. Its answer is serialised in that thread, and very large messages are parsed in one.

A request that cannot be processed continues unchanged, which is counted by outcome. Envoy gets that answer at once, so
that an overloaded sidecar does not delay it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError

from prompt_sidecar.answers.restored_answers import RestoredWhole, whole_restored
from prompt_sidecar.calls.conversations import Conversations
from prompt_sidecar.calls.grpc_channels import channel_arguments, credentials
from prompt_sidecar.calls.memory import REQUEST_COPIES, Reservation
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.subjects import proven_by_grpc
from prompt_sidecar.calls.tokens import bearer_token
from prompt_sidecar.calls.turns import Owner
from prompt_sidecar.doors.envoy import messages
from prompt_sidecar.doors.envoy.exchange import EnvoyExchange, RestoreWhole, SendAnswer, TrimBody
from prompt_sidecar.doors.envoy.identity import CONVERSATIONS_BOUND, PREFIX, Identities
from prompt_sidecar.doors.envoy.options import EnvoyOptions
from prompt_sidecar.doors.envoy.processor import Guard, ProcessedRequest, Processor, until
from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.errors import TooLarge, Unauthenticated
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome, MasksStay
from prompt_sidecar.facts.http_calls import AgentAnswered, AgentRequest
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed
from prompt_sidecar.process.logs import begin_about, frames
from prompt_sidecar.process.starting import StartError, bound_socket

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
"""Envoy's name for the service that it calls."""
_LARGE: Final = 4_194_304
"""Message size from which on messages are parsed in a thread: a megabyte takes the event loop a tenth of a millisecond,
and a change to another thread may take five."""
_ENVELOPE: Final = 1_048_576
"""Bytes of a message in addition to the body."""
_MOST_MESSAGE: Final = 2**31 - 1
"""The largest message size that gRPC can be configured with: the maximum of a C int."""
_ASK_AFTER: Final = 0.1
"""Seconds after which Envoy is asked to wait longer: half of its default message_timeout."""
_SMALL_NEED: Final = REQUEST_COPIES * 65_536
"""Bytes that an exchange may need without a reservation, like a small body at the HTTP door."""
T = TypeVar("T")
_FRAME: Final = 1_048_576
_WINDOW: Final = 16_777_216
"""Size of an HTTP/2 frame, and of a stream's window: a body of a megabyte is sent in one round trip."""
_CLOSE_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class EnvoyDoor:
    """A `Door` for Envoy: an external processor. `key` is for the ids of derived runs."""

    early: Final = False
    addresses: Final = ()

    def __init__(self, options: EnvoyOptions, shared: DoorServices, key: bytes) -> None:
        self._options = options
        self._shared = shared
        self._observer = shared.observer
        self._key = key
        self._processor: Processor
        """Set by `start`; no stream is accepted before."""
        self._streams = 0
        self._waiting_bytes = 0
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: grpc.aio.Server
        self.port = 0
        """The port, also if port 0 was requested."""

    @property
    def address(self) -> str:
        """The address that Envoy connects to."""
        return f"{self._options.listen.rpartition(':')[0]}:{self.port}"

    @property
    def notice(self) -> str:
        """Its address, for the log."""
        return f"external processor for Envoy: listening on {self.address}"

    @property
    def streams(self) -> int:
        """Number of exchanges in progress."""
        return self._streams

    def bind(self) -> None:
        """Open its listening socket. Raises StartError."""
        self._thread = threading.Thread(target=self._run, name="envoy-loop", daemon=True)
        self._thread.start()
        try:
            self._server, self.port = self._do(self._bound())
        except (RuntimeError, OSError):
            self._end_loop()
            bound_socket("envoy.listen", self._options.listen).close()  # it says why not, which gRPC does not
            raise StartError(f"envoy.listen {self._options.listen}: cannot listen there; set another") from None

    def start(self) -> None:
        """Serve."""
        conversations = Conversations(
            self._key, self._options.max_conversations, PREFIX, partial(self._observer.reached, CONVERSATIONS_BOUND)
        )
        by_credential = self._options.caller_by == "credential"
        identities = Identities(self._key, by_credential, self._shared.names, conversations)
        self._shared.use_cases.runs.table.keep_with(conversations)
        self._processor = Processor(self._shared, identities)
        self._do(self._server.start())

    def drain(self) -> None:
        """Refuse further streams: Envoy uses another sidecar, or none; prompts in progress continue."""
        self._stopping = True

    def stop(self, grace: float) -> bool:
        """Wait up to `grace` seconds for prompts in progress, then end all streams: exchanges go on without them."""
        clean = self._shared.in_flight.wait_for_none(grace)
        if self._thread is not None:
            self._do(self._server.stop(0))
            self._end_loop()
        return clean

    # -- the event loop ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)
        self._thread = None

    async def _bound(self) -> tuple[grpc.aio.Server, int]:
        """Create the server and bind its address. Raises RuntimeError, OSError if it is not available."""
        most = min(self._shared.options.max_message_bytes + _ENVELOPE, _MOST_MESSAGE)
        server = grpc.aio.server(
            options=[
                # A dead Envoy would otherwise keep its streams, and so their slots.
                *channel_arguments(self._shared.options, most),
                ("grpc.http2.max_frame_size", _FRAME),
                ("grpc.http2.lookahead_bytes", _WINDOW),
            ]
        )
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._process)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Process": handler}),))
        listen, tls = self._options.listen, self._shared.tls
        return server, (
            server.add_insecure_port(listen) if tls is None else server.add_secure_port(listen, credentials(tls))
        )

    async def _process(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Serve one exchange."""
        begin_about("envoy")
        try:
            peer = self._peer(context)
        except Unauthenticated as error:
            self._observer.envoy_request(EnvoyOutcome.UNAUTHENTICATED)
            self._shared.use_cases.handled(Handled(Through.ENVOY, Untrimmed.UNAUTHENTICATED))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)
        guards = partial(self._processor.guards, peer=peer)
        exchange = EnvoyExchange(usage=self._options.usage, answer_bytes=self._options.answer_bytes, guards=guards)
        outcome = self._no_room()
        if outcome is not None:
            if (refusal := await self._left_out(exchange, requests, context, outcome)) is not None:
                yield refusal
            return  # Envoy continues by itself when a stream ends
        self._streams += 1
        ends = self._loop.time() + self._options.exchange_age
        reserved = self._shared.use_cases.memory.growing()
        try:
            while (raw := await self._next(requests, ends)) is not None:
                async for answer in self._answers(exchange, raw, peer, reserved):
                    if answer.outcome is not None:
                        self._count(exchange, answer.outcome)
                    for _ in range(answer.before):
                        yield messages.EMPTIED
                    if answer.reply is not None:
                        yield answer.reply
                    if answer.then is not None:
                        yield answer.then
                    if answer.last:
                        return
        except Exception as error:  # noqa: BLE001 - whatever it is, Envoy goes on by itself when the stream ends
            if (refusal := self._failed(exchange, peer, error)) is not None:
                yield refusal
        finally:
            self._streams -= 1
            reserved.resize(0)
            self._report(exchange, peer)
            if exchange.stay is not None:
                self._observer.masks_stayed(exchange.stay)
            if exchange.stay is MasksStay.TOO_LONG:
                self._observer.reached("envoy.answer_bytes")

    def _count(self, exchange: EnvoyExchange, outcome: EnvoyOutcome) -> None:
        """Count a request, once."""
        self._observer.envoy_request(outcome)
        if (handled := exchange.handled(outcome)) is not None:
            self._shared.use_cases.handled(handled)

    def _failed(self, exchange: EnvoyExchange, peer: str, error: Exception) -> bytes | None:
        """Log that an exchange failed; return the last message to Envoy before its stream ends, if any."""
        _log.error("an exchange failed, incident %s: %s", secrets.token_hex(6), frames(error))
        return None if exchange.is_counted else self._refused(exchange, peer, EnvoyOutcome.FAILED)

    async def _left_out(
        self,
        exchange: EnvoyExchange,
        requests: AsyncIterator[bytes],
        context: grpc.aio.ServicerContext[Any, Any],
        outcome: EnvoyOutcome,
    ) -> bytes | None:
        """Read the headers of a request that is over a limit; return the result of `_refused`.

        If the sidecar is stopping, the stream ends with UNAVAILABLE: Envoy uses another sidecar, or continues by
        failure_mode_allow.
        """
        first = await self._next(requests, self._loop.time() + self._options.patience)
        with contextlib.suppress(DecodeError):
            exchange.take(wire.ProcessingRequest.FromString(first or b""))
        refusal = self._refused(exchange, self._peer(context), outcome)
        if refusal is None and outcome is EnvoyOutcome.STOPPING:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this sidecar is stopping; ask another")
        return refusal

    def _refused(self, exchange: EnvoyExchange, peer: str, outcome: EnvoyOutcome) -> bytes | None:
        """Count a request that was not processed; return its refusal, if its body must not be forwarded unread."""
        left = self._left(exchange, peer, outcome)
        assert left.outcome is not None
        self._count(exchange, left.outcome)
        return left.reply if left.outcome is EnvoyOutcome.REFUSED else None

    def _left(self, exchange: EnvoyExchange, peer: str, outcome: EnvoyOutcome) -> SendAnswer:
        """Return the last answer to a request that was not processed."""
        left = ProcessedRequest(outcome, messages.request_body(None))
        if exchange.is_guarded:
            left = self._processor.left(exchange.headers, peer, exchange.format, left)
        return SendAnswer(left.reply, last=True, outcome=left.outcome)

    async def _next(self, requests: AsyncIterator[bytes], ends: float) -> bytes | None:
        """Return the next message; None if there is none, or the exchange has taken too long."""
        try:
            async with asyncio.timeout_at(ends):
                return await anext(requests, None)
        except TimeoutError:
            self._observer.reached("envoy.exchange_age")
            return None

    async def _answers(
        self, exchange: EnvoyExchange, raw: bytes, peer: str, reserved: Reservation
    ) -> AsyncIterator[SendAnswer]:
        """Yield the answers to one message: one, possibly after a request to wait longer."""
        if not self._has_memory(reserved, exchange.needs(len(raw))):
            yield self._without_memory(exchange, peer)
            return
        try:
            message = await self._parsed(raw, peer)
        except DecodeError:
            if exchange.is_counted:
                yield SendAnswer(None, last=True)
                return
            left = self._left(exchange, peer, EnvoyOutcome.FAILED)
            yield left if left.outcome is EnvoyOutcome.REFUSED else replace(left, reply=None)
            return
        for _ in exchange.take_ahead(message):
            await asyncio.sleep(0)
        step = await self._step(exchange, message, peer)
        if isinstance(step, SendAnswer):
            if step.outcome is EnvoyOutcome.UNREADABLE and exchange.is_guarded:  # it violated the protocol
                step = self._left(exchange, peer, EnvoyOutcome.UNREADABLE)
            if not step.last and not self._has_memory(reserved, exchange.needs(0)):
                step = self._without_memory(exchange, peer)
            yield step
            if step.owed:
                yield SendAnswer(messages.wait_longer(self._options.patience))
            return
        if isinstance(step, RestoreWhole):
            yield exchange.restored(await self._restored(step, peer))
            return
        began = perf_counter()
        if self._is_full(len(step.body)):
            yield self._left(exchange, peer, EnvoyOutcome.BUSY)
            return
        stopped = threading.Event()
        check = until(monotonic() + self._options.patience, stopped.is_set)
        self._waiting_bytes += len(step.body)
        self._shared.in_flight.add()
        work: Future[ProcessedRequest] = self._shared.workers.submit_for(
            Owner(peer, peer), len(step.body), copy_context().run, self._work(step, exchange.headers, peer, check)
        )
        work.add_done_callback(lambda _: self._shared.in_flight.remove())
        try:
            waited = asyncio.wrap_future(work)
            done, _ = await asyncio.wait({waited}, timeout=_ASK_AFTER)
            if not done:
                yield SendAnswer(messages.wait_longer(self._options.patience))
            processed = await waited
        except asyncio.CancelledError:
            self._count(exchange, EnvoyOutcome.LATE)
            raise
        finally:
            stopped.set()  # the task that waits may have ended
            self._waiting_bytes -= len(step.body)
        self._observer.envoy_answered(perf_counter() - began)
        yield exchange.trimmed(processed)
        reserved.resize(0)

    def _work(
        self, step: TrimBody | Guard, headers: Mapping[str, str], peer: str, check: Callable[[], None]
    ) -> Callable[[], ProcessedRequest]:
        """Return the function that processes a request's body in a thread."""
        if isinstance(step, Guard):
            return partial(self._processor.guard, step, headers, peer, check)
        return partial(self._traced, step, headers, peer, check)

    def _traced(
        self, step: TrimBody, headers: Mapping[str, str], peer: str, check: Callable[[], None]
    ) -> ProcessedRequest:
        """Trim a prompt within a span of its request, which belongs to the agent's trace."""
        path, scheme = headers.get(":path", "").partition("?")[0], headers.get(":scheme", "http")
        request = AgentRequest(headers.get(":method", "POST"), step.path.api.route, scheme, path, headers)
        begun = self._observer.request_begun(request)
        outcome, caller, run_id = EnvoyOutcome.FAILED, "", ""
        try:
            processed = self._processor.trim(step.path, headers, step.body, peer, check)
            outcome = processed.outcome
            if processed.identity is not None:
                caller, run_id = processed.identity.caller, processed.identity.run_id
            return processed
        finally:
            reason = "" if outcome is EnvoyOutcome.ANSWERED else outcome.value
            self._observer.request_ended(begun, AgentAnswered(0, outcome.value, reason, 0, caller, run_id))

    def _without_memory(self, exchange: EnvoyExchange, peer: str) -> SendAnswer:
        """Answer if there is no memory for an exchange: refuse it, if its body must not be forwarded unread."""
        return self._left(exchange, peer, EnvoyOutcome.BUSY) if exchange.is_guarded else exchange.without_memory()

    def _has_memory(self, reserved: Reservation, need: int) -> bool:
        """Reserve memory for an exchange, unless it is little; return whether there is enough."""
        try:
            reserved.resize(need if need > _SMALL_NEED else 0)
        except TooLarge:
            self._observer.reached("limits.process_bytes")
            return False
        return True

    async def _step(
        self, exchange: EnvoyExchange, message: wire.ProcessingRequest, peer: str
    ) -> SendAnswer | TrimBody | Guard | RestoreWhole:
        """Let an exchange process a message; in a thread if that may take long."""
        if exchange.is_long:
            with contextlib.suppress(RuntimeError):  # for the reason given in `_parsed`
                return await self._in_thread(peer, exchange.kept_bytes, exchange.take, message)
        return exchange.take(message)

    async def _in_thread(self, peer: str, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Run a function that processes `size` bytes in a thread. Raises RuntimeError if the threads have ended."""
        run = copy_context().run
        return await asyncio.wrap_future(
            self._shared.workers.submit_for(Owner(peer, peer), size, run, function, *arguments)
        )

    async def _restored(self, step: RestoreWhole, peer: str) -> RestoredWhole:
        """Restore the masks in a whole response, in a thread."""
        if self._is_full(len(step.body)):
            return RestoredWhole(None, MasksStay.BUSY)
        self._waiting_bytes += len(step.body)
        try:
            return await self._in_thread(peer, len(step.body), whole_restored, step.dialect, step.body, step.restore)
        except RuntimeError:  # the door has been closed
            return RestoredWhole(None, MasksStay.BUSY)
        finally:
            self._waiting_bytes -= len(step.body)

    def _is_full(self, more: int) -> bool:
        """Whether a limit forbids that so many more bytes wait for a thread; that limit is counted."""
        if self._shared.workers.pending >= self._options.max_prompts:
            self._observer.reached("envoy.max_prompts")
            return True
        if self._waiting_bytes and self._waiting_bytes + more > self._options.waiting_bytes:
            self._observer.reached("envoy.waiting_bytes")
            return True
        return False

    async def _parsed(self, raw: bytes, peer: str) -> wire.ProcessingRequest:
        """Parse a message; a large one in a thread. Raises DecodeError."""
        if len(raw) >= _LARGE:
            with contextlib.suppress(RuntimeError):  # the threads have ended with the server, and this stream ends soon
                return await self._in_thread(peer, len(raw), wire.ProcessingRequest.FromString, raw)
        return wire.ProcessingRequest.FromString(raw)

    def _report(self, exchange: EnvoyExchange, peer: str) -> None:
        """Report the usage in the response, without waiting for it."""

        def run() -> None:
            found = exchange.report()
            if found is not None and found[0].identity is not None:
                self._processor.report(found[0].identity, found[0].revision, found[1])

        if not exchange.reads:
            return
        try:
            self._shared.workers.submit_for(Owner(peer, peer), exchange.kept_bytes, copy_context().run, run)
        except RuntimeError:  # the door has been closed
            _log.debug("a report came too late")

    def _no_room(self) -> EnvoyOutcome | None:
        if self._stopping:
            return EnvoyOutcome.STOPPING
        if self._streams >= self._options.max_exchanges:
            self._observer.reached("envoy.max_exchanges")
            return EnvoyOutcome.BUSY
        return None

    def _peer(self, context: grpc.aio.ServicerContext[Any, Any]) -> str:
        """Return the name that Envoy has authenticated as; empty if it need not authenticate.

        Raises:
            Unauthenticated: a token is required but missing or unknown.
        """
        if self._shared.tokens:
            caller = self._shared.tokens.caller(bearer_token(context.invocation_metadata()))
            if caller is None:
                raise Unauthenticated("Envoy must send initial_metadata `authorization: Bearer …` with a known token")
            return caller
        proven = proven_by_grpc(context.auth_context())
        return f"mtls:{proven}" if proven else ""
