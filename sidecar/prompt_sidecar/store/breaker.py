"""A circuit breaker: after some failures in a row the store is not asked for a while, then tried again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

FAILURES: Final = 3
"""Failures in a row that open it: one lost connection is none of them, as the next command connects again."""
FIRST_PAUSE: Final = 0.1
"""Seconds that it stays open first; each further failure doubles it."""
LONGEST_PAUSE: Final = 5.0
"""Seconds that it stays open at most, so that a store that is back is found soon."""


class Breaker:
    """Says whether to ask. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never step."""
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = 0.0

    @property
    def closed(self) -> bool:
        """Whether the last commands were answered."""
        return self._failures < FAILURES

    @property
    def would_allow(self) -> bool:
        """Whether `allows` would say so; asking changes nothing."""
        with self._lock:
            return self._failures < FAILURES or self._clock() >= self._until

    def allows(self) -> bool:
        """Whether to ask now. Where it was open for its time, one command is tried."""
        with self._lock:
            if self._failures < FAILURES:
                return True
            now = self._clock()
            if now < self._until:
                return False
            self._until = now + self._pause
            return True

    def succeeded(self) -> None:
        """A command was answered."""
        with self._lock:
            self._failures, self._pause = 0, FIRST_PAUSE

    def failed(self) -> None:
        """A command was not answered."""
        with self._lock:
            self._failures += 1
            if self._failures >= FAILURES:
                self._until = self._clock() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
