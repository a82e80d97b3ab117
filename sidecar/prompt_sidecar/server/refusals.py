"""One line in the log for each refused call, and no more lines than the log can take.

Who is refused can ask again as often as it likes, so lines are bounded by a token bucket: `log.refusals` a minute, of
which the unused are saved up for one minute. What is over is counted, and told in one line once there is room again.
No line holds text of a prompt: it has the method, the status, the reason, the field at fault and whence the call came.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from time import monotonic

from prompt_sidecar.errors import SidecarError

_MINUTE = 60.0
LINES = 60
"""Lines a minute, by default: of 200 bytes each they are 17 MB a day."""
MOST_CHARACTERS = 200
"""Of a field's path in a line; it may name members that the caller chose."""

_log = logging.getLogger("prompt_sidecar.refused")


class LineBudget:
    """Says whether one more line may be written. Thread-safe."""

    def __init__(self, a_minute: int, clock: Callable[[], float] = monotonic) -> None:
        self._most = a_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._left = float(a_minute)
        self._at = clock()
        self._over = 0
        self._told = -math.inf

    def take(self) -> bool:
        """Take a line, if there is one; else it is counted."""
        with self._lock:
            self._refill()
            if self._left < 1:
                self._over += 1
                return False
            self._left -= 1
            return True

    def taken_over(self, *, at_once: bool = False) -> int:
        """How many lines there was no room for since this was last above 0, which it is once a minute unless `at_once`.

        Else a line that says so would take as much room as the others did.
        """
        with self._lock:
            now = self._clock()
            if not self._over or (now - self._told < _MINUTE and not at_once):
                return 0
            over, self._over, self._told = self._over, 0, now
            return over

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(float(self._most), self._left + (now - self._at) * self._most / _MINUTE)
        self._at = now


class Refusals:
    """Logs refused calls, at most `a_minute` lines a minute; 0: none, but how many there were."""

    def __init__(self, a_minute: int, clock: Callable[[], float] = monotonic) -> None:
        self._budget = LineBudget(a_minute, clock)

    def tell(self, method: str, error: BaseException, code: str, peer: str) -> None:
        """A call was refused, or failed; an empty method: one that is not served."""
        self.tell_rest()
        if not self._budget.take():
            return
        line = f"{method or 'a method that is not served'} refused: {code}"
        if isinstance(error, SidecarError):
            line += f" {error.reason}"
            line += f", field {_shown(error.field)}" if error.field else ""
            line += f", bound {error.bound}" if error.bound else ""
        _log.warning("%s, from %s", line, _shown(peer))

    def tell_rest(self, *, at_once: bool = False) -> None:
        """Tell how many lines were left out, if a minute has gone since that was told. To be called now and then."""
        over = self._budget.taken_over(at_once=at_once)
        if over:
            _log.warning("%s more calls were refused and not logged: log.refusals was reached", f"{over:,}")


def _shown(text: str) -> str:
    """A text of a caller's on one line, as ASCII and not too long."""
    return ascii(text)[1:-1][:MOST_CHARACTERS]
