"""Admission of calls: they wait for their message without a thread, for a limited time, and cannot block other callers.

gRPC's Python server reads a request in the thread that will serve it. So a caller that sends headers and never a
message holds a thread, and as many of them as there are threads block all callers. Here a call is admitted, and its
caller identified, before anything of its message is read; then gRPC's own event loop awaits the message, and a call is
given a thread only when its whole message has arrived.

A waiting call costs memory, as gRPC keeps the part of its message that has arrived. So only a few messages are read
ahead of the threads: as many as there is memory for if all are of the largest size, and from one connection only while
it has fewer of them than may still be read, which leaves room for others. A message that takes longer than `SLOW_AFTER`
to arrive no longer delays those behind it, but the number of such messages and the time for each are limited by
options. If a call has to be refused to make room, it is the oldest one of the connection that has the most: a caller
with few calls is not displaced by one with many. Answers that their callers do not read are limited in the same way.

    submit ──► WAITING ──► READING ──► READY ──► RUNNING ──► ANSWERING ──► over
                 └────────────┴─ too slow, or in the way: refused ──┘

It is a `concurrent.futures.Executor`, since gRPC submits every call to the executor of its method; see
`prompt_sidecar.doors.grpc.handed`.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from math import inf
from time import monotonic, perf_counter
from typing import Any, Final

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.pool import ARRIVAL, InFlight, WorkerPool
from prompt_sidecar.calls.turns import Owner, OwnerCounts, WaitingTurns
from prompt_sidecar.doors.grpc.handed import HandedCall
from prompt_sidecar.doors.grpc.refusing import Refusing
from prompt_sidecar.errors import MessageLate, SidecarError, Stopping, TooLarge

SLOW_AFTER: Final = 0.1
"""Seconds after which a message counts as slow: on loopback 10 MB take 10 ms."""
TICK: Final = 0.05
"""Seconds between two checks of waiting calls."""
_LATEST: Final = 1.5 * TICK
"""Longest time between two checks that counts as waiting, in seconds."""
_AHEAD: Final = 2
"""Messages that are read ahead for each thread, so that no thread has to wait for the next message."""
_MOST_AHEAD: Final = 16
"""Limit on these messages in total, as all of them may be large."""

UNTAKEN_BOUND: Final = "server.untaken_bytes"
_FIRST_SECONDS: Final = 1.0
"""Seconds for the first answer of a long-lived stream to be sent; a thread waits for it."""


_UNKNOWN: Final = Owner("", "")


class _Phase(Enum):
    WAITING = auto()
    READING = auto()
    READY = auto()
    RUNNING = auto()
    ANSWERING = auto()
    """Answered, but the answer is not yet sent completely."""
    ENDED = auto()
    """Refused or cut off, but not yet ended by gRPC."""


@dataclass(slots=True, eq=False)
class _ReceivedCall:
    """One call and its phase. The lock of its reception protects it."""

    handed: HandedCall
    owner: Owner = _UNKNOWN
    arrived: float = field(default_factory=perf_counter)
    phase: _Phase = _Phase.WAITING
    since: float = 0.0
    """When its phase began, by `monotonic`."""
    pace: float = 0.0
    """When the wait for its message began, by the time of the last check."""
    asked: bool = False
    """Whether its message was requested: gRPC then reads all of it, until the call ends."""
    slow: bool = False
    over: bool = False
    """Whether its caller has the whole answer, or has disconnected."""
    answered: int = 0
    """Bytes of its answer."""

    @property
    def streams(self) -> bool:
        """See `Reception`."""
        return bool(self.handed.behaviour.streams)

    @property
    def lasts(self) -> bool:
        """See `Reception`."""
        return bool(self.handed.behaviour.lasts)


class Reception(ThreadPoolExecutor):
    """Takes the calls of some methods and has `pool` run them. Its only thread is the `Clerk`'s.

    A behaviour submitted to it has the attributes `admit` (called with the context before anything is read; returns the
    call's owner, and raises to refuse), `refused` (returns the behaviour that answers with an error), `streams`
    (whether it takes a stream of messages, which it reads by itself; such a call is ended after
    `server.message_timeout`) and `lasts` (whether its answer is a stream that may stay open).
    """

    def __init__(
        self,
        pool: WorkerPool,
        refusing: Refusing,
        options: ServerOptions,
        *,
        bound: str,
        most: int,
        in_flight: InFlight | None = None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create it.

        Args:
            pool: runs the calls.
            refusing: ends refused calls.
            options: limits of times and bytes.
            bound: the setting that `most` comes from.
            most: calls that wait or run, and as many whose answers are not sent completely.
            in_flight: counts the calls.
            reached: called with the name of a limit that no status reports.
        """
        super().__init__(1)
        self._pool = pool
        self._refusing = refusing
        self._options = options
        self._bound = bound
        self._most = most
        self._in_flight = in_flight or InFlight()
        self._reached = reached
        self._lock = threading.Lock()
        self._ahead = min(_AHEAD * pool.workers, _MOST_AHEAD)
        self._pace = self._looked = 0.0
        self._closing = False
        self.wake: Callable[[], None] = lambda: None
        """Called when a call waits that has to be checked from time to time."""
        self.room: Callable[[], int] = lambda: sys.maxsize
        """Returns the bytes that the process may still use: each message read ahead may be of the largest size."""
        self._waiting: WaitingTurns[_ReceivedCall] = WaitingTurns()
        """Waiting calls; a call's phase says whether it is here."""
        self._unread_of = OwnerCounts()
        """Calls that wait or whose messages are being read."""
        self._reading: OrderedDict[_ReceivedCall, None] = OrderedDict()
        self._streaming: OrderedDict[_ReceivedCall, None] = OrderedDict()
        """The running calls whose threads may wait for their clients."""
        self._answering: OrderedDict[_ReceivedCall, None] = OrderedDict()
        self._untaken = 0
        """Bytes of answers not yet sent completely."""
        self._slow = 0
        self._ready = 0
        self._running = 0
        self._read = OwnerCounts()
        """Calls whose messages are read ahead: those being read that are not slow, and those ready to run."""

    @property
    def active(self) -> int:
        """Calls that wait, run, or are being answered."""
        return self._pending + len(self._answering)

    @property
    def untaken_bytes(self) -> int:
        """Bytes of answers that their callers have yet to read."""
        return self._untaken

    @property
    def _pending(self) -> int:
        return len(self._waiting) + len(self._reading) + self._ready + self._running

    def close(self) -> None:
        """Stop waiting for slow messages, as the server stops."""
        self._closing = True
        self.wake()

    # -- what gRPC calls, on its event loop ----------------------------------------------------------------------------

    def submit(self, run: Any, /, *handed: Any, **_: Any) -> Future[Any]:
        """Accept a call. Runs on gRPC's event loop, which holds the call's condition."""
        call = _ReceivedCall(HandedCall(run, handed))
        try:
            context = call.handed.context()
            call.owner = Owner(peer := context.peer(), peer)
            call.owner = call.handed.enter(call.handed.behaviour.admit, context)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end gRPC's event loop
            self._refuse(call, error)
        else:
            self._admit(call, context)
        return _TAKEN

    def _admit(self, call: _ReceivedCall, context: Any) -> None:
        """Admit the call if the limits allow it, or another call can be refused in its place."""
        with self._lock:
            victim = self._in_the_way(call) if self._pending >= self._most else None
            full = self._pending >= self._most and victim is None
            if victim is not None:
                self._end(victim)
            if not full:
                self._in_flight.add()
                call.since = monotonic()
                self._waiting.add(call.owner, call)
                self._unread_of.add(call.owner, 1)
                context.add_callback(lambda: self._over(call))
        if victim is not None:
            self._refuse(victim, self._too_many())
        if full:
            self._refuse(call, self._too_many())
        else:
            self._read_on()

    def _read_on(self) -> None:
        """Request as many messages as may be read now."""
        while True:
            with self._lock:
                call = self._next()
                if call is None:
                    break
                self._read.add(call.owner, 1)
                if call.streams:
                    self._unread_of.add(call.owner, -1)
                    call.phase = _Phase.READY
                    self._ready += 1
                else:
                    call.phase, call.since, call.pace = _Phase.READING, monotonic(), self._pace
                    call.asked = True
                    self._reading[call] = None
            if call.streams:
                self._hand_over(call)
            else:
                call.handed.ask(partial(self._received, call))
        self.wake()

    def _next(self) -> _ReceivedCall | None:
        """Remove and return the call whose message is read next; None if none may be read.

        Connections take turns. One is skipped while it has as many messages read ahead as may still be read, so no more
        connections are skipped than messages are read.
        """
        ahead = len(self._reading) - self._slow + self._ready
        # A message's size is not known in advance, and no memory is reserved for it before it has arrived.
        left = min(self._ahead, self.room() // self._options.max_message_bytes) - ahead if ahead else self._ahead
        if left <= 0:
            return None
        taken = self._waiting.take(self._read, left)
        return None if taken is None else taken[1]

    def _received(self, call: _ReceivedCall) -> None:
        """Continue with a call whose message has arrived, or cannot arrive any more."""
        with self._lock:
            if call.phase is not _Phase.READING:
                return
            self._unread(call)
            self._read.add(call.owner, 1)
            call.phase = _Phase.READY
            self._ready += 1
        self._hand_over(call)

    def _over(self, call: _ReceivedCall) -> None:
        """Record that the caller has the whole answer, or has disconnected."""
        with self._lock:
            call.over = True
            if call.phase is _Phase.WAITING:
                self._waiting.remove(call.owner, call)
                self._unread_of.add(call.owner, -1)
            elif call.phase is _Phase.ANSWERING:
                self._taken(call)
            elif call.phase is not _Phase.ENDED:
                return  # the thread that serves it now will finish it
        self._in_flight.remove()

    # -- in a thread of the pool ---------------------------------------------------------------------------------------

    def _hand_over(self, call: _ReceivedCall) -> None:
        try:
            self._pool.submit_for(call.owner, call.handed.size(), self._work, call).add_done_callback(
                lambda _: self._cut_off_if_not_begun(call)
            )
        except (RuntimeError, MemoryError):
            self._cut_off_if_not_begun(call)

    def _cut_off_if_not_begun(self, call: _ReceivedCall) -> None:
        """Cut off a call that cannot be started, as there is no memory, or the pool has ended with the server."""
        with self._lock:
            if call.phase is not _Phase.READY:
                return
            self._ready -= 1
            self._read.add(call.owner, -1)
            over, call.phase = call.over, _Phase.ENDED
        if over:
            self._in_flight.remove()
        call.handed.cut_off()

    def _work(self, call: _ReceivedCall) -> None:
        ARRIVAL.at, ARRIVAL.answered = call.arrived, 0
        with self._lock:
            if call.phase is not _Phase.READY:
                return
            self._ready -= 1
            self._read.add(call.owner, -1)
            self._running += 1
            call.phase, call.since = _Phase.RUNNING, monotonic()
            if call.streams or call.lasts:
                self._streaming[call] = None
        self._read_on()
        try:
            call.handed.serve()
        finally:
            with self._lock:
                self._running -= 1
                over = call.over
                self._streaming.pop(call, None)
                call.answered = ARRIVAL.answered
                dropped = [] if over else self._answered(call)
            if over:
                self._in_flight.remove()
            for victim, bound in dropped:
                self._cut_off(victim, bound)

    def _answered(self, call: _ReceivedCall) -> list[tuple[_ReceivedCall, str]]:
        """Wait until an answer is sent; return the calls to end if too much waits, each with the limit's name.

        The latest answer stays: a single answer may have as many bytes as the options allow.
        """
        call.phase, call.since = _Phase.ANSWERING, monotonic()
        self._answering[call] = None
        self._untaken += call.answered
        dropped: list[tuple[_ReceivedCall, str]] = []
        if len(self._answering) > self._most:
            dropped.append((self._of_largest(self._answering), self._bound))
            self._cut(dropped[-1][0])
        while self._untaken > self._options.untaken_bytes:
            others = OrderedDict((each, None) for each in self._answering if each.answered and each is not call)
            if not others:
                break
            dropped.append((self._of_largest(others, lambda each: each.answered), UNTAKEN_BOUND))
            self._cut(dropped[-1][0])
        return dropped

    def _taken(self, call: _ReceivedCall) -> None:
        """Stop waiting for the answer to be sent."""
        del self._answering[call]
        self._untaken -= call.answered

    # -- in the clerk's thread -----------------------------------------------------------------------------------------

    def look(self) -> bool:
        """End calls that have waited for too long; return whether any still wait."""
        now, options = monotonic(), self._options
        ended: list[tuple[_ReceivedCall, SidecarError]] = []
        with self._lock:
            # A busy sidecar checks late, which is not its clients' fault.
            self._pace += min(now - self._looked, _LATEST)
            self._looked = now
            for call in [each for each in self._reading if not each.slow]:
                if self._pace - call.pace < SLOW_AFTER:
                    break  # the others arrived later
                call.slow = True
                self._slow += 1
                self._read.add(call.owner, -1)
            for call in [each for each in self._reading if each.slow]:
                if self._closing:
                    error: SidecarError = Stopping("this sidecar is stopping, and the call's message has not come yet")
                elif now - call.since >= options.message_timeout:
                    message = f"within {options.message_timeout:g} s (server.message_timeout)"
                    error = MessageLate(f"the call's message did not come {message}", bound="server.message_timeout")
                else:
                    continue
                self._end(call)
                ended.append((call, error))
            slow = min(options.slow_messages, max(self.room() // options.max_message_bytes, 1))
            while self._slow > slow:
                call = self._of_largest(OrderedDict((each, None) for each in self._reading if each.slow))
                self._end(call)
                ended.append((call, TooLarge(_SLOW, bound="server.slow_messages")))
            late = [
                each
                for each in self._streaming
                if now - each.since >= (options.message_timeout if each.streams else _FIRST_SECONDS)
            ]
            untaken = [each for each in self._answering if now - each.since >= options.answer_timeout]
            untaken = [each for each in untaken if not each.lasts]
            for call in late:
                call.since = inf  # once is enough
            for call in untaken:
                self._cut(call)
            waits = bool(self._waiting or self._reading or self._streaming or self._answering)
        for call, error in ended:
            self._refuse(call, error)
        for call in late:
            self._cut_off(call, "server.message_timeout")
        for call in untaken:
            self._cut_off(call, "server.answer_timeout")
        self._read_on()
        return waits

    # -- which call makes room; under the lock
    # ---------------------------------------------------------------------------------

    def _in_the_way(self, new: _ReceivedCall) -> _ReceivedCall | None:
        """Return the call to refuse in favour of a new one: a slow one, or one of a connection with more, or None."""
        unread = self._unread_of
        most = set(unread.have_most())
        if not most:
            return None
        reading = [call for call in self._reading if call.owner in most]
        slow = next((call for call in reading if call.slow), None)
        if slow is not None:
            return slow
        victim = next(filter(None, map(self._waiting.oldest, most)), None) or reading[0]
        if victim.owner.share == new.owner.share:
            more = unread.of(victim.owner) > 1 + unread.of(new.owner)
        else:
            more = unread.of_share(victim.owner.share) > 1 + unread.of_share(new.owner.share)
        return victim if more else None

    @staticmethod
    def _of_largest(
        calls: OrderedDict[_ReceivedCall, None], size: Callable[[_ReceivedCall], int] = lambda _: 1
    ) -> _ReceivedCall:
        """Return the oldest call of the connection that has the most, by number or by the sum of a size."""
        counts = OwnerCounts()
        for call in calls:
            counts.add(call.owner, size(call))
        largest = set(counts.have_most())
        return next(call for call in calls if call.owner in largest)

    def _unread(self, call: _ReceivedCall) -> None:
        del self._reading[call]
        if call.slow:
            self._slow -= 1
        else:
            self._read.add(call.owner, -1)
        self._unread_of.add(call.owner, -1)

    def _end(self, call: _ReceivedCall) -> None:
        """Remove a waiting call; the caller of this method must refuse it with a reason."""
        if call.phase is _Phase.READING:
            self._unread(call)
        else:
            self._waiting.remove(call.owner, call)
            self._unread_of.add(call.owner, -1)
        call.phase = _Phase.ENDED

    def _cut(self, call: _ReceivedCall) -> None:
        """Stop waiting for an answer to be sent; the caller of this method must end the call."""
        self._taken(call)
        call.phase = _Phase.ENDED

    # -- refused calls -------------------------------------------------------------------------------------------------

    def _refuse(self, call: _ReceivedCall, error: Exception) -> None:
        """Refuse a call; the rest of its message is not read."""
        self._refusing.refuse(call.handed, call.owner, call.arrived, error, waits=not call.asked)

    def _cut_off(self, call: _ReceivedCall, bound: str = "") -> None:
        if bound:
            self._reached(bound)
        call.handed.cut_off()

    def _too_many(self) -> SidecarError:
        message = f"as many calls run or wait as {self._bound} allows; retry a little later"
        return TooLarge(message, bound=self._bound)


_SLOW = (
    "more messages take long to come than server.slow_messages allows, and this call's connection has the most of them "
    "or this one has waited for longest; retry"
)
_TAKEN: Future[Any] = Future()
"""gRPC counts running calls by their futures; here they are counted in another way, so all calls share one."""
_TAKEN.set_result(None)


class Clerk:
    """The thread that checks some receptions for calls that have waited too long, and sends delayed refusals."""

    def __init__(self, refusing: Refusing, *receptions: Reception) -> None:
        self._refusing = refusing
        self._receptions = receptions
        self._woken, self._ended = threading.Event(), threading.Event()
        refusing.wake = self._wake
        for reception in receptions:
            reception.wake = self._wake
        self._thread = threading.Thread(target=self._run, name="reception", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        self._woken.set()

    def _wake(self) -> None:
        if not self._woken.is_set():
            self._woken.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._woken.wait()
            self._ended.wait(TICK)
            self._woken.clear()
            if self._refusing.look():
                self._woken.set()
            for reception in self._receptions:
                if reception.look():
                    self._woken.set()
