"""The life of the server: bind, serve, drain, stop.

It binds first, so that a taken address is told at once; then the vocabularies are loaded, while early clients wait in
the listen queue; only then calls and health checks are answered. At a stop, health says NOT_SERVING and new calls are
refused at once, calls in flight finish within the grace, and what then still runs is cancelled. Connections stay open
until then: gRPC's own stop closes each with its last call, and a client's next frame on a closed socket resets it,
which loses what the kernel has not sent yet of a large answer. Open health watches and reflection streams are not
waited for: they would hold every stop for the whole grace.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sidecar.run.service import Runs
from sidecar.server.allocator import give_back
from sidecar.server.callers import Callers, read_tokens
from sidecar.server.guard import Guard, Pools
from sidecar.server.indexing import Indexer
from sidecar.server.logs import frames
from sidecar.server.options import ServerOptions, split_address
from sidecar.server.pool import InFlight, Pool
from sidecar.server.servicer import SERVICE, Servicer
from sidecar.telemetry.observer import Observer

_HEALTH_THREADS = 2
_ADMIN_THREADS = 4
"""Threads for reflection and channelz; each open reflection stream holds one."""
_SIDE_CALLS = 64
"""Health checks, and reflection and channelz calls, running or waiting; with max_calls the bound on all calls."""
_FLUSH_SECONDS = 0.25
"""How long connections stay open after the last answer, so that the kernel can send it: 10 MB at 320 Mbit/s."""
_END_SECONDS = 2.0
"""How long a stop waits for gRPC's own threads, and for a slice of housekeeping or indexing each."""

_GIVE_BACK_SECONDS = 30.0
"""Time between givings back of unused memory, which take some milliseconds."""

_log = logging.getLogger(__name__)


class StartError(Exception):
    """The server cannot start; the message says what to change."""


class Server:
    """A bound server. `start` makes it serve, `stop` ends it. `observer` is told of its calls.

    Raises:
        StartError: an address is taken or cannot be bound, or a TLS file cannot be used.
        TokensError: the tokens file cannot be used.
    """

    def __init__(self, settings: ServerOptions, observer: Observer | None = None) -> None:
        self._settings = settings
        self.observer = observer or Observer()
        """Whom it tells of its calls."""
        self._in_flight = InFlight()
        self._stop_sweeping = threading.Event()
        self._sweeper: threading.Thread | None = None
        self._indexer: Indexer | None = None
        self._own = Pool(settings.workers, settings.max_calls, "call", self._in_flight, waited=self.observer.waited)
        self._health_pool = Pool(_HEALTH_THREADS, _SIDE_CALLS, "health")
        self._admin = Pool(_ADMIN_THREADS, _SIDE_CALLS, "admin")
        callers = Callers(read_tokens(settings.tokens_file) if settings.tokens_file else {})
        pools = Pools(own=self._own, health=self._health_pool, admin=self._admin)
        self._guard = Guard(callers, self._in_flight, pools, self.observer)
        self._server = grpc.server(
            self._own,
            interceptors=[self._guard],
            options=[
                ("grpc.max_receive_message_length", settings.max_message_bytes),
                ("grpc.max_send_message_length", settings.max_message_bytes),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=settings.max_calls + 3 * _SIDE_CALLS,
        )
        self._health = health.HealthServicer(experimental_non_blocking=True)
        self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        self._health.set(SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
        self._inode: int | None = None
        self.port = self._bind_tcp() if settings.listen else 0
        """The TCP port, also where port 0 was asked for; 0: none."""
        if settings.socket:
            self._bind_socket()

    @property
    def addresses(self) -> tuple[str, ...]:
        """What clients dial, in gRPC's spelling."""
        tcp = f"{self._settings.listen.rpartition(':')[0]}:{self.port}" if self.port else ""
        unix = f"unix:{self._settings.socket}" if self._settings.socket else ""
        return tuple(address for address in (tcp, unix) if address)

    def start(self, runs: Runs, warm: Callable[[], None] = lambda: None) -> None:
        """Serve `runs`. `warm` is run once in each thread that serves calls, before the first call."""
        self._own.warm(warm)
        self._indexer = Indexer(runs.work_off, self._in_flight)
        servicer = Servicer(runs, self._settings.max_message_bytes, self._indexer.wake, self.observer)
        methods = servicer.handlers()
        self.observer.watch(runs.totals, lambda: self._own.active)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self._server.add_registered_method_handlers(SERVICE, methods)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        channelz.add_channelz_servicer(self._server)
        described = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME, _CHANNELZ)
        reflection.enable_server_reflection(described, self._server)
        self._server.start()
        self._sweeper = threading.Thread(target=self._sweep, args=(runs,), name="sweep", daemon=True)
        self._sweeper.start()
        self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
        self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace: float | None = None) -> bool:
        """Drain for `grace` seconds, by default the configured ones, then end; return whether all calls finished."""
        grace = self._settings.grace if grace is None else grace
        self._stop_sweeping.set()
        if self._indexer is not None:
            self._indexer.end()
        self._guard.close()
        self._health.enter_graceful_shutdown()
        idle = self._in_flight.wait_for_none(0)
        clean = idle or self._in_flight.wait_for_none(grace)
        if clean and not idle:
            time.sleep(_FLUSH_SECONDS)
        self._server.stop(None).wait(_END_SECONDS)
        if self._sweeper is not None:
            self._sweeper.join(_END_SECONDS)
        if self._indexer is not None:
            self._indexer.join(_END_SECONDS)
        self._unlink_socket()
        for pool in (self._own, self._health_pool, self._admin):
            pool.shutdown(wait=False, cancel_futures=True)
        return clean

    def _sweep(self, runs: Runs) -> None:
        given_back = time.monotonic()
        while not self._stop_sweeping.wait(self._settings.sweep_interval):
            try:
                runs.sweep()
                if time.monotonic() - given_back >= _GIVE_BACK_SECONDS:
                    give_back()
                    given_back = time.monotonic()
            except Exception as error:  # noqa: BLE001  # one bad slice must not end all housekeeping
                _log.error("housekeeping failed: %s", frames(error))

    def _bind_tcp(self) -> int:
        listen = self._settings.listen
        credentials = _credentials(self._settings)
        try:
            if credentials is None:
                return self._server.add_insecure_port(listen)
            return self._server.add_secure_port(listen, credentials)
        except RuntimeError:
            raise StartError(f"server.listen {listen}: {_why_not(listen)}") from None

    def _bind_socket(self) -> None:
        path = self._settings.socket
        _make_way(path)
        with _umask(0o177):
            try:
                self._server.add_insecure_port(f"unix:{path}")
            except RuntimeError:
                raise StartError(
                    f"server.socket {path} cannot be bound; its folder must exist and be writable"
                ) from None
        Path(path).chmod(0o600)
        self._inode = Path(path).stat().st_ino

    def _unlink_socket(self) -> None:
        """Remove our socket's file, but not one that another server has put in its place."""
        with contextlib.suppress(OSError):
            if self._inode is not None and Path(self._settings.socket).stat().st_ino == self._inode:
                Path(self._settings.socket).unlink()


_CHANNELZ = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name


def _make_way(path: str) -> None:
    """Remove the socket file that a dead server left; gRPC itself would remove a live one's as well."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartError(f"server.socket {path} cannot be looked at: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise StartError(f"server.socket {path} is there and is not a socket; it is not replaced")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
        except OSError as error:
            raise StartError(f"server.socket {path} is there and cannot be tried: {error.strerror}") from None
        else:
            raise StartError(f"server.socket {path}: a server is listening there already")


def _why_not(listen: str) -> str:
    """Say why an address cannot be bound; gRPC tells only that."""
    host, port = split_address(listen)
    try:
        family, kind, protocol, _, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(resolved)
    except OSError as error:
        return f"cannot listen there: {error.strerror}; free the address or set another"
    return "cannot listen there; are the TLS files a certificate chain, its key and authorities in PEM?"


def _credentials(settings: ServerOptions) -> grpc.ServerCredentials | None:
    if not settings.tls_certificate:
        return None
    authorities = _file("client_ca", settings.client_ca) if settings.client_ca else None
    pair = (_file("tls_key", settings.tls_key), _file("tls_certificate", settings.tls_certificate))
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=authorities is not None)


def _file(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StartError(f"server.{name} {path} cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    """Have files made with `mask`: the socket is never open to others, not even between bind and chmod."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
