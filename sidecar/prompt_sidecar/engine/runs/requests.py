"""Counts of what was done about requests, of one run or of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock

from prompt_sidecar.facts.figures import RequestFigures
from prompt_sidecar.facts.untrimmed import Handled, Through


class Requests:
    """Counts forwarded requests, by a closed list of outcomes. Thread-safe: a request does not wait for its run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[tuple[Through, str]] = Counter()
        self._before: Mapping[str, int] = {}
        """Counts of another process."""
        self._last = self._recall = ""

    def add(self, handled: Handled) -> None:
        """Count a request."""
        with self._lock:
            self._counts[handled.through, handled.outcome] += 1
            self._last = "" if handled.untrimmed is None else handled.untrimmed.value
            self._recall = self._recall if handled.recall is None else handled.recall.value

    def restore(self, was: RequestFigures) -> None:
        """Add the counts that another process left; called once."""
        with self._lock:
            self._before = was.handled
            self._last, self._recall = self._last or was.untrimmed, self._recall or was.recall

    def figures(self) -> RequestFigures:
        """The counts of all doors together."""
        with self._lock:
            counts = Counter(self._before)
            for (_, outcome), count in self._counts.items():
                counts[outcome] += count
            return RequestFigures(dict(sorted(counts.items())), self._last, self._recall)

    def by_door(self) -> Mapping[tuple[Through, str], int]:
        """Return counts by door and outcome; outcomes that never happened are missing."""
        with self._lock:
            return dict(self._counts)
