"""Waiting for what happens by itself, on a busy machine too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 120.0
"""Seconds after which a test that waits has failed: long, as only a fault makes one wait for it."""
_LOOK: Final = 0.01


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that happens by itself."""
    gives_up = threading.Event()
    timer = threading.Timer(PATIENCE, gives_up.set)
    timer.start()
    try:
        while not holds():
            assert not gives_up.wait(_LOOK), "it never came to hold"
    finally:
        timer.cancel()
