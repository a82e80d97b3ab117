"""Hidden turns: what the model said and was answered without the agent, put back into later requests where it was.

A *splice* holds, for one answer that the agent was given, what the agent's part of it is known by, and what the model's
history really has in that place; `doors/http/placing.py` finds the place. Splices are kept by run, within budgets of
bytes, and the oldest go first. They quote originals, so they go with them: when their run is over, and when it was not
used for the time to live. What the model said is kept with masks, as the guard masks it in the next prompt. A run's are
saved for the store that replicas share, which keeps them as it keeps the originals, and what others have saved there is
loaded. What the agent was given is kept as it has it, so a splice that is known by what the guard masks is not saved. A
run that has lost one says so once, since thinking behind its place is valid no more.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from prompt_sidecar.answers.base import Dialect
from prompt_sidecar.doors.http.placing import (
    KnownSplice,
    RestoredHistory,
    Splice,
    joined,
    packed,
    restored,
    unpacked,
)
from prompt_sidecar.process.logs import Once

__all__ = ["ALL_BOUND", "RUN_BOUND", "HiddenLoss", "HiddenTurns", "Splice"]

RUN_BOUND: Final = "http.run_hidden_bytes"
ALL_BOUND: Final = "http.hidden_bytes"
SWEEP_RUNS: Final = 64
"""Idle runs whose turns one slice of housekeeping forgets."""
LOST_RUNS: Final = 16_384
"""Runs that are remembered to have lost a turn: more than `limits.runs`; 150 bytes each. Of one that is forgotten the
provider refuses the thinking, which is answered by a second request without it."""
_RUN_BYTES: Final = 400
"""Bytes of a run's own objects, estimated."""
_log = logging.getLogger("prompt_sidecar.http")

Name = tuple[str, str]
"""A run: its caller and its id."""


class HiddenLoss(StrEnum):
    """Why a hidden turn is not put back where it was."""

    UNMATCHED = "unmatched"
    """The agent has sent nothing back that shows where: the call and its answer are at the end of that request."""
    REWRITTEN = "rewritten"
    """It stood at the end of a request, and the agent has changed its history there since."""
    EVICTED = "evicted"
    """A budget of bytes was full."""
    EXPIRED = "expired"
    """Its run was not used for the time to live."""
    ENDED = "ended"
    """Its run was ended before the answer was."""
    FAILED = "failed"
    """It could not be remembered; the log has an error of it."""


_EXPLAINED: Final = {
    HiddenLoss.UNMATCHED: "an agent sends back nothing that shows where a hidden turn was; it is put at the end of the "
    "request that showed this, and there in later ones",
    HiddenLoss.REWRITTEN: "a hidden turn that stood at the end of a request is left out, as the agent has changed its "
    "history there",
    HiddenLoss.EVICTED: f"hidden turns are left out, as {RUN_BOUND} or {ALL_BOUND} is reached",
    HiddenLoss.EXPIRED: "hidden turns of an idle run are left out, as its time to live is over",
    HiddenLoss.ENDED: "a hidden turn is left out, as its run was ended before the answer was",
    HiddenLoss.FAILED: "a hidden turn is left out, as it could not be remembered",
}


@dataclass(slots=True)
class _HiddenRun:
    used: float
    splices: list[KnownSplice] = field(default_factory=list)
    bytes: int = 0
    unsaved: bool = False
    """Whether it has changed since it was saved or loaded."""


class HiddenTurns:
    """The splices of all runs: a `DoorMemory`. Thread-safe.

    Args:
        run_bytes: bytes of one run's.
        all_bytes: bytes of all.
        reached: called with the name of a bound that was reached.
        lost: called with the cause of each loss.
        clock: seconds by which times to live are counted.
    """

    def __init__(
        self,
        run_bytes: int,
        all_bytes: int,
        reached: Callable[[str], None] = lambda _: None,
        lost: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_bytes = run_bytes
        self._all_bytes = all_bytes
        self._reached = reached
        self._count_loss = lost
        self._once = Once()
        self._clock = clock
        self.life = math.inf
        """Seconds for which those of a run that is not used are kept."""
        self._lock = threading.Lock()
        self._runs: OrderedDict[Name, _HiddenRun] = OrderedDict()
        """Those with splices; the one used last at the end."""
        self._lost: OrderedDict[Name, None] = OrderedDict()
        """Runs that have lost a splice and were not asked since."""
        self._bytes = 0

    def keep(self, run: Name, splice: Splice, *, stays: bool = False) -> None:
        """Keep a splice of a run, by its caller and id; one that `stays` is not saved."""
        with self._lock:
            kept = self._used(run)
            asked = splice.place, splice.before
            for each in kept.splices if splice.before else ():
                each.asked_again = each.asked_again or (each.splice.place, each.splice.before) == asked
            kept.splices.append(KnownSplice(splice, stays=stays))
            kept.unsaved = True
            self._add(kept, splice.size)
            bounds = self._fit(run, kept)
        self._tell_bounds(bounds)

    def _used(self, run: Name) -> _HiddenRun:
        """What is kept of a run, which is used now. The lock is held."""
        kept = self._runs.get(run)
        if kept is None:
            kept = self._runs[run] = _HiddenRun(self._clock())
        kept.used = self._clock()
        self._runs.move_to_end(run)
        return kept

    def _fit(self, run: Name, kept: _HiddenRun) -> list[str]:
        """Drop the oldest, of this run and of all, until both fit; the bound of each one dropped. The lock is held."""
        bounds = []
        while kept.bytes > self._run_bytes and kept.splices:
            self._drop(run, kept)
            bounds.append(RUN_BOUND)
        while self._bytes > self._all_bytes and len(self._runs) > 1:
            name, oldest = next(iter(self._runs.items()))
            self._drop(name, oldest)
            bounds.append(ALL_BOUND)
        return bounds

    def _tell_bounds(self, bounds: Sequence[str]) -> None:
        """Count what was dropped for these bounds."""
        for bound in bounds:
            self._reached(bound)
            self.tell(HiddenLoss.EVICTED)

    def _add(self, kept: _HiddenRun, size: int) -> None:
        kept.bytes += size
        self._bytes += size

    def _drop(self, run: Name, kept: _HiddenRun) -> None:
        """Drop a run's oldest splice."""
        self._add(kept, -kept.splices.pop(0).splice.size)
        self._note_lost(run)
        kept.unsaved = True
        if not kept.splices:
            del self._runs[run]

    def _note_lost(self, run: Name) -> None:
        self._lost[run] = None
        if len(self._lost) > LOST_RUNS:
            self._lost.popitem(last=False)

    def tell(self, loss: HiddenLoss, times: int = 1) -> None:
        """Count losses, and log the first of each cause."""
        for _ in range(times):
            self._count_loss(loss.value)
        if times:
            message = "%s; the metric prompt_sidecar_http_hidden_losses_total counts them"
            self._once.warning(_log, message, _EXPLAINED[loss])

    def lost(self, run: Name) -> bool:
        """Whether a splice of the run was lost since this was last asked."""
        with self._lock:
            return self._lost.pop(run, self) is None

    def restored(
        self, run: Name, dialect: Dialect, history: Callable[[], list[bytes]], *, only_look: bool = False
    ) -> RestoredHistory | None:
        """Put a run's hidden turns back into a history; None: nothing of it belongs there.

        `only_look`: nothing that is found is remembered, as for a request that only counts.
        """
        with self._lock:
            kept = self._runs.get(run)
            if kept is None:
                return None
            expired = self._clock() - kept.used > self.life
            if expired:
                gone = self._expire(run)
            else:
                kept.used = self._clock()
                self._runs.move_to_end(run)
                splices = [replace(each) for each in kept.splices] if only_look else list(kept.splices)
        if expired:
            self.tell(HiddenLoss.EXPIRED, gone)
            return None
        made = restored(splices, dialect, history())
        if not only_look:
            self._settle(run, made.unmatched, made.rewritten)
        return made if made.entries is not None else None

    def _settle(self, run: Name, unmatched: int, rewritten: list[KnownSplice]) -> None:
        """Note what did not find its place."""
        if not unmatched and not rewritten:
            return
        with self._lock:
            self._note_lost(run)
            kept = self._runs.get(run)
            if kept is not None:
                kept.unsaved = True
            if kept is not None and rewritten:
                gone = {id(each) for each in rewritten}
                self._add(kept, -sum(each.splice.size for each in kept.splices if id(each) in gone))
                kept.splices = [each for each in kept.splices if id(each) not in gone]
                if not kept.splices:
                    del self._runs[run]
        self.tell(HiddenLoss.UNMATCHED, unmatched)
        self.tell(HiddenLoss.REWRITTEN, len(rewritten))

    # -- as bytes ------------------------------------------------------------------------------------------------------

    def saved(self, run: Name) -> bytes:
        """Return what is kept of a run, for `load`; empty: nothing. It quotes originals, so store it like them."""
        with self._lock:
            kept = self._runs.get(run)
            splices = [replace(each) for each in kept.splices] if kept is not None else []
            if kept is not None:
                kept.unsaved = False
        return packed(splices) if splices else b""

    def unsaved(self, run: Name) -> bool:
        """Whether what is kept of a run has changed since it was saved or loaded."""
        with self._lock:
            kept = self._runs.get(run)
            return kept is not None and kept.unsaved

    def load(self, run: Name, data: bytes) -> None:
        """Keep what `saved` has given elsewhere, with what is kept here already, within the same budgets.

        If there was anything else here, that is yet to be saved.

        Raises:
            ValueError: it is something else.
        """
        found = unpacked(data) if data else []
        with self._lock:
            if not found and run not in self._runs:
                return
            kept = self._used(run)
            made = joined(kept.splices, found)
            self._add(kept, sum(each.splice.size for each in made) - kept.bytes)
            kept.splices = made
            bounds = self._fit(run, kept)
            kept.unsaved = [each.name for each in kept.splices if not each.stays] != [each.name for each in found]
        self._tell_bounds(bounds)

    # -- the end of runs -----------------------------------------------------------------------------------------------

    def kept_bytes(self, run: Name) -> int:
        """What is kept of a run; bytes, estimated."""
        with self._lock:
            kept = self._runs.get(run)
            return _RUN_BYTES + kept.bytes if kept is not None else 0

    def forget(self, run: Name) -> None:
        """The run is over: its turns are sent to no provider again."""
        with self._lock:
            self._lost.pop(run, None)
            kept = self._runs.pop(run, None)
            self._bytes -= kept.bytes if kept is not None else 0

    def forget_all(self, caller: str) -> None:
        """All runs of a caller are over."""
        with self._lock:
            names = [name for name in (*self._runs, *self._lost) if name[0] == caller]
        for name in names:
            self.forget(name)

    def sweep(self, idle_since: float) -> None:
        """Forget the turns of some runs that were not used since then."""
        gone = 0
        with self._lock:
            for _ in range(SWEEP_RUNS):
                name, oldest = next(iter(self._runs.items()), (None, None))
                if name is None or oldest is None or oldest.used >= idle_since:
                    break
                gone += self._expire(name)
        self.tell(HiddenLoss.EXPIRED, gone)

    def _expire(self, run: Name) -> int:
        """Forget the turns of a run, which has lost them; return how many. The lock is held."""
        kept = self._runs.pop(run)
        self._bytes -= kept.bytes
        self._note_lost(run)
        return len(kept.splices)
