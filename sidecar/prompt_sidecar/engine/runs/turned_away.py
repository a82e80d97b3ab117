"""Runs whose prompts were all refused so far: nothing is kept of them, and somebody who looks for one finds why.

Kept for people, as journals are, and where nobody can look nothing is kept. A run of which a prompt is answered takes
its refusals into its journal.
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
"""Such runs, those refused last: as many as the table of runs looks at."""


@dataclass(slots=True)
class _RefusedRun:
    key: str
    model: str
    started: float
    last_seen: float
    refusals: Counter[str] = field(default_factory=Counter)

    def summary(self, name: Name, ahead: float) -> RunSummary:
        """The run in a line."""
        return RunSummary(
            self.key,
            *name,
            self.started + ahead,
            self.last_seen + ahead,
            refused=self.refusals.total(),
            model=self.model,
        )


class TurnedAway:
    """See the module. Thread-safe."""

    def __init__(self, *, kept: bool) -> None:
        """`kept`: whether anybody can look."""
        self._kept = kept
        self._lock = Lock()
        self._runs: OrderedDict[Name, _RefusedRun] = OrderedDict()

    def add(self, name: Name, key: str, model: str, reason: str, now: float) -> None:
        """A prompt of a run of which nothing else is known was refused. `key` names it in addresses."""
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
        """Forget a run, of which a prompt was answered; return its refusals by reason."""
        if not self._runs:  # as nearly always, so that no prompt waits for a lock
            return Counter()
        with self._lock:
            run = self._runs.pop(name, None)
            return Counter() if run is None else run.refusals

    def summaries(self, ahead: float) -> Sequence[RunSummary]:
        """Each in a line, the newest first. `ahead`: seconds since the epoch less the clock of their times."""
        with self._lock:
            return [run.summary(name, ahead) for name, run in reversed(self._runs.items())]

    def journal(self, key: str, ahead: float) -> RunJournal | None:
        """What is known of the run with this key; None: it is not among them."""
        with self._lock:
            found = ((name, run) for name, run in self._runs.items() if run.key == key)
            return next(
                (RunJournal(run.summary(name, ahead), refusals=dict(run.refusals)) for name, run in found), None
            )
