"""The standard health service: `Check` costs no lock, and `Watch` holds nobody up.

grpcio-health-checking's own servicer sends while it holds the lock that `Check` needs too, and that gRPC's event loop
needs when a watcher goes: one watcher that takes nothing of its answer would end all health checks, and two at the
wrong moment the whole server. Here nothing is locked while something is sent, and only what runs in the threads of
watches can wait for a watcher.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prompt_sidecar.server.pool import Pool

SERVICE_NAME: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
WATCH: Final = f"/{SERVICE_NAME}/Watch"
SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

_Status = Any
"""The number of a HealthCheckResponse.ServingStatus."""


class Health(health_pb2_grpc.HealthServicer):
    """One status for the server as a whole and for `service`. What watchers are told later is sent in `pool`."""

    def __init__(self, service: str, pool: Pool) -> None:
        self._services = frozenset({"", service})
        self._status: _Status = NOT_SERVING
        self._pool = pool
        self._lock = threading.Lock()
        self._watchers: set[_Watcher] = set()

    def set(self, status: _Status) -> None:
        """Say so from now on, and tell who watches."""
        with self._lock:
            self._status = status
            told = list(self._watchers)
        for watcher in told:
            self._pool.submit(watcher.tell)

    def Check(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """The status of a service."""
        if request.service not in self._services:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service; ask for the whole with an empty name")
        return health_pb2.HealthCheckResponse(status=self._status)

    def Watch(  # type: ignore[override]  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Any, send: Callable[[Any], None]
    ) -> None:
        """The status of a service, and each later one."""
        known = request.service in self._services
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watcher = _Watcher(send, lambda: self._status if known else unknown)
        with self._lock:
            if not context.add_callback(lambda: self._forget(watcher)):
                return
            self._watchers.add(watcher)
        watcher.tell()

    def _forget(self, watcher: _Watcher) -> None:
        with self._lock:
            self._watchers.discard(watcher)


# gRPC gives a function that is marked so another one to send with, and no thread to wait in.
Health.Watch.experimental_non_blocking = True  # type: ignore[attr-defined]


class _Watcher:
    """One open watch."""

    def __init__(self, send: Callable[[Any], None], status: Callable[[], _Status]) -> None:
        self._send = send
        self._status = status
        self._told: _Status = None
        self._lock = threading.Lock()

    def tell(self) -> None:
        """Send the status if it is another one. Waits for the watcher."""
        with self._lock:
            status = self._status()
            if status != self._told:
                self._told = status
                self._send(health_pb2.HealthCheckResponse(status=status))
