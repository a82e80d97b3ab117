"""Thread pools that count their queued work, and the number of calls in flight.

Health checks have their own threads: a busy sidecar must not look like a dead one. `doors/grpc/reception.py` decides
which calls are submitted here, and how many.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Final, ParamSpec, TypeVar

from prompt_sidecar.calls.turns import Owner


class Arrival(threading.local):
    """When the call that the current thread serves arrived, and how large its answer is."""

    at = 0.0
    """Time of arrival, by `perf_counter`."""
    answered = 0
    """Bytes of its answer; 0 if there is none yet, or its size is not known."""


ARRIVAL = Arrival()

NO_THREAD: Final = "can't start new thread"
"""CPython's message when the system refuses a new thread."""

P = ParamSpec("P")
T = TypeVar("T")


def _ignored(_: float) -> None:
    pass


class InFlight:
    """The number of calls that wait, run or are still being answered; callers can wait until it is 0."""

    def __init__(self) -> None:
        self._count = 0
        self._ended_at = -math.inf
        """Time at which the last call ended, by `perf_counter`."""
        self._lock = threading.RLock()  # a coroutine that is finalized meanwhile may remove its call
        self._none = threading.Condition(self._lock)
        self._waiters = 0
        """Threads that wait until there are none."""

    def add(self) -> None:
        """Count one more call."""
        with self._lock:
            self._count += 1

    def remove(self) -> None:
        """Count one call less."""
        with self._lock:
            self._count -= 1
            self._ended_at = perf_counter()
            if self._count == 0 and self._waiters:
                self._none.notify_all()

    @property
    def count(self) -> int:
        """The current number."""
        return self._count

    @property
    def calm(self) -> float:
        """Seconds since a call was in flight: 0 while one is, infinite before the first."""
        return 0.0 if self._count else perf_counter() - self._ended_at

    def wait_for_none(self, timeout: float) -> bool:
        """Wait until there are none, at most `timeout` seconds; return whether there are none."""
        with self._lock:
            self._waiters += 1
            try:
                return self._none.wait_for(lambda: self._count == 0, timeout)
            finally:
                self._waiters -= 1


class WorkerPool(ThreadPoolExecutor):
    """A thread pool that counts the work that runs or waits."""

    def __init__(self, workers: int, name: str, *, waited: Callable[[float], None] | None = None) -> None:
        """`waited` is called with the seconds that each call waited for its thread, in that thread."""
        super().__init__(workers, thread_name_prefix=name)
        self._waited = waited or _ignored
        self.workers = workers
        """Number of threads."""
        self._in_flight = InFlight()

    @property
    def pending(self) -> int:
        """Number of functions that run or wait."""
        return self._in_flight.count

    def wait_for_none(self, timeout: float) -> bool:
        """Wait until no function runs or waits, at most `timeout` seconds; return whether there is none."""
        return self._in_flight.wait_for_none(timeout)

    def warm(self, function: Callable[[], None], threads: int = 0) -> None:
        """Start so many threads, all of them by default, and run `function` once in each.

        Raises:
            RuntimeError: the system refuses so many threads.
        """
        threads = min(threads, self.workers) or self.workers
        together = threading.Barrier(threads)

        def run() -> None:
            function()
            together.wait()

        begun: list[Future[None]] = []
        try:
            begun += (self.start(run) for _ in range(threads))
        finally:
            if len(begun) < threads or len(self._threads) < threads:
                together.abort()  # the threads that have started would wait for the others for ever
        if together.broken:
            raise RuntimeError(NO_THREAD)
        for future in begun:
            future.result()

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `function` in a thread."""
        run = self.counted(function, *args, **kwargs)
        try:
            future = self.start(run)
        except BaseException:
            self.done(None)
            raise
        future.add_done_callback(self.done)
        return future

    def submit_for(
        self,
        owner: Owner,  # noqa: ARG002 - see CallPool
        size: int,  # noqa: ARG002
        function: Callable[P, T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Future[T]:
        """Run `function` in a thread when it is the owner's turn; in this pool that is at once.

        If it cannot be started, as the pool has ended or there is no memory, the future has a RuntimeError.
        """
        try:
            return self.submit(function, *args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            failed: Future[T] = Future()
            failed.set_exception(RuntimeError(str(error)))
            return failed

    def counted(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Callable[[], T]:
        """Count work as waiting, and return it as a function; `done` stops counting it."""
        arrived = perf_counter()

        def run() -> T:
            ARRIVAL.at = arrived
            self._waited(perf_counter() - arrived)
            return function(*args, **kwargs)

        self._in_flight.add()
        return run

    def start(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `function` in the next free thread, without counting it."""
        return super().submit(function, *args, **kwargs)

    def done(self, _: object) -> None:
        """Stop counting work."""
        self._in_flight.remove()
