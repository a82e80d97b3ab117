"""The stash against its slow twin: every rule written down naively, no order kept, no heap, no shared renewal.

The twin keeps a moment of death for every entry and rewrites all of a run's on renewal. Hypothesis drives both with the
same steps; they must agree on every outcome, byte and figure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prompt_sidecar.recall import stash as stash_module
from prompt_sidecar.recall.holding import Cause, StoredOriginal
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.stash import Stash

TOTAL, RUN, TTL, ENTRIES = 40, 25, 10, 6
RUNS = st.sampled_from(["a1", "a2", "b1"])
IDS = st.sampled_from(["i", "j", "k", "l"])


@dataclass
class SlowEntry:
    """An original, when it dies unless renewed, and the number of its last use."""

    original: bytes
    dies: float
    used: int


@dataclass
class SlowRun:
    """A run's entries and all that ever became of its ids."""

    entries: dict[str, SlowEntry] = field(default_factory=dict)
    gone: dict[str, Cause] = field(default_factory=dict)
    lost: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys(Cause, 0))
    active: int = 0


class SlowStash:
    """The rules, naively. The owner of a run is its first letter."""

    def __init__(self) -> None:
        self.runs: dict[str, SlowRun] = {}
        self.now = 0.0
        self.steps = 0

    def step(self) -> int:
        """The number of this use."""
        self.steps += 1
        return self.steps

    def bury(self) -> None:
        """Take off whatever is dead, everywhere."""
        for run in self.runs.values():
            for stash_id in [name for name, entry in run.entries.items() if entry.dies <= self.now]:
                self.lose(run, stash_id, Cause.EXPIRED)

    def lose(self, run: SlowRun, stash_id: str, cause: Cause) -> None:
        """Take one off."""
        del run.entries[stash_id]
        run.gone[stash_id] = cause
        run.lost[cause] += 1

    def use(self, run: SlowRun, entry: SlowEntry) -> None:
        """Renew one."""
        entry.dies = self.now + TTL
        entry.used = run.active = self.step()

    def put(self, key: str, stash_id: str, original: bytes) -> bool:
        """Store one and make room."""
        if len(original) > RUN:
            return False
        self.bury()
        run = self.runs.setdefault(key, SlowRun())
        if stash_id not in run.entries:
            run.entries[stash_id] = SlowEntry(original, 0, 0)
            run.gone.pop(stash_id, None)
        self.use(run, run.entries[stash_id])
        while self.size(run) > RUN or len(run.entries) > ENTRIES // 2:
            self.lose(run, self.oldest(run), Cause.RUN_BUDGET)
        while self.too_much():
            holders = [
                (other is run, name[0] != key[0], other.active, name)
                for name, other in self.runs.items()
                if other.entries
            ]
            victim = self.runs[min(holders)[-1]]
            self.lose(victim, self.oldest(victim), Cause.TOTAL_BUDGET)
        return True

    def too_much(self) -> bool:
        """Whether a budget for all is passed."""
        runs = self.runs.values()
        return sum(map(self.size, runs)) > TOTAL or sum(len(run.entries) for run in runs) > ENTRIES

    @staticmethod
    def size(run: SlowRun) -> int:
        """Bytes of a run."""
        return sum(len(entry.original) for entry in run.entries.values())

    @staticmethod
    def oldest(run: SlowRun) -> str:
        """The id used longest ago."""
        return min(run.entries, key=lambda name: run.entries[name].used)

    def get(self, key: str, stash_id: str) -> StoredOriginal | Outcome:
        """One, or why not."""
        self.bury()
        run = self.runs.get(key)
        if run is None:
            return Outcome.RUN_UNKNOWN
        if stash_id in run.entries:
            self.use(run, run.entries[stash_id])
            return StoredOriginal(run.entries[stash_id].original, "text/plain")
        if stash_id in run.gone:
            return Outcome.EXPIRED if run.gone[stash_id] is Cause.EXPIRED else Outcome.EVICTED
        return Outcome.NOT_FOUND

    def received(self, key: str) -> None:
        """Renew all of a run's, one by one."""
        self.bury()
        run = self.runs.setdefault(key, SlowRun())
        run.active = self.step()
        for entry in run.entries.values():
            entry.dies = self.now + TTL

    def missing(self, key: str) -> set[str]:
        """Expired ids."""
        self.bury()
        run = self.runs.get(key, SlowRun())
        return {stash_id for stash_id, cause in run.gone.items() if cause is Cause.EXPIRED}


class StashAgainstTwin(RuleBasedStateMachine):
    """Both stashes, driven alike."""

    def __init__(self) -> None:
        super().__init__()
        # Puts would sweep so few entries clean, and hide what happens when the dead are still there.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(stash_module, "PUT_SLICE", 0)
        self.slow = SlowStash()
        self.fast = Stash(TOTAL, RUN, TTL, lambda: self.slow.now, run_entries=ENTRIES // 2, total_entries=ENTRIES)

    @rule(key=RUNS, stash_id=IDS, original=st.binary(max_size=RUN + 2))
    def put(self, key: str, stash_id: str, original: bytes) -> None:
        """Store."""
        assert self.slow.put(key, stash_id, original) == self.fast.put(key, key[0], stash_id, original, "text/plain")

    @rule(key=RUNS, stash_id=IDS)
    def get(self, key: str, stash_id: str) -> None:
        """Fetch."""
        assert self.slow.get(key, stash_id) == self.fast.get(key, stash_id)

    @rule(key=RUNS)
    def received(self, key: str) -> None:
        """Receive the run's content again."""
        self.slow.received(key)
        self.fast.received(key)

    @rule(key=RUNS)
    def touch(self, key: str) -> None:
        """See the run."""
        self.slow.runs.setdefault(key, SlowRun()).active = self.slow.step()
        self.fast.touch_run(key)

    @rule(key=RUNS)
    def missing(self, key: str) -> None:
        """Ask what expired."""
        assert self.slow.missing(key) == set(self.fast.missing(key))

    @rule(key=RUNS)
    def forget(self, key: str) -> None:
        """Forget a run."""
        self.slow.runs.pop(key, None)
        self.fast.forget(key)

    @rule(seconds=st.integers(1, TTL + 2))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.slow.now += seconds

    @rule(limit=st.integers(1, 3))
    def sweep(self, limit: int) -> None:
        """Sweep a slice, which may change no answer."""
        assert self.fast.sweep(limit) <= limit

    @precondition(lambda self: self.slow.runs)
    @rule()
    def figures(self) -> None:
        """Compare the figures of every run."""
        self.slow.bury()
        for key, run in self.slow.runs.items():
            figures = self.fast.figures(key)
            assert (len(run.entries), SlowStash.size(run), run.lost) == (
                figures.entries, figures.held_bytes, figures.lost,
            )  # fmt: skip

    @invariant()
    def within_budgets(self) -> None:
        """No budget is ever passed, and the totals are the runs' sums."""
        totals = self.fast.totals()
        assert totals.held_bytes <= TOTAL
        assert totals.entries <= ENTRIES
        assert totals.runs == len(self.slow.runs)

    def teardown(self) -> None:
        """In the end all that is dead can be swept, in bounded slices."""
        self.patch.undo()
        self.slow.now += TTL
        while self.fast.sweep(2):
            pass
        assert (0, 0, 0) == (
            self.fast.totals().entries, self.fast.totals().held_bytes, self.fast.totals().original_bytes,
        )  # fmt: skip


TestStashAgainstTwin = StashAgainstTwin.TestCase
TestStashAgainstTwin.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
