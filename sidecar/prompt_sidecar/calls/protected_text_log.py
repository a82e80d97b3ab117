"""Logs, once for each run, that its protected text leaves too little for cuts to be useful."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import Final

from prompt_sidecar.facts.log_lines import members, run_digest
from prompt_sidecar.facts.trim_calls import TokenFigures, TrimCall

MOST_RUNS: Final = 4_096
"""Runs that are remembered, the newest: more than are active at a time. A forgotten run is logged again."""

_log = logging.getLogger("prompt_sidecar.protected_text")


class ProtectedTextLog:
    """Logs each run once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: OrderedDict[tuple[str, str], None] = OrderedDict()

    def report(self, call: TrimCall, tokens: TokenFigures) -> None:
        """Log how much the protected text leaves in a prompt's run, if it is too little and was not logged yet."""
        if tokens.protected_leaves is None:
            return
        run = call.caller, call.run_id
        with self._lock:
            if run in self._reported:
                self._reported.move_to_end(run)
                return
            self._reported[run] = None
            if len(self._reported) > MOST_RUNS:
                self._reported.popitem(last=False)
        _log.warning(
            "the protected text of a run leaves %s of %s tokens: each cut frees little, and the next one follows soon "
            "(docs/trimming.md)",
            *(f"{tokens.protected_leaves:,}", f"{tokens.ceiling or tokens.limit:,}"),
            extra=members(run=run_digest(call.run_id), caller=call.caller),
        )
