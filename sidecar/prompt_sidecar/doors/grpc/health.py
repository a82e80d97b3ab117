"""The standard health service: `Check` takes no lock, and a slow `Watch` delays no other call.

grpcio-health-checking's own servicer sends while it holds the lock that `Check` needs too, and that gRPC's event loop
needs when a watcher disconnects: one watcher that does not read its answer would block all health checks, and two at
the wrong moment the whole server. Here no lock is held while something is sent, and only the threads of watches can
wait for a watcher.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prompt_sidecar.calls.pool import WorkerPool
from prompt_sidecar.calls.readiness import State

SERVICE_NAME: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
WATCH: Final = f"/{SERVICE_NAME}/Watch"
SERVING: Final = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

_Status = Any
"""The number of a HealthCheckResponse.ServingStatus."""


class Health(health_pb2_grpc.HealthServicer):
    """One status for the server as a whole and for `service`. Changes are sent to watchers in `pool`."""

    def __init__(self, service: str, pool: WorkerPool) -> None:
        self._services = frozenset({"", service})
        self._status: _Status = NOT_SERVING
        self._pool = pool
        self._lock = threading.Lock()
        self._watchers: set[_Watcher] = set()

    def set(self, state: State) -> None:
        """Set the status for a state of the process, and send it to all watchers."""
        with self._lock:
            self._status = SERVING if state is State.SERVING else NOT_SERVING
            watchers = list(self._watchers)
        for watcher in watchers:
            self._pool.submit(watcher.send)

    def Check(self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Return the status of a service."""
        if request.service not in self._services:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service; ask for the whole with an empty name")
        return health_pb2.HealthCheckResponse(status=self._status)

    def Watch(  # type: ignore[override]  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: Any, send: Callable[[Any], None]
    ) -> None:
        """Send the status of a service now, and each later one."""
        known = request.service in self._services
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watcher = _Watcher(send, lambda: self._status if known else unknown)
        with self._lock:
            if not context.add_callback(lambda: self._forget(watcher)):
                return
            self._watchers.add(watcher)
        watcher.send()

    def _forget(self, watcher: _Watcher) -> None:
        with self._lock:
            self._watchers.discard(watcher)


# gRPC passes another function to a marked one, to send with, and runs it without a thread of its own.
Health.Watch.experimental_non_blocking = True  # type: ignore[attr-defined]


class _Watcher:
    """One open watch."""

    def __init__(self, send: Callable[[Any], None], status: Callable[[], _Status]) -> None:
        self._deliver = send
        self._status = status
        self._sent: _Status = None
        self._lock = threading.Lock()

    def send(self) -> None:
        """Send the status if it has changed. Blocks until the watcher has read it."""
        with self._lock:
            status = self._status()
            if status != self._sent:
                self._sent = status
                self._deliver(health_pb2.HealthCheckResponse(status=status))
