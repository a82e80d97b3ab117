"""The thread that indexes and compresses what prompts brought, off the path of their answers.

It sleeps until a prompt was answered, then works through what waits, a slice at a time. Before each slice it lets calls
in flight finish first, since both need the interpreter; but a server that is never idle must index too, so it waits
only so long. Nothing depends on it: a search indexes what it finds waiting. It only keeps that from being much.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from prompt_sidecar.server.logs import frames
from prompt_sidecar.server.pool import InFlight

PATIENCE_SECONDS = 0.05
"""How long a slice waits for calls in flight: many ordinary calls long, and on a server that is never idle twenty
slices a second get through."""

_log = logging.getLogger(__name__)


class Indexer:
    """Runs `work_off` in a thread of its own; it does a slice of work and returns its bytes, 0: nothing waits."""

    def __init__(self, work_off: Callable[[], int], in_flight: InFlight) -> None:
        self._work_off = work_off
        self._in_flight = in_flight
        self._woken = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There may be something to index. Costs the caller next to nothing."""
        self._woken.set()

    def end(self) -> None:
        """Begin no further slice."""
        self._ending = True
        self._woken.set()

    def join(self, timeout: float) -> bool:
        """Wait for the slice that is being worked on, at most `timeout` seconds; return whether it is done."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ending:
            self._woken.wait()
            self._woken.clear()  # before the work, so that what is brought meanwhile is looked for again
            try:
                while self._slice():
                    pass
            except BaseException as error:  # noqa: BLE001  # native code's panics too: no failure may end all indexing
                _log.error("indexing failed, what waits is tried again after the next prompt: %s", frames(error))

    def _slice(self) -> bool:
        """Work on one slice; whether to go on."""
        self._in_flight.wait_for_none(PATIENCE_SECONDS)
        return not self._ending and self._work_off() > 0
