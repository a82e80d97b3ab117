"""Fairness on the door's event loop: few requests begin at once, and a stream has no more than its share.

The loop takes each step of each request in the order in which they become ready. A request has some ten steps, so one
that comes with thousands of others would wait for a step of all of them at each of its own. So of the requests whose
bodies have arrived only a few go on at once, from the reading of the prompt until it is sent to the provider; the
others wait for their turn, owner by owner (`prompt_sidecar.calls.turns`). Large ones have turns among the worker
threads (`prompt_sidecar.calls.call_pool`), and take none here for as long as they last. A request that waits there, for
the shared store or for another prompt of its run, gives its turn to the next: it has no steps meanwhile, and no more
such requests go on at once than there are worker threads.

A stream of many megabytes a second, as no model sends one, would take the loop as often as it has bytes. So what goes
beyond `http.stream_rate` waits; the provider waits too then, as nothing is read from it meanwhile. Events without
content, such as comments, take some thirty times as long for each byte as large ones, so that a line counts as at least
256 bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from prompt_sidecar.calls.turns import Owner, OwnerCounts, WaitingTurns

BEGINNING_BOUND: Final = "http.beginning_requests"
RATE_BOUND: Final = "http.stream_rate"
LINE_BYTES: Final = 256
"""Bytes as which a line of a stream counts at least. At the usual rate these are 16,000 lines a second, which take the
loop a twentieth of its time as comments and an eighth as a model's events; models send some hundreds."""
_SENT_SECONDS: Final = 0.005
"""Seconds after which a request's prompt counts as sent, on a loop that has time for other steps."""


def _ignored(_: str) -> None:
    pass


class BeginningTurn:
    """The turn of one request to begin. On the event loop only."""

    def __init__(self, over: Callable[[], None] = lambda: None, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`over` is called once, on `loop`, at the end of the turn."""
        self._over = over
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def end_soon(self) -> None:
        """End the turn once the prompt is likely to be sent."""
        if not self._ended and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SENT_SECONDS, self.end)

    def end_in_thread(self) -> None:
        """End the turn from a worker thread: its request waits there, so another one may begin."""
        if not self._ended and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended with the server
                self._loop.call_soon_threadsafe(self.end)

    def end(self) -> None:
        """End the turn. Ending it again changes nothing."""
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._over()


class Beginnings:
    """Gives requests their turns to begin. One caller leaves an eighth of them to others. On the event loop only.

    Args:
        most: requests that begin at once.
        reached: called with the name of the bound when a request has to wait.
    """

    def __init__(self, most: int, reached: Callable[[str], None] = _ignored) -> None:
        self._free = most
        self._reached = reached
        self._begun = OwnerCounts()
        self._waiting: WaitingTurns[asyncio.Future[None]] = WaitingTurns()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their turn."""
        return len(self._waiting)

    async def turn(self, owner: Owner) -> BeginningTurn:
        """Wait for the turn of a request of `owner`; the caller must end it."""
        if self._free and self._waiting.pass_by(owner, self._begun, self._free):
            self._free -= 1
            self._begun.add(owner, 1)
            return BeginningTurn(partial(self._over, owner), asyncio.get_running_loop())
        given = asyncio.get_running_loop().create_future()
        self._waiting.add(owner, given)
        self._give()
        if not given.done():
            self._reached(BEGINNING_BOUND)
        try:
            await given
        except asyncio.CancelledError:
            if not self._waiting.remove(owner, given) and not given.cancelled():  # it was given a turn in that moment
                self._over(owner)
            raise
        return BeginningTurn(partial(self._over, owner), asyncio.get_running_loop())

    def _over(self, owner: Owner) -> None:
        self._free += 1
        self._begun.add(owner, -1)
        self._give()

    def _give(self) -> None:
        """Give the free turns to the requests that are next."""
        while self._free and (taken := self._waiting.take(self._begun, self._free)) is not None:
            if taken[1].cancelled():  # its request has ended, and is about to leave
                continue
            self._free -= 1
            self._begun.add(taken[0], 1)
            taken[1].set_result(None)


def paced_bytes(chunk: bytes) -> int:
    """Return as how many bytes a part of a stream counts: its own, or those of its lines if that is more."""
    # Lines that end with CRLF are counted once.
    return max(len(chunk), LINE_BYTES * max(chunk.count(b"\n"), chunk.count(b"\r")))


class StreamPace:
    """Keeps one stream within a rate, after a burst.

    It is the generic cell rate algorithm (ITU-T I.371): each byte takes its time, and the stream may be ahead by the
    burst.

    Args:
        rate: bytes a second.
        burst: bytes that may come at once.
        reached: called with the name of the bound, once, when the stream is faster.
        now: the clock, in seconds.
    """

    def __init__(
        self, rate: float, burst: int, reached: Callable[[str], None] = _ignored, now: Callable[[], float] | None = None
    ) -> None:
        self._rate = rate
        self._ahead = burst / rate
        self._reached = reached
        self._now = now
        self._due = 0.0
        """Time at which the bytes so far are due."""
        self._fast = False

    def wait_after(self, size: int) -> float:
        """Return the seconds to wait after `size` further bytes, before more are read."""
        now = asyncio.get_running_loop().time() if self._now is None else self._now()
        self._due = max(self._due, now) + size / self._rate
        wait = self._due - now - self._ahead
        if wait > 0 and not self._fast:
            self._fast = True
            self._reached(RATE_BOUND)
        return max(0.0, wait)
