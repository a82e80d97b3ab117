"""The thread that indexes and compresses new content, outside the path of answers to prompts.

It sleeps until a prompt or a search was answered, then works through the queue, a slice at a time. Before each slice
it waits for calls in flight, since both need the interpreter; but a server that is never idle must index too, so the
wait is limited. A call that comes in the middle of a slice shares the interpreter with it at each of its steps. So as
long as calls come, the thread rests after each slice, and has a small share of the time; when none has come for a
while, it works without rest. It also fetches originals of runs that another process began, a piece at a time. A
search first indexes the queued content itself, within a time limit, and reports what is left for the thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final

from prompt_sidecar.calls.pool import InFlight
from prompt_sidecar.process.logs import frames

PATIENCE_SECONDS = 0.05
"""Seconds that a slice waits for calls in flight: longer than many ordinary calls, and a server that is never idle
still does twenty slices a second."""

CALM_SECONDS: Final = 0.25
"""Seconds without a call after which the thread works without rest: longer than between two calls of a busy server."""
REST: Final = 10.0
"""Length of a rest, in times of the slice before it: one call in eleven meets a slice, and a server that answers calls
all the time still indexes 0.7 MB a second. A search indexes what is left of its run itself."""

_log = logging.getLogger(__name__)


def rest_after(worked: float, calm: float) -> float:
    """Return how long to rest, in seconds, after a slice of `worked` seconds, when no call has ended for `calm`.

    Not longer than a slice waits for calls, as one that fetched from a store took long without the interpreter.
    """
    return 0.0 if calm >= CALM_SECONDS else min(REST * worked, PATIENCE_SECONDS)


class Indexer:
    """Runs `work_off` in its own thread; it does one slice of work and returns its bytes, 0 if the queue is empty."""

    def __init__(self, work_off: Callable[[], int], in_flight: InFlight) -> None:
        self._work_off = work_off
        self._in_flight = in_flight
        self._woken = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread, as there may be content to index. Takes microseconds."""
        self._woken.set()

    def end(self) -> None:
        """Start no further slice."""
        self._ended.set()
        self._woken.set()

    def join(self, timeout: float) -> bool:
        """Wait for the current slice, at most `timeout` seconds; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._woken.wait()
            self._woken.clear()  # before the work, so that content added meanwhile is noticed
            try:
                while self._slice():
                    pass
            except BaseException as error:  # noqa: BLE001  # panics of native code too: no failure may end all indexing
                _log.error("indexing failed; it is tried again after the next prompt: %s", frames(error))

    def _slice(self) -> bool:
        """Do one slice, and rest if calls come; return whether to continue."""
        self._in_flight.wait_for_none(PATIENCE_SECONDS)
        if self._ended.is_set():
            return False
        began = perf_counter()
        done = self._work_off()
        if done and (rest := rest_after(perf_counter() - began, self._in_flight.calm)):
            self._ended.wait(rest)
        return done > 0
