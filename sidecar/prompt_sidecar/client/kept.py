"""A client's memory of its runs, with the least recently updated evicted first.

Written by hand, as the client may only depend on gRPC and protobuf.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

MOST_RUNS: Final = 1_000
"""Most runs that are remembered. A revision takes about 2 kB at 500 trimmed items."""
Value = TypeVar("Value")


class ValuesByRun(Generic[Value]):
    """A value for each run. Thread-safe.

    Args:
        weigh: returns a value's bytes.
        most_bytes: limit for all values; 0: none is kept; None: no limit.
    """

    def __init__(self, weigh: Callable[[Value], int] = lambda _: 0, most_bytes: int | None = None) -> None:
        self._weigh = weigh
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Value] = OrderedDict()
        self._bytes = 0
        self.forgotten = 0
        """Number of runs whose value was evicted for others'."""

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, run_id: str) -> Value | None:
        """Return a run's value, or None."""
        with self._lock:
            return self._kept.get(run_id)

    def keep(self, run_id: str, value: Value) -> None:
        """Replace a run's value."""
        most = self._most_bytes
        if most == 0:
            return
        with self._lock:
            self._drop(run_id)
            self._kept[run_id] = value
            self._bytes += self._weigh(value)
            while len(self._kept) > 1 and (len(self._kept) > MOST_RUNS or (most is not None and self._bytes > most)):
                self._drop(next(iter(self._kept)))
                self.forgotten += 1

    def forget(self, run_id: str) -> None:
        """Forget a run."""
        with self._lock:
            self._drop(run_id)

    def forget_all(self) -> None:
        """Forget all runs."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _drop(self, run_id: str) -> None:
        if run_id in self._kept:
            self._bytes -= self._weigh(self._kept.pop(run_id))
