"""A circuit breaker: an agent does not wait at every turn for a sidecar that does not answer.

    closed ── two misses in a row ──► open ── the pause is over ──► half open: one call tries again
      ▲                                 ▲                                │
      └───────── any answer ────────────┴────────── it misses: a longer pause ──┘

A *miss* is a call that could not connect or had no answer within its deadline (`Unreachable`). A refusal counts as an
answer, since the sidecar is running; so does `STORE_UNAVAILABLE`, as prompts are trimmed without the store. While the
circuit is open, calls fail at once. So a process that hangs costs its deadline twice and then once per pause, and not
at every turn. One breaker serves all runs and threads of a client.

The pattern is Michael Nygard's, "Release It!" (2007), chapter "Circuit Breaker".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prompt_sidecar.client.errors import CIRCUIT_OPEN, STORE_UNAVAILABLE, ClientError, Unreachable

MISSES: Final = 2
"""Misses in a row that open the circuit. A single one can be a restart, or a long prompt on a busy machine."""
FIRST_PAUSE: Final = 1.0
"""Seconds until the first try after the circuit has opened: a restart takes about that. Doubled at each miss."""
LONGEST_PAUSE: Final = 30.0
"""Longest pause between tries, in seconds: with the default deadline a hung process costs 2 of 32 seconds, and a
recovered one is used again within half a minute."""


class CallBreaker:
    """Counts misses and decides whether a call is made. Thread-safe; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._misses = 0
        self._pause = FIRST_PAUSE
        self._until: float | None = None
        """When the next try may be made; None while the circuit is closed."""
        self._trying = False

    @property
    def state(self) -> str:
        """`closed`: calls are made; `open`: they fail at once; `half_open`: one call may try, or is trying."""
        with self._lock:
            if self._until is None:
                return "closed"
            return "half_open" if self._trying or self._clock() >= self._until else "open"

    @contextmanager
    def call(self) -> Iterator[None]:
        """Run one call of the sidecar within this context.

        Raises:
            Unreachable: the circuit is open; nothing was sent.
        """
        trying = self._admitted()
        try:
            yield
        except Unreachable as error:
            if error.reason == STORE_UNAVAILABLE:
                self._answered()
            else:
                self._missed(trying=trying)
            raise
        except ClientError:  # a refusal is an answer
            self._answered()
            raise
        except BaseException:  # cancelled, interrupted, or an error of the program: the sidecar's state is not known
            self._inconclusive(trying=trying)
            raise
        self._answered()

    def _admitted(self) -> bool:
        """Return whether this call is the one that tries again. Raises Unreachable if it must not be made."""
        with self._lock:
            if self._until is None:
                return False
            left = self._until - self._clock()
            if self._trying or left > 0:
                when = "another call is trying" if self._trying else f"the next try is in {left:.1f} seconds"
                message = f"the sidecar did not answer {self._misses} calls in a row; {when}"
                raise Unreachable(message, code="UNAVAILABLE", reason=CIRCUIT_OPEN)
            self._trying = True
            return True

    def _missed(self, *, trying: bool) -> None:
        with self._lock:
            self._misses += 1
            if trying:
                self._trying = False
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
            elif self._until is not None or self._misses < MISSES:
                return  # the call began before the circuit opened
            self._until = self._clock() + self._pause

    def _answered(self) -> None:
        """Close the circuit, whichever call was answered."""
        with self._lock:
            self._misses, self._pause, self._until, self._trying = 0, FIRST_PAUSE, None, False

    def _inconclusive(self, *, trying: bool) -> None:
        if trying:
            with self._lock:
                self._trying = False
