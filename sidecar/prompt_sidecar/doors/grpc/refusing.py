"""Ends refused calls at a limited rate, so that refusing never takes the time of those that are served.

Theory. gRPC hands over calls one after another, on one thread, in the order in which they came on all connections. A
client whose call is refused can send the next one at once; so where refusing is fast, a client with thousands of calls
open keeps thousands of new ones waiting before that thread, and everybody else's call waits behind them. A call that
is kept open sends nothing. So after the first few, refusals wait: they are sent at a fixed rate, connections take
turns, and a caller that was refused once among many that were refused often has its status soon. Clients that flood
wait for most of the time for statuses, and what they have open is bounded by streams and connections.

What waits takes memory, so its number is bounded as well. Above that the oldest of the connection that has the most is
cut off without a status. A call whose message was requested never waits, as gRPC would keep all of the message for so
long; such calls are few, since a message is only requested when there is room for it.
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
"""Refusals that are sent without delay, where there were none for a while."""
A_SECOND: Final = 50
"""Refusals a second after that. Where many threads have work a call takes gRPC's one thread some 2 ms, as it waits for
the interpreter at each step; so refused calls that come again take a tenth of it."""
HELD_BOUND: Final = "server.held_refusals"
MOST: Final = 2_048
"""Refusals that wait, each of up to 90 kB with a part of its message. The last of so many is sent after 40 seconds;
one of a connection that has no others, after those of as many connections as wait."""


@dataclass(frozen=True, slots=True, eq=False)
class _RefusedCall:
    """A call that was refused and has no status yet."""

    handed: HandedCall
    owner: Owner
    arrived: float
    error: Exception


class Refusing:
    """Sends refusals by the threads of `pool`. `look` has to be called from time to time. Thread-safe."""

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
        """Called when something waits, for which `look` has to be called."""

    @property
    def held(self) -> int:
        """Refusals that wait."""
        return len(self._held)

    def close(self) -> None:
        """Send all that wait, and from now on every refusal at once, as the server stops."""
        self._closing = True
        self.look()

    def refuse(self, handed: HandedCall, owner: Owner, arrived: float, error: Exception, *, waits: bool) -> None:
        """End a call with an error, now or, if it `waits`, later; no more of its message is read."""
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
        """Send what may be sent by now; return whether any refusals still wait."""
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
        """Take out the oldest of the connection that has the most. The lock is held."""
        oldest = self._held.oldest(self._held_of.have_most()[0])
        assert oldest is not None
        self._take_out(oldest)
        return oldest

    def _take_out(self, refused: _RefusedCall) -> None:
        if self._held.remove(refused.owner, refused):
            self._held_of.add(refused.owner, -1)

    def _gone(self, refused: _RefusedCall) -> None:
        """Forget a call whose client has gone, or that has ended."""
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
