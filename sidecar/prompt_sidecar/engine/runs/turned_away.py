"""Runs whose prompts were all refused so far: only the reasons are kept, for people who look for such a run.

They are kept for people, as journals are, and not at all where no page for people is served. Once a prompt of such a
run is answered, its refusals move into its journal.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from prompt_sidecar.engine.runs.budget import Name
from prompt_sidecar.facts.journals import RunJournal, RunSummary

MOST: Final = 1_000
"""Runs that are kept, those refused last: as many as the table of runs looks at."""


@dataclass(slots=True)
class _RefusedRun:
    key: str
    model: str
    started: float
    last_seen: float
    refusals: Counter[str] = field(default_factory=Counter)

    def summary(self, name: Name, ahead: float) -> RunSummary:
        """Return the run's summary."""
        return RunSummary(
            self.key,
            *name,
            self.started + ahead,
            self.last_seen + ahead,
            refused=self.refusals.total(),
            model=self.model,
        )


class TurnedAway:
    """See the module's docstring. Thread-safe."""

    def __init__(self, *, kept: bool) -> None:
        """`kept`: whether pages for people are served."""
        self._kept = kept
        self._lock = Lock()
        self._runs: OrderedDict[Name, _RefusedRun] = OrderedDict()

    def add(self, name: Name, key: str, model: str, reason: str, now: float) -> None:
        """Record a refused prompt of a run about which nothing else is known. `key`: the run's name in addresses."""
        if not self._kept:
            return
        with self._lock:
            run = self._runs.setdefault(name, _RefusedRun(key, model, now, now))
            run.refusals[reason] += 1
            run.last_seen, run.model = now, model or run.model
            self._runs.move_to_end(name)
            if len(self._runs) > MOST:
                self._runs.popitem(last=False)

    def take(self, name: Name) -> Counter[str]:
        """Forget a run once a prompt of it is answered, and return its refusals by reason."""
        if not self._runs:  # nearly always empty: then no prompt waits for the lock
            return Counter()
        with self._lock:
            run = self._runs.pop(name, None)
            return Counter() if run is None else run.refusals

    def summaries(self, ahead: float) -> Sequence[RunSummary]:
        """Return summaries, the newest first. `ahead`: seconds since the epoch less the clock of their times."""
        with self._lock:
            return [run.summary(name, ahead) for name, run in reversed(self._runs.items())]

    def journal(self, key: str, ahead: float) -> RunJournal | None:
        """Return the refusals of the run with this key, or None if it is not kept here."""
        with self._lock:
            found = ((name, run) for name, run in self._runs.items() if run.key == key)
            return next(
                (RunJournal(run.summary(name, ahead), refusals=dict(run.refusals)) for name, run in found), None
            )
