"""Circuit breakers: a server that failed to answer some commands in a row is not asked for a while, then tried again.

A cluster has one for each of its nodes, so that an unavailable node delays only the runs that are stored on it.

Many commands may be in flight when a server stalls, and all of them fail together. That is one failure of the server,
not many: failures of commands that were sent before the breaker opened, or before its last try, do not lengthen the
pause.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Lock
from typing import Final

FAILURES: Final = 3
"""Failures in a row that open it: a single lost connection is not enough, as the next command connects again."""
FIRST_PAUSE: Final = 0.1
"""Seconds that it first stays open; each failed try doubles them."""
LONGEST_PAUSE: Final = 1.0
"""Seconds that it stays open at most. Waiting writes are lost if the process is killed, so a server that is back has to
be found soon; and one try a second harms no server."""


class ServerBreaker:
    """Decides whether to ask one server. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds and is never adjusted."""
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = 0.0
        self._round = 0
        """Increases when it opens, and with each try."""

    @property
    def closed(self) -> bool:
        """Whether the last commands were answered."""
        return self._failures < FAILURES

    @property
    def healthy(self) -> bool:
        """Whether the last command was answered."""
        return self._failures == 0

    @property
    def would_allow(self) -> bool:
        """Whether `ask` would allow a command; changes nothing."""
        with self._lock:
            return self._failures < FAILURES or self._clock() >= self._until

    def ask(self) -> int | None:
        """Whether to ask now: returns a number for `failed`, or None for no. After the pause one command is tried."""
        with self._lock:
            if self._failures >= FAILURES:
                now = self._clock()
                if now < self._until:
                    return None
                self._until = now + self._pause
                self._round += 1
            return self._round

    def succeeded(self) -> None:
        """Record that a command was answered."""
        with self._lock:
            self._failures, self._pause = 0, FIRST_PAUSE

    def failed(self, asked: int) -> None:
        """Record that a command was not answered; `asked` is what `ask` returned for it."""
        with self._lock:
            if asked != self._round:
                return
            self._failures += 1
            if self._failures >= FAILURES:
                self._until = self._clock() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                self._round += 1


class Breakers:
    """One breaker for each server, by its name. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds and is never adjusted."""
        self._clock = clock
        self._lock = Lock()
        self._all: dict[str, ServerBreaker] = {}

    def of(self, node: str) -> ServerBreaker:
        """Return the breaker of a server."""
        with self._lock:
            return self._all.setdefault(node, ServerBreaker(self._clock))

    def keep(self, nodes: Collection[str]) -> None:
        """Forget the breakers of other servers, which have left the cluster."""
        with self._lock:
            for gone in self._all.keys() - set(nodes):
                del self._all[gone]

    def open(self) -> list[str]:
        """Return the servers whose last commands were not answered."""
        with self._lock:
            return [node for node, breaker in self._all.items() if not breaker.closed]
