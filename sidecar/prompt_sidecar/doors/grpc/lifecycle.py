"""Life cycle of the gRPC door: bind, serve, drain, stop.

It serves while the vocabulary is loaded: the health status is NOT_SERVING, and early calls wait in their threads. At a
stop the status is NOT_SERVING and new calls are refused at once, calls in flight finish within the grace period, and
those that still run after it are cancelled. Connections stay open until then: gRPC's own stop closes each with its last
call, and a client's next frame on a closed socket resets it, which loses the part of a large answer that the kernel has
not sent yet. Open health watches and reflection streams are not waited for: they would delay every stop by the whole
grace period.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from prompt_sidecar.calls.grpc_channels import channel_arguments, credentials
from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.pool import WorkerPool
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.grpc import own_pool
from prompt_sidecar.doors.grpc.handed import unknown_grpc
from prompt_sidecar.doors.grpc.health import SERVICE_NAME as HEALTH_NAME
from prompt_sidecar.doors.grpc.health import Health
from prompt_sidecar.doors.grpc.interceptor import Interceptor, Receptions
from prompt_sidecar.doors.grpc.reception import Clerk, Reception
from prompt_sidecar.doors.grpc.refusing import Refusing
from prompt_sidecar.doors.grpc.servicer import SERVICE, Servicer
from prompt_sidecar.doors.grpc.unix_socket import (
    check_socket,
    first_name,
    group_number,
    see_that_nobody_listens,
    target,
)
from prompt_sidecar.process.starting import StartError, bound_socket

_HEALTH_THREADS = 2
_WATCH_THREADS = 2
_REFUSAL_THREADS = 1
_ADMIN_THREADS = 4
"""Threads for reflection and channelz; an open reflection stream holds one, for server.message_timeout at most."""
_SIDE_CALLS = 64
"""Calls of health, reflection and channelz that run or wait."""
_LAST_CALLS_SECONDS = 60.0
"""Seconds that calls have to finish when their connection has reached its maximum age."""
_FLUSH_SECONDS = 0.25
"""Seconds that connections stay open after the last answer, so that the kernel can send it: 10 MB at 320 Mbit/s."""
_END_SECONDS = 2.0
"""Seconds that a stop waits for gRPC's own threads."""
_CHANNELZ = "grpc.channelz.v1.Channelz"

_log = logging.getLogger(__name__)


class GrpcDoor:
    """A `Door` for clients of prompt_sidecar.v1, on TCP, a unix socket, or both."""

    early: Final = True
    notice: Final = ""

    def __init__(self, shared: DoorServices) -> None:
        self._shared = shared
        self._settings = settings = shared.options
        self._in_flight = shared.in_flight
        missing = unknown_grpc()
        if missing:
            _log.warning(own_pool.WARNING, grpc.__version__, missing)
        self._own_pool = ThreadPoolExecutor(settings.workers, "grpc") if missing else None
        """Runs calls that no reception can take; None if there are none."""
        checks, watch, admin, refuse = self._side_pools = (
            WorkerPool(_HEALTH_THREADS, "health"),
            WorkerPool(_WATCH_THREADS, "watch"),
            WorkerPool(_ADMIN_THREADS, "admin"),
            WorkerPool(_REFUSAL_THREADS, "refuse"),
        )
        self._refusing = Refusing(refuse, shared.observer.reached)
        self._receptions = self._receive(checks, watch, admin)
        self._own = self._receptions.own
        self._clerk: Clerk | None = None
        self._serves = False
        self._interceptor = Interceptor(shared, self._receptions, own_pool=bool(missing))
        self._server = grpc.server(
            self._own_pool or shared.workers,
            interceptors=[self._interceptor],
            options=_arguments(settings),
            maximum_concurrent_rpcs=settings.max_calls if missing else None,
        )
        self._health = Health(SERVICE, watch)
        shared.readiness.changed.append(self._health.set)
        self._inode: tuple[int, int] | None = None
        self.port = 0
        """The TCP port, also if port 0 was requested; 0 if there is none."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that clients connect to, as gRPC writes them."""
        tcp = f"{self._settings.listen.rpartition(':')[0]}:{self.port}" if self.port else ""
        unix = target(self._settings.socket) if self._settings.socket else ""
        return tuple(address for address in (tcp, unix) if address)

    def bind(self) -> None:
        """Open its listening sockets. Raises StartError."""
        if self._settings.listen:
            self.port = self._bind_tcp()
        if self._settings.socket:
            self._bind_socket()

    def start(self) -> None:
        """Serve."""
        use_cases = self._shared.use_cases
        self._own.room = use_cases.memory.room
        servicer = Servicer(use_cases, self._settings.max_message_bytes)
        methods = servicer.handlers()
        self._shared.calls = lambda: self._own.active if self._own_pool is None else self._in_flight.count
        self._shared.buffers["untaken_answers"] = lambda: self._own.untaken_bytes
        self._shared.buffers["answer_parts"] = lambda: servicer.kept_bytes
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
        self._clerk = Clerk(self._refusing, taken.own, taken.health, taken.watch, taken.admin)
        for pool in self._side_pools:  # a thread that is started later may find no memory
            pool.warm(lambda: None)
        self._server.start()
        self._serves = True

    def drain(self) -> None:
        """Refuse all further calls; calls whose message has not arrived are not waited for."""
        self._interceptor.close()
        self._own.close()
        self._refusing.close()

    def stop(self, grace: float) -> bool:
        """Wait up to `grace` seconds for calls in flight, then end; return whether all finished."""
        idle = self._in_flight.wait_for_none(0)
        clean = idle or self._in_flight.wait_for_none(grace)
        if clean and not idle:
            time.sleep(_FLUSH_SECONDS)
        self._unlink_socket()  # while the file is open: later its inode may belong to another file
        if self._serves:  # gRPC would wait for ever for a thread that the system has not started
            self._server.stop(None).wait(_END_SECONDS)
        if self._clerk is not None:
            self._clerk.end()
        for pool in (*self._side_pools, *([self._own_pool] if self._own_pool is not None else [])):
            pool.shutdown(wait=False, cancel_futures=True)
        return clean

    def _receive(self, checks: WorkerPool, watch: WorkerPool, admin: WorkerPool) -> Receptions:
        """Make the receptions of all methods."""
        reached = self._shared.observer.reached
        make = partial(Reception, refusing=self._refusing, options=self._settings, reached=reached)
        side = partial(make, bound="server.side_calls", most=_SIDE_CALLS)
        return Receptions(
            own=make(
                self._shared.workers,
                bound="server.max_calls",
                most=self._settings.max_calls,
                in_flight=self._in_flight,
            ),
            health=side(checks),
            watch=side(watch),
            admin=side(admin),
        )

    def _bind_tcp(self) -> int:
        listen, tls = self._settings.listen, self._shared.tls
        try:
            if tls is None:
                return self._server.add_insecure_port(listen)
            return self._server.add_secure_port(listen, credentials(tls))
        except RuntimeError:
            bound_socket("server.listen", listen).close()  # the system's error says why not, which gRPC's does not
            raise StartError(
                f"server.listen {listen}: cannot listen there; are the TLS files a certificate chain, its key and "
                "authorities in PEM?"
            ) from None

    def _bind_socket(self) -> None:
        """Bind under a random name, then rename the socket to its path.

        When gRPC stops, it removes the file with the name that it was given, even if another process has created it
        since. So it is given a name that no longer exists, and `_unlink_socket` checks whether the file at the path is
        this server's.
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
            first.chmod(int(self._settings.socket_mode, 8))  # last: until then no other user may connect
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
    """Return an identifier of a file: inode numbers are unique only on one device."""
    found = path.lstat()
    return found.st_dev, found.st_ino


def _arguments(settings: ServerOptions) -> list[tuple[str, int]]:
    """Return gRPC's options for connections."""
    return [
        *channel_arguments(
            settings,
            settings.max_message_bytes,
            {
                "grpc.max_connection_idle_ms": settings.connection_idle,
                "grpc.max_connection_age_ms": settings.connection_age,
                "grpc.max_connection_age_grace_ms": _LAST_CALLS_SECONDS,
            },
        ),
        ("grpc.http2.bdp_probe", 0),  # gRPC would buffer a megabyte or more of messages that were not requested
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.keepalive_permit_without_calls", 1),  # peers that vanished while idle are noticed too
        ("grpc.enable_channelz", int(settings.channelz)),
    ]


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    """Create files with `mask` in this context: the socket is never open to others, not even before chmod."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
