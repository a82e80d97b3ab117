"""Logs, once for each model, that its window is unknown and its prompts are trimmed to an assumed one.

A model's name is chosen by the caller, and such text is not logged. It is identified by a digest, which anyone with the
name can compute: `printf %s NAME | sha256sum`.
"""

from __future__ import annotations

import logging
import threading
from hashlib import sha256
from typing import Final

MOST_NAMES: Final = 256
"""Names that are remembered: deployments use a few, but callers choose them."""
DIGITS: Final = 8
"""Hexadecimal digits of a digest that are logged: enough to distinguish some hundred names."""

_log = logging.getLogger("prompt_sidecar.window")


class AssumedWindows:
    """Logs each model once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: set[str] = set()

    def report(self, model: str, limit: int) -> None:
        """Log that a prompt for `model` was trimmed to `limit` tokens, derived from an assumed window."""
        name = sha256(model.encode()).hexdigest()[:DIGITS] if model else ""
        with self._lock:
            if name in self._reported or len(self._reported) >= MOST_NAMES:
                return
            self._reported.add(name)
        _log.warning(
            "the window of %s is not known: its prompts are trimmed to %s tokens, by limits.default_window; "
            "send context_window, or give the model a table [models] in the settings (docs/windows.md)",
            f"the model whose name has the SHA-256 {name}…" if name else "a model that is not named",
            f"{limit:,}",
        )
