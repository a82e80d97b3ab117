"""The budget for what runs keep beside the stash: the last prompt, the returned one, the ledger.

All of it can be made again from the agent's next prompt, so when there is too much the run that was idle for longest
forgets first. Its originals stay in the stash, and its decisions follow from its history; only an agent that goes on
from trimmed prompts and sends no revision back finds that its trimmed text has become ordinary text.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

RECORD_BYTES: Final = 1_500
"""What a message takes beside its bytes: its record, its entries and their places, and what tells whether its calls
are repeated; measured on CPython 3.11."""
COPIES: Final = 2
"""The last prompt, and the returned one, which holds the slices that were not trimmed once more."""


def weight(body_bytes: int, messages: int) -> int:
    """An estimate of the bytes that a run's memory takes."""
    return COPIES * body_bytes + RECORD_BYTES * messages


class MemoryBudget:
    """Bytes of each run's memory, the run used last at the end. Not thread-safe."""

    def __init__(self, most: int) -> None:
        """Take the bytes that all runs together may keep."""
        self._most = most
        self._weights: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.total = 0
        self.forgotten = 0
        """Memories that were given up so far."""

    def use(self, run: tuple[str, str], bytes_now: int) -> list[tuple[str, str]]:
        """A run was used and takes so many bytes now; the runs that must forget, never this one."""
        self.drop(run)
        self._weights[run] = bytes_now
        self.total += bytes_now
        over: list[tuple[str, str]] = []
        while self.total > self._most and len(self._weights) > 1:
            oldest = next(iter(self._weights))
            self.drop(oldest)
            over.append(oldest)
        self.forgotten += len(over)
        return over

    def drop(self, run: tuple[str, str]) -> None:
        """A run keeps nothing any more."""
        self.total -= self._weights.pop(run, 0)
