"""Threads that run calls: few at once, and of each owner only so many that others find a thread.

Python runs one thread at a time. A short call, and the event loops that accept calls and send answers, wait at each
step for each busy thread. So of the calls that have begun only a few run at once. One that waits, for its turn among
long calls, for a lock or for the store, gives up its slot for that time, and the next one begins
(`prompt_sidecar.slots`). It gets its slot back at once, so that no call waits for a slot while it holds a lock.

A call that has begun keeps its thread to its end. So that no owner can occupy all threads, a connection begins a call
only while fewer of its own calls have begun than threads are free: one connection has half of the threads at most, two
have a third each. All connections of one caller leave an eighth to others. Owners whose calls wait take turns
(`prompt_sidecar.calls.turns`).

Decoding a large message cannot be interrupted. So only one call with a large message runs at a time, until it takes
turns with other long calls, or waits: the other slots are left to calls with small ones.

A short call passes from thread to thread some ten times, and each time it may meet a step of a heavy call that nothing
interrupts. So between two such steps a heavy call waits until no short call has work, for half of its time at most: a
short call meets one of these steps, not ten.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar

from prompt_sidecar.calls.pool import WorkerPool
from prompt_sidecar.calls.turns import Owner, OwnerCounts, WaitingTurns
from prompt_sidecar.slots import slot_of

P = ParamSpec("P")
T = TypeVar("T")

LARGE: Final = 1_000_000
"""Bytes of a message from which a call is a large one: decoding takes some 10 ms, with other work on it 50."""

GIVES_WAY: Final = 0.02
"""Longest time for which a heavy call waits for short ones at once: several of them take less, and a deadline is missed
by no more."""


class _Work:
    """A function that waits or runs, and its slot when it runs."""

    __slots__ = ("begun", "function", "future", "gave_way", "given_up", "large", "owner", "pool", "short", "since")

    def __init__(self, pool: CallPool, owner: Owner, *, large: bool) -> None:
        self.pool = pool
        self.owner = owner
        self.large = large
        """Whether it has, or needs, the one slot for large messages."""
        self.short = not large
        """Whether heavy calls give way to it: its message is not large, and it has not run for long."""
        self.since = 0.0
        """When it started, by `perf_counter`."""
        self.gave_way = 0.0
        """Seconds for which it has given way so far."""
        self.future: Future[Any] = Future()
        self.function: Callable[[], Any] = _nothing
        self.begun = False
        self.given_up = False
        """Whether submitting it to a thread failed; a thread may still run it."""

    def give_up(self) -> None:
        """See `Slots`."""
        self.pool.give_up(self)

    def take_turns(self) -> None:
        """See `Slots`."""
        self.pool.take_turns(self)

    def give_way(self) -> None:
        """See `Slots`."""
        if not self.short:
            self.pool.give_way(self)

    def take_back(self) -> None:
        """See `Slots`."""
        self.pool.take_back(self)


def _nothing() -> None:
    """Stand-in for a function that is not set yet."""


_NOBODY: Final = Owner("", "")


class CallPool(WorkerPool):
    """A pool of threads in which owners take turns."""

    def __init__(self, workers: int, running: int, name: str, *, waited: Callable[[float], None] | None = None) -> None:
        """Create a pool.

        Args:
            workers: number of threads.
            running: calls that run at once.
            name: prefix of the threads' names.
            waited: called with the seconds that each call waited for its thread, in that thread.
        """
        super().__init__(workers, name, waited=waited)
        self._running = running
        self._turns = threading.Lock()
        self._free_slots = running
        """Free slots; below 0 if calls took theirs back after others had begun."""
        self._free_threads = workers
        self._begun = OwnerCounts()
        """Calls that have begun, by owner."""
        self._waiting: Mapping[bool, WaitingTurns[_Work]] = {False: WaitingTurns(), True: WaitingTurns()}
        """Waiting functions with small and with large messages; the two kinds take turns."""
        self._turn = False
        """Whether it is the turn of large messages."""
        self._large_runs = False
        self._short = 0
        """Short calls that run or wait for a thread."""
        self._giving_way: list[threading.Lock] = []
        """One lock for each heavy call that gives way; released when no short call has work."""

    def submit_for(
        self, owner: Owner, size: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Run `function` in a thread when it is the owner's turn.

        Args:
            owner: the owner of the call.
            size: bytes of the message that it works on.
            function: run with the arguments that follow. If it cannot be started, the future has a RuntimeError.
        """
        work = _Work(self, owner, large=size >= LARGE)
        work.future.add_done_callback(self.done)
        work.function = self.counted(function, *args, **kwargs)
        try:
            with self._turns:
                begins = self._begins(work)
                if not begins:
                    self._waiting[work.large].add(owner, work)
                self._short += work.short
        except MemoryError:
            self.done(None)
            raise
        self._begin(work if begins else None)
        return work.future

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `function` in a thread, for an owner without a name."""
        return self.submit_for(_NOBODY, 0, function, *args, **kwargs)

    def give_up(self, work: _Work) -> None:
        """See `Slots`. From then on a large call does not occupy the slot for large messages."""
        with self._turns:
            self._free_slots += 1
            self._small_from_now(work)
            if work.short:
                self._one_less()
        self._begin()

    def take_turns(self, work: _Work) -> None:
        """See `Slots`. A call that takes turns is a heavy one."""
        with self._turns:
            if work.short:
                work.short = False
                self._one_less()
            if not work.large:
                return
            self._small_from_now(work)
        self._begin()

    def give_way(self, work: _Work) -> None:
        """See `Slots`. Waits at most as long as the call has worked, so that it makes progress in any case."""
        if not self._short:
            return
        began = perf_counter()
        left = began - work.since - 2 * work.gave_way
        if left <= 0:
            return
        none = threading.Lock()
        none.acquire()
        with self._turns:
            if not self._short:
                return
            self._giving_way.append(none)
        if not none.acquire(timeout=min(left, GIVES_WAY)):
            with self._turns:
                if none in self._giving_way:
                    self._giving_way.remove(none)
        work.gave_way += perf_counter() - began

    def _one_less(self) -> None:
        """Note that a short call has no more work. The lock is held."""
        self._short -= 1
        if not self._short:
            for heavy in self._giving_way:
                heavy.release()
            self._giving_way.clear()

    def _small_from_now(self, work: _Work) -> None:
        if work.large:
            work.large = self._large_runs = False

    def take_back(self, work: _Work) -> None:
        """See `Slots`."""
        with self._turns:
            self._free_slots -= 1
            self._short += work.short

    def _adjust_thread_count(self) -> None:
        """Start one more thread if none is free. If there is no memory for it, the existing threads do the work."""
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            if not self._threads:
                raise

    def _begins(self, work: _Work) -> bool:
        """Give a new function its turn at once, if none waits and it may begin. The lock is held."""
        if self._free_slots <= 0 or (work.large and self._large_runs) or self._waiting[not work.large]:
            return False
        if not self._waiting[work.large].pass_by(work.owner, self._begun, self._free_threads):
            return False
        self._take(work)
        return True

    def _take(self, work: _Work) -> None:
        """Count a function whose turn it is as begun. The lock is held."""
        self._turn = not work.large
        self._large_runs = self._large_runs or work.large
        self._begun.add(work.owner, 1)
        self._free_slots -= 1
        self._free_threads -= 1

    def _begin(self, first: _Work | None = None) -> None:
        """Start the functions that can be started now; `first` has had its turn already."""
        while True:
            work, first = first, None
            if work is None:
                with self._turns:
                    work = self._next()
            if work is None:
                return
            try:
                self.start(self._run, work)
            except (RuntimeError, MemoryError) as error:  # the server has ended, or there is no memory
                with self._turns:
                    work.given_up = not work.begun
                if not work.given_up:
                    continue
                self._end(work)
                if work.future.set_running_or_notify_cancel():
                    work.future.set_exception(RuntimeError(f"the call cannot be begun: {error}"))

    def _next(self) -> _Work | None:
        """Remove and return the next function to start; None if there is none. The lock is held."""
        if self._free_slots <= 0:
            return None
        for queue in (self._turn, not self._turn):
            if queue and self._large_runs:
                continue
            # Owners that are skipped have begun as many calls as threads are free, so they are fewer than threads.
            taken = self._waiting[queue].take(self._begun, self._free_threads)
            if taken is not None:
                work = taken[1]
                self._take(work)
                return work
        return None

    def _end(self, work: _Work) -> None:
        """Free a function's thread and slot."""
        with self._turns:
            self._small_from_now(work)
            if work.short:
                self._one_less()
            self._free_slots += 1
            self._free_threads += 1
            self._begun.add(work.owner, -1)

    def _run(self, work: _Work) -> None:
        with self._turns:
            if work.given_up:
                return
            work.begun = True
            work.since = perf_counter()
        try:
            if not work.future.set_running_or_notify_cancel():
                return
            try:
                with slot_of(work):
                    result = work.function()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the caller that waits for it gets it
                work.future.set_exception(error)
            else:
                work.future.set_result(result)
        finally:
            self._end(work)
            self._begin()
