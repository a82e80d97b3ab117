"""The housekeeping thread: forgets what has expired in bounded slices, and returns unused memory to the system."""

from __future__ import annotations

import gc
import logging
import math
import threading
import time
from typing import Final

from prompt_sidecar.calls.memory import MemoryGate
from prompt_sidecar.calls.refusals import Refusals
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.process.allocator import give_back
from prompt_sidecar.process.logs import frames

_GIVE_BACK_SECONDS: Final = 30.0
"""Seconds between returns of unused memory to the system, which take some milliseconds."""

_log = logging.getLogger(__name__)


class Housekeeper:
    """Does a slice of housekeeping every `interval` seconds, from its creation on."""

    def __init__(self, runs: Runs, memory: MemoryGate, refusals: Refusals, interval: float) -> None:
        self._runs = runs
        self._memory = memory
        self._refusals = refusals
        self._interval = interval
        self._ending = threading.Event()
        self._given_back = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="sweep", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Start no further slice."""
        self._ending.set()

    def join(self, timeout: float) -> None:
        """Wait for the current slice, at most `timeout` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._ending.wait(self._interval):
            try:
                self._slice()
            except Exception as error:  # noqa: BLE001  # one bad slice must not end all housekeeping
                _log.error("housekeeping failed: %s", frames(error))

    def _slice(self) -> None:
        self._runs.sweep()
        self._refusals.log_omitted()
        if over := self._memory.excess():
            self._runs.shed(over)
            self._given_back = -math.inf  # evicting helps only once the memory is returned
        if time.monotonic() - self._given_back >= _GIVE_BACK_SECONDS:
            if self._runs.forget_shared() and not len(self._runs):
                # No runs are left to go through, so this takes some milliseconds.
                gc.collect()
            give_back()
            self._given_back = time.monotonic()
