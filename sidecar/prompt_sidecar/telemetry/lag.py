"""How long a thread waits for the interpreter, measured by how late a timer wakes up.

Calls share one interpreter lock and the CPUs. The timer's delay is the time for which any call would have waited, even
if it waited for nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final

INTERVAL_SECONDS: Final = 0.5
"""Interval of the timer: thirty measurements for each scrape at the usual interval, at 30 us each."""
_END_SECONDS: Final = 0.5


class LagMeter:
    """Calls `late` with the timer's delay in seconds, from a thread of its own, between `begin` and `end`."""

    def __init__(self, late: Callable[[float], None]) -> None:
        self._late = late
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def begin(self) -> None:
        """Start measuring.

        Not before the server serves: loading takes a second, during which there are no calls to delay.
        """
        self._thread.start()

    def end(self) -> None:
        """Stop measuring."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        due = perf_counter() + INTERVAL_SECONDS
        while not self._ending.wait(max(0.0, due - perf_counter())):
            now = perf_counter()
            self._late(max(0.0, now - due))
            due = now + INTERVAL_SECONDS
