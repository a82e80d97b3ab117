"""Counts of what happens in the core: how often each of some named things did, since the process began.

One number is all that telemetry needs of what happens far from any answer, such as an eviction: it reads the numbers
when somebody asks, so counting costs the core next to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Name = TypeVar("Name", bound=Hashable)


class Counts(Generic[Name]):
    """How often each thing happened. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Name, int] = {}

    def add(self, name: Name, times: int = 1) -> None:
        """It happened."""
        if times:
            with self._lock:
                self._counts[name] = self._counts.get(name, 0) + times

    def read(self) -> Mapping[Name, int]:
        """All that happened so far; what never did is missing."""
        with self._lock:
            return dict(self._counts)
