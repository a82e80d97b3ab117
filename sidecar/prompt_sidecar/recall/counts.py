"""Counts of named events in the core since the process began.

For events outside of any answer, such as an eviction, telemetry only needs a number. It reads them at each collection,
so counting costs the core almost nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class EventCounts(Generic[Name]):
    """The number of times of each event. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Name, int] = {}

    def add(self, name: Name, times: int = 1) -> None:
        """Count an event."""
        if times:
            with self._lock:
                self._counts[name] = self._counts.get(name, 0) + times

    def read(self) -> Mapping[Name, int]:
        """All counts so far; events that never happened are missing."""
        with self._lock:
            return dict(self._counts)
