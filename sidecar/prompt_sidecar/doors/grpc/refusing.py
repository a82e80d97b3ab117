"""Ends refused calls at a limited rate, so that refusals take little time from calls that are served.

Theory. gRPC delivers the calls of all connections in order of arrival, on one thread. A client whose call is refused
can send the next one at once. If refusals were immediate, a client with thousands of open calls would keep thousands of
new ones queued before that thread, and all other calls would wait behind them. A call that stays open causes no new
one. So after the first few, refusals are delayed: they are sent at a fixed rate, connections in turn, so that a caller
refused once gets its status soon although others are refused often. Clients that flood mostly wait for statuses, and
their open calls are limited by streams and connections.

Delayed refusals take memory, so their number is limited too. Above the limit the oldest one of the connection that has
the most is cut off without a status. A call whose message was requested is never delayed, as gRPC would keep all of the
message meanwhile; such calls are few, since a message is only requested when there is memory for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from prompt_sidecar.calls.pool import ARRIVAL, WorkerPool
from prompt_sidecar.calls.turns import Owner, OwnerCounts, WaitingTurns
from prompt_sidecar.doors.grpc.handed import HandedCall

AT_ONCE: Final = 256
"""Refusals that are sent without delay, if there were none for a while."""
A_SECOND: Final = 50
"""Refusals per second after that. When many threads are busy a call takes some 2 ms of gRPC's one thread, as it waits
for the interpreter at each step; so refused calls that are retried take a tenth of it."""
HELD_BOUND: Final = "server.held_refusals"
MOST: Final = 2_048
"""Delayed refusals, each of up to 90 kB with a part of its message. The last of so many is sent after 40 seconds; one
of a connection that has no others, after at most one of each connection."""


@dataclass(frozen=True, slots=True, eq=False)
class _RefusedCall:
    """A refused call whose status is not sent yet."""

    handed: HandedCall
    owner: Owner
    arrived: float
    error: Exception


class Refusing:
    """Sends refusals in threads of `pool`. `look` has to be called from time to time. Thread-safe."""

    def __init__(self, pool: WorkerPool, reached: Callable[[str], None] = lambda _: None) -> None:
        """`reached` is called with the name of a limit that is reached."""
        self._pool = pool
        self._reached = reached
        self._a_second: float = A_SECOND
        self._most = MOST
        self._lock = threading.Lock()
        self._held: WaitingTurns[_RefusedCall] = WaitingTurns()
        self._held_of = OwnerCounts()
        self._left = float(AT_ONCE)
        self._at = monotonic()
        self._closing = False
        self.wake: Callable[[], None] = lambda: None
        """Called when a refusal is delayed, for which `look` has to be called."""

    @property
    def held(self) -> int:
        """Number of delayed refusals."""
        return len(self._held)

    def close(self) -> None:
        """Send all delayed refusals, and every later one at once, as the server stops."""
        self._closing = True
        self.look()

    def refuse(self, handed: HandedCall, owner: Owner, arrived: float, error: Exception, *, waits: bool) -> None:
        """End a call with an error, now or, if it `waits`, later; the rest of its message is not read."""
        refused = _RefusedCall(handed, owner, arrived, error)
        with self._lock:
            at_once = self._closing or not waits or (not self._held and self._take())
            excess = None
            if not at_once:
                self._held.add(owner, refused)
                self._held_of.add(owner, 1)
                excess = self._out_of_most() if len(self._held) > self._most else None
        if at_once:
            self._send(refused)
        elif not handed.context().add_callback(lambda: self._gone(refused)):
            self._gone(refused)
        else:
            self.wake()
        if excess is not None:
            self._reached(HELD_BOUND)
            excess.handed.cut_off()

    def look(self) -> bool:
        """Send the refusals that are due; return whether any are left."""
        while True:
            with self._lock:
                if not self._held or not (self._closing or self._take()):
                    break
                taken = self._held.take()
                assert taken is not None
                owner, refused = taken
                self._held_of.add(owner, -1)
            self._send(refused)
        return bool(self._held)

    def _take(self) -> bool:
        """Return whether one more may be sent now. The lock is held."""
        now = monotonic()
        self._left = min(float(AT_ONCE), self._left + max(now - self._at, 0.0) * self._a_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _out_of_most(self) -> _RefusedCall:
        """Remove the oldest refusal of the connection that has the most. The lock is held."""
        oldest = self._held.oldest(self._held_of.have_most()[0])
        assert oldest is not None
        self._take_out(oldest)
        return oldest

    def _take_out(self, refused: _RefusedCall) -> None:
        if self._held.remove(refused.owner, refused):
            self._held_of.add(refused.owner, -1)

    def _gone(self, refused: _RefusedCall) -> None:
        """Forget a call whose client has disconnected, or that has ended."""
        with self._lock:
            self._take_out(refused)

    def _send(self, refused: _RefusedCall) -> None:
        def send() -> None:
            ARRIVAL.at = refused.arrived
            refused.handed.refuse(refused.error)

        try:
            self._pool.submit(send)
        except (RuntimeError, MemoryError):
            refused.handed.cut_off()
