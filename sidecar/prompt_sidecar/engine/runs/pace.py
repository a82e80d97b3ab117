"""Cooperative scheduling: a call checks its deadline now and then, and a long call takes turns with others.

Nothing in the core can be interrupted from outside. So work that may take long calls its `Pace` at points where it can
end: a message was read, a block was counted, some iterations were decided, a piece was searched. Such a call is cheap,
as all but one in some milliseconds only read the clock.

Python runs one thread at a time, so with eight long calls a short one would wait for all of them at each of its steps.
Of the long calls only one runs at a time and the others wait, so that short calls run meanwhile
(`prompt_sidecar.slots`): a short call shares the interpreter with one long call, which lets it go first whenever it
checks its own deadline. A call is long by the processor time of its thread: one that only waits for long calls must not
be taken for one of them, as it would then wait for the turns of all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from threading import Lock
from types import TracebackType
from typing import Final, Self

from prompt_sidecar import slots

ASK_EVERY: Final = 0.002
"""Seconds between two checks of the deadline; a check takes two microseconds, and a step up to some milliseconds."""
LONG: Final = 0.05
"""Seconds of processor time after which a call counts as long: ordinary ones take some milliseconds, the first of a
large run twenty."""
TURN: Final = 0.1
"""Seconds after which a long call lets the next one go on."""
WAIT: Final = 0.05
"""Seconds that a call waits without checking its deadline: each check by a waiting call takes the interpreter from a
working one."""


def never() -> None:
    """Check nothing: the call cannot be cancelled."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The core's clocks."""

    steady: Callable[[], float]
    """Seconds that never step and go on while the machine sleeps: times to live use this clock."""
    wall: Callable[[], float] | None = None
    """Seconds since the epoch, used only for the figures of runs; None: `steady` is used."""

    def ahead(self) -> float:
        """Seconds since the epoch less the steady clock's time."""
        return (self.wall or self.steady)() - self.steady()


class Lane:
    """Where long calls take turns: one at a time, in the order of their arrival. Thread-safe."""

    def __init__(self, clock: Callable[[], float], worked: Callable[[], float] | None = None) -> None:
        """Create a lane that no call has the turn of.

        Args:
            clock: gives seconds from any point on, as `perf_counter` does.
            worked: gives the seconds of processor time of the thread that calls it, as `thread_time` does; None: all
                time is taken for processor time.
        """
        self.clock = clock
        self.worked = worked or clock
        self._lock = Lock()
        self._waiting: deque[Lock] = deque()
        """For each waiting call, a lock that is released when its turn comes."""
        self.taken = False
        """Whether a call has the turn."""

    @property
    def waiting(self) -> int:
        """The number of calls that wait for their turn."""
        return len(self._waiting)

    def enter(self, check: Callable[[], None]) -> None:
        """Wait for the turn. `check` is called now and then; what it raises is passed on, and the turn is not taken."""
        with self._lock:
            if not self.taken:
                self.taken = True
                return
            mine = Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            with slots.waiting():
                while not mine.acquire(timeout=WAIT):
                    check()
        except BaseException:
            with self._lock:
                gone = mine in self._waiting
                if gone:
                    self._waiting.remove(mine)
            if not gone:  # its turn came meanwhile
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next call have the turn."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self.taken = False


class Pace:
    """The pace of one call. Used by the thread that serves the call."""

    def __init__(
        self,
        check: Callable[[], None],
        lane: Lane,
        reserve: Callable[[int], AbstractContextManager[object]] = nullcontext,
        seconds: float = inf,
    ) -> None:
        """Begin a call.

        Args:
            check: raises when nobody waits for the call's answer any more.
            lane: where long calls take turns.
            reserve: reserves bytes of memory for the call; raises TooLarge where there is no room.
            seconds: how long its caller still waits; infinite if there is no deadline.
        """
        self._check = check
        self.reserve = reserve
        self._lane = lane
        self._began = lane.clock()
        self._worked = lane.worked()
        self._ends = self._began + seconds
        self._asked = -inf
        self._turn = 0.0
        """When its turn began; 0 if it has no turn."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def __call__(self) -> None:
        """Check the deadline if it is time to, perhaps after waiting for a turn. Raises what `check` raises."""
        now = self._lane.clock()
        if now - self._asked < ASK_EVERY:
            return
        self._asked = now
        self._check()
        slots.give_way()
        if self._turn:
            if now - self._turn > TURN and self._lane.waiting:
                self._leave()
                self._enter()
        elif now - self._began > LONG and self._lane.worked() - self._worked > LONG:
            self._enter()

    @contextmanager
    def holding(self, lock: Lock) -> Iterator[None]:
        """Hold a lock that another call may hold for long.

        While it waits `check` is called; what it raises is passed on.

        The turn is given up while it waits, as the holder may be waiting for that turn.
        """
        if not lock.acquire(blocking=False):
            self._leave()
            with slots.waiting():
                while not lock.acquire(timeout=WAIT):
                    self._check()
        try:
            yield
        finally:
            lock.release()

    def spent(self, share: int, most: float) -> Callable[[], bool]:
        """Return a function that tells whether the time for a part of the call, which begins now, is over.

        The part gets a `share`-th of the time until the caller's deadline, and `most` seconds at most.
        """
        now = self._lane.clock()
        until = now + min(most, max(self._ends - now, 0.0) / share)
        return lambda: self._lane.clock() >= until

    def _enter(self) -> None:
        slots.take_turns()
        self._lane.enter(self._check)
        self._turn = self._asked = self._lane.clock()

    def _leave(self) -> None:
        if self._turn:
            self._turn = 0.0
            self._lane.leave()
