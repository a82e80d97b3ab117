"""Models whose window nobody said, told once each in the log: their prompts are trimmed to an assumed one."""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

MOST_NAMES: Final = 256
"""Names that are told apart: deployments use a handful, and callers choose them."""
MOST_CHARACTERS: Final = 64
"""Of a name, as it is told; what else a caller writes into it is left out."""
_UNPRINTED: Final = re.compile(r"[^A-Za-z0-9._:/@-]")

_log = logging.getLogger("sidecar.window")


class AssumedWindows:
    """Tells of each model once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def tell(self, model: str, limit: int) -> None:
        """A prompt for `model` was trimmed to `limit` tokens, which follow from an assumed window."""
        name = _UNPRINTED.sub("?", model[:MOST_CHARACTERS])
        with self._lock:
            if name in self._told or len(self._told) >= MOST_NAMES:
                return
            self._told.add(name)
        _log.warning(
            "the window of model %s is not known: its prompts are trimmed to %s tokens, by limits.default_window; "
            "send context_window, or name the model as docs/windows.md does",
            name or "(not named)",
            f"{limit:,}",
        )
