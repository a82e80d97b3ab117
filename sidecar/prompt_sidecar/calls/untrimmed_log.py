"""Logs requests that are forwarded untrimmed but should not be, once a minute for each door and reason.

The first request of a minute is logged; the next line has the number of requests in between. A line may contain the
requested path, which an operator needs to find an unknown API: its parts are logged only if they are short and plain,
as some gateways have a key in their paths.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

from prompt_sidecar.facts.log_lines import members, run_digest
from prompt_sidecar.facts.untrimmed import Handled, Through, Untrimmed

SECONDS: Final = 60.0
"""Time between two lines about the same door and reason."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]{0,24}")
_MOST_PARTS: Final = 8

_log = logging.getLogger("prompt_sidecar.untrimmed")


class UntrimmedLog:
    """Logs requests that were forwarded untrimmed. Thread-safe. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_at: dict[tuple[Through, Untrimmed], float] = {}
        self._more: dict[tuple[Through, Untrimmed], int] = {}

    def handled(self, handled: Handled) -> None:
        """Log a request, if trimming was missed and a line about its kind is due."""
        reason = handled.untrimmed
        if reason is None or not reason.missed:
            return
        kind = handled.through, reason
        with self._lock:
            now = self._clock()
            if now - self._logged_at.get(kind, -math.inf) < SECONDS:
                self._more[kind] = self._more.get(kind, 0) + 1
                return
            self._logged_at[kind] = now
            more = self._more.pop(kind, 0)
        at = f" at {shown_path(handled.path)}" if handled.path else ""
        before = f"; {more:,} more since the last such line" if more else ""
        _log.warning(
            "a request through the %s door went on untrimmed: %s, %s bytes%s%s (docs/untrimmed.md)",
            *(handled.through, reason, f"{handled.size:,}", at, before),
            extra=members(door=handled.through, reason=reason, run=run_digest(handled.run_id), caller=handled.caller),
        )


def shown_path(path: str) -> str:
    """Return a URL's path for the log: each part that is long, or not plain, is replaced by an ellipsis."""
    parts = path.split("/", _MOST_PARTS)
    return "/".join(part if _PLAIN.fullmatch(part) else "…" for part in parts)
