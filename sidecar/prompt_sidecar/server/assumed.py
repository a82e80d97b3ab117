"""Models whose window nobody said, reported once each in the log: their prompts are trimmed to an assumed one.

A name is text that a caller chose, and none of that stands in the log. It is told apart by a digest, which who knows
the name can make too: `printf %s NAME | sha256sum`.
"""

from __future__ import annotations

import logging
import threading
from hashlib import sha256
from typing import Final

MOST_NAMES: Final = 256
"""Names that are told apart: deployments use a handful, and callers choose them."""
DIGITS: Final = 8
"""Hexadecimal digits of a digest that are shown: enough to tell some hundred names apart."""

_log = logging.getLogger("prompt_sidecar.window")


class AssumedWindows:
    """Reports each model once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported: set[str] = set()

    def tell(self, model: str, limit: int) -> None:
        """A prompt for `model` was trimmed to `limit` tokens, which follow from an assumed window."""
        name = sha256(model.encode()).hexdigest()[:DIGITS] if model else ""
        with self._lock:
            if name in self._reported or len(self._reported) >= MOST_NAMES:
                return
            self._reported.add(name)
        _log.warning(
            "the window of %s is not known: its prompts are trimmed to %s tokens, by limits.default_window; "
            "send context_window, or name the model as docs/windows.md does",
            f"the model whose name has the SHA-256 {name}…" if name else "a model that is not named",
            f"{limit:,}",
        )
