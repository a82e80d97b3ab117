"""Logs one line for each refused call, at a limited rate, and limits the lines of HTTP server libraries likewise.

A caller that is refused can call again as often as it likes, so a token bucket limits the lines: `log.refusals` a
minute; unused ones accumulate for one minute. Lines beyond that are counted, and their number is logged once the budget
allows it. No line holds text of a prompt: it has the method, the status, the reason, the invalid field and the peer's
address.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from prompt_sidecar.errors import CeilingReached, GuardRefused, SidecarError
from prompt_sidecar.facts.log_lines import members

_MINUTE = 60.0
LINES = 60
"""Lines a minute, by default: of 200 bytes each they are 17 MB a day."""
LIBRARIES = ("aiohttp.server", "asyncio")
"""Loggers of the HTTP server libraries."""
MOST_CHARACTERS = 200
"""Characters of a field's path in a line; it may contain names chosen by the caller."""

_log = logging.getLogger("prompt_sidecar.refused")


class LineBudget:
    """Decides whether one more line may be written. Thread-safe."""

    def __init__(self, a_minute: int, clock: Callable[[], float] = monotonic) -> None:
        self._most = a_minute
        self._clock = clock
        self._lock = threading.RLock()  # a finalizer may log, and run while another line is counted
        self._left = float(a_minute)
        self._at = clock()
        self._over = 0
        self._reported = -math.inf

    def take(self) -> bool:
        """Return whether a line may be written; if not, it is counted as omitted."""
        with self._lock:
            self._refill()
            if self._left < 1:
                self._over += 1
                return False
            self._left -= 1
            return True

    def taken_over(self, *, at_once: bool = False) -> int:
        """Return how many lines were omitted since the last number above 0, once a minute unless `at_once`.

        More frequent lines with this number would take as much space as the omitted ones.
        """
        with self._lock:
            now = self._clock()
            if not self._over or (now - self._reported < _MINUTE and not at_once):
                return 0
            over, self._over, self._reported = self._over, 0, now
            return over

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(float(self._most), self._left + (now - self._at) * self._most / _MINUTE)
        self._at = now


class Refusals:
    """Logs refused calls, at most `a_minute` lines a minute; 0: no lines, but their number."""

    def __init__(self, a_minute: int, clock: Callable[[], float] = monotonic) -> None:
        self._budget = LineBudget(a_minute, clock)

    def log(self, method: str, error: BaseException, code: str, peer: str) -> None:
        """Log that a call was refused or failed; the method is empty if it is not served."""
        self.log_omitted()
        if not self._budget.take():
            return
        line = f"{method or 'a method that is not served'} refused: {code}"
        known = {"method": method, "status": code, "peer": _shown(peer)}
        if isinstance(error, SidecarError):
            line += f" {error.reason}"
            line += f", field {_shown(error.field)}" if error.field else ""
            line += f", bound {error.bound}" if error.bound else ""
            known |= {"reason": error.reason, "field": _shown(error.field), "bound": error.bound}
        if isinstance(error, GuardRefused):
            known["rule"] = error.rule
        if isinstance(error, CeilingReached):
            known |= {"scope": str(error.scope), "kind": str(error.kind)}
        _log.warning("%s, from %s", line, _shown(peer), extra=members(**known))

    def log_omitted(self, *, at_once: bool = False) -> None:
        """Log how many lines were omitted, at most once a minute unless `at_once`. To be called from time to time."""
        over = self._budget.taken_over(at_once=at_once)
        if over:
            _log.warning("%s more calls were refused and not logged: log.refusals was reached", f"{over:,}")


class LibraryLines(logging.Filter):
    """Passes so many lines a minute of a library's logger, and counts the others.

    The library writes a line with a traceback for each malformed request, before the client is authenticated.
    """

    def __init__(self, a_minute: int, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._budget = LineBudget(a_minute, clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        over = self._budget.taken_over()
        if over:
            _log.warning("%s more lines of %s were not logged: log.refusals was reached", f"{over:,}", record.name)
        return self._budget.take()


@contextmanager
def library_lines_limited(a_minute: int) -> Iterator[None]:
    """Limit the lines of each HTTP server library, as those of refused calls."""
    filters = {logging.getLogger(name): LibraryLines(a_minute) for name in LIBRARIES}
    for logger, limit in filters.items():
        logger.addFilter(limit)
    try:
        yield
    finally:
        for logger, limit in filters.items():
            logger.removeFilter(limit)


def _shown(text: str) -> str:
    """Return a caller's text on one line, in ASCII, shortened."""
    return ascii(text)[1:-1][:MOST_CHARACTERS]
