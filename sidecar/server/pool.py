"""Where calls run: thread pools with a bound on what waits, and the count of calls in flight.

gRPC reads a unary request only when a thread has taken the call, so a waiting call costs little memory; the bound
keeps the wait short. Health has threads of its own: a busy sidecar must not look like a dead one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import ParamSpec, TypeVar

import grpc


class Arrival(threading.local):
    """When the call that the current thread serves arrived. Each call has a context of its own, so no ContextVar."""

    at = 0.0
    """By `perf_counter`."""


ARRIVAL = Arrival()

P = ParamSpec("P")
T = TypeVar("T")


def _ignored(_: float) -> None:
    pass


class InFlight:
    """How many calls are waiting, running or still being answered; tells when there are none."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        """One more."""
        with self._changed:
            self._count += 1

    def remove(self) -> None:
        """One less."""
        with self._changed:
            self._count -= 1
            if self._count == 0:
                self._changed.notify_all()

    def follow(self, context: grpc.ServicerContext) -> None:
        """Count a call from now until its answer is handed to the transport or it is cancelled."""
        self.add()
        if not context.add_callback(self.remove):
            self.remove()

    @property
    def count(self) -> int:
        """How many there are now; a call that runs may be counted both as running and as being answered."""
        return self._count

    def wait_for_none(self, timeout: float) -> bool:
        """Wait until there are none, at most `timeout` seconds; return whether there are none."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout)


class Pool(ThreadPoolExecutor):
    """Threads that say when as many calls run or wait as they may. `in_flight`, if given, counts them."""

    def __init__(
        self,
        workers: int,
        most: int,
        name: str,
        in_flight: InFlight | None = None,
        *,
        waited: Callable[[float], None] | None = None,
    ) -> None:
        """`waited` is told the seconds that each call waited for its thread, in that thread."""
        super().__init__(workers, thread_name_prefix=name)
        self._waited = waited or _ignored
        self._workers = workers
        self._most = most
        self._in_flight = in_flight or InFlight()
        self._lock = threading.Lock()
        self._pending = 0

    @property
    def active(self) -> int:
        """Calls that wait, run, or are still being answered; the last are those of `in_flight` that are not here."""
        pending = self._pending
        answered = self._in_flight.count - pending - min(pending, self._workers)
        return pending + max(0, answered)

    @property
    def full(self) -> bool:
        """Whether no further call may wait."""
        return self._pending >= self._most

    def warm(self, function: Callable[[], None]) -> None:
        """Start every thread and run `function` once in each."""
        together = threading.Barrier(self._workers)

        def run() -> None:
            function()
            together.wait()

        for future in [self.submit(run) for _ in range(self._workers)]:
            future.result()

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `function` in a thread."""
        arrived = perf_counter()

        def run() -> T:
            ARRIVAL.at = arrived
            self._waited(perf_counter() - arrived)
            return function(*args, **kwargs)

        with self._lock:
            self._pending += 1
        self._in_flight.add()
        try:
            future = super().submit(run)
        except BaseException:
            self._done(None)
            raise
        future.add_done_callback(self._done)
        return future

    def _done(self, _: object) -> None:
        with self._lock:
            self._pending -= 1
        self._in_flight.remove()
