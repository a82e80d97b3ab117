"""How long a thread waits for the interpreter: a timer that tells how late it woke up.

Calls share one interpreter lock, and with each other's CPU. What a timer is late by is what a call that has nothing to
wait for would have waited for all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final

INTERVAL_SECONDS: Final = 0.5
"""Between two looks: thirty for each scrape of the usual interval, at 30 us each."""
_END_SECONDS: Final = 0.5


class LagMeter:
    """Tells `late` in seconds, from a thread of its own, once it has begun and until it is ended."""

    def __init__(self, late: Callable[[float], None]) -> None:
        self._late = late
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)

    def begin(self) -> None:
        """Look from now on: a start loads for a second, which delays no call."""
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        due = perf_counter() + INTERVAL_SECONDS
        while not self._ending.wait(max(0.0, due - perf_counter())):
            now = perf_counter()
            self._late(max(0.0, now - due))
            due = now + INTERVAL_SECONDS
