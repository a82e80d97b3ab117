"""The server's life cycle: bind, serve, drain, stop.

It binds at once, so an address in use is reported before anything is loaded. While the default vocabulary is loaded,
the health status is NOT_SERVING, and early calls wait for it in their threads; then it becomes SERVING. At a stop the
status is NOT_SERVING and new calls are refused at once, calls in flight finish within the grace period, and those that
still run after it are cancelled. Connections stay open until then: gRPC's own stop closes each with its last call, and
a client's next frame on a closed socket resets it, which loses the part of a large answer that the kernel has not sent
yet. Open health watches and reflection streams are not waited for: they would delay every stop by the whole grace
period.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from prompt_sidecar.calls.call_pool import CallPool
from prompt_sidecar.calls.caller_names import CallerNames
from prompt_sidecar.calls.indexing import Indexer
from prompt_sidecar.calls.memory import MemoryGate
from prompt_sidecar.calls.pool import InFlight, Pool
from prompt_sidecar.calls.refusals import LINES, Refusals
from prompt_sidecar.calls.shared import Shared
from prompt_sidecar.calls.tokens import Tokens, TokensError, read_tokens
from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.doors.grpc import own_pool
from prompt_sidecar.doors.grpc.callers import Callers
from prompt_sidecar.doors.grpc.handed import unknown_grpc
from prompt_sidecar.doors.grpc.health import NOT_SERVING, SERVING, Health
from prompt_sidecar.doors.grpc.health import SERVICE_NAME as HEALTH_NAME
from prompt_sidecar.doors.grpc.identity import Identity, IdentityError
from prompt_sidecar.doors.grpc.interceptor import Interceptor, Receptions
from prompt_sidecar.doors.grpc.options import ServerOptions
from prompt_sidecar.doors.grpc.probes import Probes
from prompt_sidecar.doors.grpc.reception import Bounds, Clerk, Reception
from prompt_sidecar.doors.grpc.refusing import Refusing
from prompt_sidecar.doors.grpc.servicer import SERVICE, Servicer
from prompt_sidecar.doors.grpc.unix_socket import (
    check_socket,
    first_name,
    group_number,
    see_that_nobody_listens,
    target,
)
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.process import cgroups
from prompt_sidecar.process.allocator import give_back
from prompt_sidecar.process.logs import frames
from prompt_sidecar.process.starting import StartError
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.values import split_address

_HEALTH_THREADS = 2
_WATCH_THREADS = 2
_REFUSAL_THREADS = 1
_ADMIN_THREADS = 4
"""Threads for reflection and channelz; an open reflection stream holds one, for server.message_timeout at most."""
_SIDE_CALLS = 64
"""Health checks and watches, and reflection and channelz calls, running or waiting."""
_LAST_CALLS_SECONDS = 60.0
"""Seconds that calls have to finish when their connection's age is reached."""
_FOR_EVER = 2**31 - 1
"""Milliseconds from which gRPC takes a time for none: what a C int holds, 24 days."""
_FLUSH_SECONDS = 0.25
"""Seconds that connections stay open after the last answer, so that the kernel can send it: 10 MB at 320 Mbit/s."""
_END_SECONDS = 2.0
"""Seconds that a stop waits for gRPC's own threads, and for one slice of housekeeping and of indexing each."""

_GIVE_BACK_SECONDS = 30.0
"""Seconds between returns of unused memory to the system, which take some milliseconds."""

_log = logging.getLogger(__name__)


class Server:
    """A bound server. `start` makes it serve, `stop` ends it. `observer` is called for each of its calls.

    Raises:
        StartError: an address is in use or cannot be bound, or a TLS file cannot be used.
        TokensError: the tokens file cannot be used.
    """

    def __init__(
        self,
        settings: ServerOptions,
        observer: Observer | None = None,
        refusals: Refusals | None = None,
        names: CallerNames | None = None,
    ) -> None:
        """Bind. `refusals` logs refused calls; None: as by default. `names` are those of callers."""
        self._settings = settings
        self.observer = observer or Observer()
        """Called for each of the server's calls."""
        self._in_flight = InFlight()
        self._stop_sweeping = threading.Event()
        self._sweeper: threading.Thread | None = None
        self._indexer: Indexer | None = None
        missing = unknown_grpc()
        if missing:
            _log.warning(own_pool.WARNING, grpc.__version__, missing)
        self._own_pool = ThreadPoolExecutor(settings.workers, "grpc") if missing else None
        """Where calls run that no reception can take; None: none does."""
        self._workers = CallPool(settings.workers, settings.running_calls, "call", waited=self.observer.waited)
        side = [Pool(threads, name) for threads, name in _SIDE_POOLS]
        self._pools = (self._workers, *side)
        self._refusing = Refusing(side[3], self.observer.reached)
        receptions = self._receive(*side[:3])
        self._own = receptions.own
        self._receptions = receptions
        self._clerk: Clerk | None = None
        self._shared: Shared | None = None
        self._refusals = refusals or Refusals(LINES)
        self._serves = False
        self._tokens = Tokens(read_tokens(settings.tokens_file) if settings.tokens_file else {})
        self._names = names or CallerNames()
        callers = Callers(self._tokens, self._names)
        in_flight = self._in_flight if missing else None
        self._interceptor = Interceptor(callers, receptions, self.observer, self._refusals, in_flight)
        self._identity = Identity(settings) if settings.tls_certificate else None
        self._server = grpc.server(
            self._own_pool or self._workers,
            interceptors=[self._interceptor],
            options=_channel_arguments(settings),
            maximum_concurrent_rpcs=settings.max_calls if missing else None,
        )
        self._health = Health(SERVICE, side[1])
        self.probes = Probes(settings.health_listen, self.observer.reached) if settings.health_listen else None
        """Answers probes over HTTP; None: nobody asked for them."""
        self._inode: tuple[int, int] | None = None
        self.port = self._bind_tcp() if settings.listen else 0
        """The TCP port, also where port 0 was asked for; 0: none."""
        if settings.socket:
            self._bind_socket()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that clients connect to, as gRPC writes them."""
        tcp = f"{self._settings.listen.rpartition(':')[0]}:{self.port}" if self.port else ""
        unix = target(self._settings.socket) if self._settings.socket else ""
        return tuple(address for address in (tcp, unix) if address)

    @property
    def shared(self) -> Shared:
        """What other doors need of a server that has started."""
        assert self._shared is not None
        return self._shared

    def credentials(self) -> grpc.ServerCredentials | None:
        """TLS credentials for another listener, which follow `reload`; None: there is no TLS."""
        return None if self._identity is None else self._identity.credentials()

    def wait_for_idle(self, patience: float) -> None:
        """Wait until no call is in flight, so many seconds at most."""
        self._in_flight.wait_for_none(patience)

    def start(
        self, runs: Runs, warm: Callable[[], None] = lambda: None, *, load: Callable[[], None] = lambda: None
    ) -> None:
        """Serve `runs`; return once the health status is SERVING.

        `load` loads what calls need, in a thread that serves calls: what the tokenizer keeps for a thread that has
        counted is of use there. Early calls wait for it themselves. Then `warm` is run once in each of the first
        threads that serve calls.
        """
        self._indexer = Indexer(runs.work_off, self._in_flight)
        memory = MemoryGate(runs.limits.process_bytes)
        self._own.room = memory.room
        use_cases = UseCases(runs, memory, self.observer, self._indexer.wake)
        self._shared = Shared(use_cases, self._workers, self._in_flight, self._tokens, self._names, self._refusals)
        servicer = Servicer(use_cases, self._settings.max_message_bytes)
        methods = servicer.handlers()
        self.observer.watch(
            runs.totals,
            lambda: self._own.active if self._own_pool is None else self._in_flight.count,
            memory.figures,
            buffers=lambda: {"untaken_answers": self._own.untaken_bytes, "answer_parts": servicer.kept_bytes},
            cpu=cgroups.processor,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self._server.add_registered_method_handlers(SERVICE, methods)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        described = [SERVICE, HEALTH_NAME, reflection.SERVICE_NAME]
        if self._settings.channelz:
            from grpc_channelz.v1 import channelz

            channelz.add_channelz_servicer(self._server)
            described.append(_CHANNELZ)
        reflection.enable_server_reflection(described, self._server)
        taken = self._receptions
        self._clerk = Clerk(taken.refusing, taken.own, taken.health, taken.watch, taken.admin)
        for pool in self._pools[1:]:  # a thread that is started later may find no memory
            pool.warm(lambda: None)
        self._server.start()
        self._serves = True
        sweeper = threading.Thread(target=self._sweep, args=(runs, memory), name="sweep", daemon=True)
        sweeper.start()
        self._sweeper = sweeper  # one that has not begun cannot be waited for
        self._workers.start(load).result()
        self._workers.warm(warm, self._settings.running_calls + 1)
        give_back()
        memory.settle()
        self._health.set(SERVING)
        if self.probes is not None:
            self.probes.started = True

    def stop(self, grace: float | None = None) -> bool:
        """Drain for `grace` seconds, by default the configured ones, then end; return whether all calls finished."""
        grace = self._settings.grace if grace is None else grace
        self._stop_sweeping.set()
        if self._indexer is not None:
            self._indexer.end()
        self._interceptor.close()
        self._own.close()
        self._refusing.close()
        self._health.set(NOT_SERVING)
        if self.probes is not None:
            self.probes.draining = True
        idle = self._in_flight.wait_for_none(0)
        clean = idle or self._in_flight.wait_for_none(grace)
        if clean and not idle:
            time.sleep(_FLUSH_SECONDS)
        self._unlink_socket()  # while we have it open: later its inode may be another file's
        if self._serves:  # gRPC would wait for ever for the end of a thread that the system has not let begin
            self._server.stop(None).wait(_END_SECONDS)
        if self._clerk is not None:
            self._clerk.end()
        self._refusals.log_omitted(at_once=True)
        if self._sweeper is not None:
            self._sweeper.join(_END_SECONDS)
        if self._indexer is not None:
            self._indexer.join(_END_SECONDS)
        if self.probes is not None:
            self.probes.close()
        for pool in (*self._pools, *([self._own_pool] if self._own_pool is not None else [])):
            pool.shutdown(wait=False, cancel_futures=True)
        return clean

    def reload(self) -> Sequence[str]:
        """Read the tokens and the TLS files again; return what changed, one sentence for each.

        A file that cannot be used is logged as an error, and what was read before stays in use. A removed token is
        refused from the next call on. Connections keep the certificates that they were made with until they end, at
        server.connection_age at the latest.
        """
        changes: list[str] = []
        settings = self._settings
        readers: list[Callable[[], str]] = []
        if settings.tokens_file:
            readers.append(lambda: self._tokens.replace(read_tokens(settings.tokens_file)))
        if self._identity is not None:
            readers.append(self._identity.reload)
        for read in readers:
            try:
                changes.append(read())
            except (TokensError, IdentityError) as error:
                _log.error("%s; what was read before stays in use", error)
        return changes

    def _receive(self, checks: Pool, watch: Pool, admin: Pool) -> Receptions:
        """Make the receptions of all methods."""
        settings, reached = self._settings, self.observer.reached
        own = Bounds(
            calls=settings.max_calls,
            bound="server.max_calls",
            slow=settings.slow_messages,
            message_seconds=settings.message_timeout,
            answer_seconds=settings.answer_timeout,
            untaken_bytes=settings.untaken_bytes,
            message_bytes=settings.max_message_bytes,
        )
        side = replace(own, calls=_SIDE_CALLS, bound="server.side_calls")
        return Receptions(
            own=Reception(self._workers, self._refusing, own, self._in_flight, reached),
            health=Reception(checks, self._refusing, side, reached=reached),
            watch=Reception(watch, self._refusing, side, reached=reached),
            admin=Reception(admin, self._refusing, side, reached=reached),
            refusing=self._refusing,
        )

    def _sweep(self, runs: Runs, memory: MemoryGate) -> None:
        given_back = time.monotonic()
        while not self._stop_sweeping.wait(self._settings.sweep_interval):
            try:
                runs.sweep()
                self._refusals.log_omitted()
                if over := memory.excess():
                    runs.shed(over)
                    given_back = -math.inf  # what was evicted helps only once it is given back
                if time.monotonic() - given_back >= _GIVE_BACK_SECONDS:
                    if runs.forget_shared() and not len(runs):
                        # No run is left to be looked through, so this takes some milliseconds.
                        gc.collect()
                    give_back()
                    given_back = time.monotonic()
            except Exception as error:  # noqa: BLE001  # one bad slice must not end all housekeeping
                _log.error("housekeeping failed: %s", frames(error))

    def _bind_tcp(self) -> int:
        listen = self._settings.listen
        try:
            if self._identity is None:
                return self._server.add_insecure_port(listen)
            return self._server.add_secure_port(listen, self._identity.credentials())
        except RuntimeError:
            raise StartError(f"server.listen {listen}: {_why_not(listen)}") from None

    def _bind_socket(self) -> None:
        """Bind under a random name, then rename the socket to its path.

        When gRPC stops, it removes the file with the name that it was given, even if another process has made it since.
        So it is given a name that no longer exists, and `_unlink_socket` checks whether the file at the path is this
        server's.
        """
        path = Path(self._settings.socket)
        check_socket(self._settings)
        see_that_nobody_listens(path)
        first, group = first_name(path), group_number(self._settings.socket_group)
        with _umask(0o177):
            try:
                self._server.add_insecure_port(target(first))
            except RuntimeError:
                raise StartError(f"server.socket {path} cannot be bound") from None
        try:
            if group is not None:
                os.chown(first, -1, group)
            first.chmod(int(self._settings.socket_mode, 8))  # last: until then nobody else may connect
        except OSError as error:
            first.unlink()
            raise StartError(
                f"server.socket_group {self._settings.socket_group}: the socket cannot be given to it: "
                f"{error.strerror}; the sidecar must be a member"
            ) from None
        try:
            first.rename(path)
        except OSError as error:
            first.unlink()
            raise StartError(f"server.socket {path} cannot be put in place: {error.strerror}") from None
        self._inode = _file_id(path)

    def _unlink_socket(self) -> None:
        """Remove our socket's file, but not one that another server has put in its place."""
        with contextlib.suppress(OSError):
            path = Path(self._settings.socket)
            if self._inode is not None and _file_id(path) == self._inode:
                path.unlink()


def _file_id(path: Path) -> tuple[int, int]:
    """Return what identifies a file: inode numbers are unique only on one device."""
    found = path.lstat()
    return found.st_dev, found.st_ino


def _channel_arguments(settings: ServerOptions) -> list[tuple[str, int]]:
    """How gRPC is to treat connections."""
    milliseconds = {
        "grpc.max_connection_idle_ms": settings.connection_idle,
        "grpc.max_connection_age_ms": settings.connection_age,
        "grpc.max_connection_age_grace_ms": _LAST_CALLS_SECONDS,
        "grpc.keepalive_time_ms": settings.keepalive,
        "grpc.keepalive_timeout_ms": settings.keepalive_timeout,
        "grpc.http2.ping_timeout_ms": settings.keepalive_timeout,
        "grpc.server_handshake_timeout_ms": settings.handshake_timeout,
        "grpc.http2.settings_timeout": settings.handshake_timeout,
    }
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.http2.bdp_probe", 0),  # it would take a megabyte and more of messages that nobody has requested
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.keepalive_permit_without_calls", 1),  # idle peers that went without a word are noticed too
        ("grpc.enable_channelz", int(settings.channelz)),
        *((name, min(int(seconds * 1_000), _FOR_EVER)) for name, seconds in milliseconds.items()),
    ]


_SIDE_POOLS = (
    (_HEALTH_THREADS, "health"),
    (_WATCH_THREADS, "watch"),
    (_ADMIN_THREADS, "admin"),
    (_REFUSAL_THREADS, "refuse"),
)
_CHANNELZ = "grpc.channelz.v1.Channelz"


def _why_not(listen: str) -> str:
    """Return why an address cannot be bound, which gRPC does not report."""
    host, port = split_address(listen)
    try:
        family, kind, protocol, _, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(resolved)
    except OSError as error:
        return f"cannot listen there: {error.strerror}; free the address or set another"
    return "cannot listen there; are the TLS files a certificate chain, its key and authorities in PEM?"


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    """Have files made with `mask`: the socket is never open to others, not even between bind and chmod."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
