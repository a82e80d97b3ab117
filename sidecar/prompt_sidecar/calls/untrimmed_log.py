"""Logs that requests go on untrimmed which should not, once a minute for each door and reason.

Of the requests of a minute the first is logged, and with the next line how many there were in between. A line may name
the path that was called, as that is what an operator needs to find an unknown one: its parts are shown as far as they
are short and plain, as some gateways have a key in theirs.
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
"""From one line about a door and a reason to the next."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]{0,24}")
_MOST_PARTS: Final = 8

_log = logging.getLogger("prompt_sidecar.untrimmed")


class UntrimmedLog:
    """Logs what a door did nothing for. Thread-safe. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[tuple[Through, Untrimmed], float] = {}
        self._more: dict[tuple[Through, Untrimmed], int] = {}

    def handled(self, handled: Handled) -> None:
        """Log a request, if trimming was missed and a line about its kind is due."""
        reason = handled.untrimmed
        if reason is None or not reason.missed:
            return
        kind = handled.through, reason
        with self._lock:
            now = self._clock()
            if now - self._told.get(kind, -math.inf) < SECONDS:
                self._more[kind] = self._more.get(kind, 0) + 1
                return
            self._told[kind] = now
            more = self._more.pop(kind, 0)
        at = f" at {shown_path(handled.path)}" if handled.path else ""
        before = f"; {more:,} more since the last such line" if more else ""
        _log.warning(
            "a request through the %s door went on untrimmed: %s, %s bytes%s%s (docs/untrimmed.md)",
            *(handled.through, reason, f"{handled.size:,}", at, before),
            extra=members(door=handled.through, reason=reason, run=run_digest(handled.run_id), caller=handled.caller),
        )


def shown_path(path: str) -> str:
    """Return a URL's path as it is logged: each part that is long, or not plain, is an ellipsis."""
    parts = path.split("/", _MOST_PARTS)
    return "/".join(part if _PLAIN.fullmatch(part) else "…" for part in parts)
