"""The use cases: trim a prompt, recall trimmed content, keep tasks, report a run's figures, end a run.

`Runs` holds every run that this process has seen, each with a lock of its own, and the stash that they share. It does
no I/O: the clock, the keys and the counter are passed in; requests and answers are data of `facts/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from time import perf_counter, thread_time
from typing import Final

from prompt_sidecar.engine.runs.archive import Archive
from prompt_sidecar.engine.runs.archiving import Archiving
from prompt_sidecar.engine.runs.guarding import Guarding
from prompt_sidecar.engine.runs.metering import Meter, Rules
from prompt_sidecar.engine.runs.pace import Clocks, Lane, Pace, never
from prompt_sidecar.engine.runs.recalling import Recalling
from prompt_sidecar.engine.runs.requests import Requests
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.shared_vault import SharedVault
from prompt_sidecar.engine.runs.table import RunTable
from prompt_sidecar.engine.runs.taught_windows import TaughtWindows
from prompt_sidecar.engine.runs.trimming import Trimming
from prompt_sidecar.engine.runs.turned_away import TurnedAway
from prompt_sidecar.errors import InvalidJson, InvalidRequest, SidecarError, StoreUnavailable
from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.guard_calls import MaskAnswer, MaskCall, RestoreAnswer, RestoreCall
from prompt_sidecar.facts.journals import HandledCount, RunJournal, RunSummary
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.facts.money import MODELS_BOUND
from prompt_sidecar.facts.totals import Event, Totals
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.untrimmed import MISSED, Handled
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall, UsageOutcome
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.likeness import likely_format
from prompt_sidecar.recall.analysis import forget_words
from prompt_sidecar.tokens import Counter
from prompt_sidecar.tokens.calibration import Calibration
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset

COMPRESS_SLICE: Final = 65_536
"""Bytes that a slice of background work compresses: a quarter of a millisecond."""
OVER: Final = 4
"""Divisor: once all runs keep less than this part of the most that they ever kept, most runs are taken to have ended.
"""


class Runs:
    """All runs that this process has seen. Thread-safe."""

    def __init__(  # noqa: PLR0917 - the parts that they are made of
        self,
        counter: Counter,
        keys: Keys,
        rules: Rules,
        clocks: Clocks,
        limits: CoreLimits,
        archive: Archive | None = None,
        first_wait: float = 0.001,
    ) -> None:
        """Take what the use cases need.

        Args:
            counter: counts tokens.
            keys: make ids and sign revisions; the same keys in every process give the same ids.
            rules: the settings of each caller.
            clocks: the steady clock and the wall clock.
            limits: resource limits on what is kept and answered.
            archive: keeps runs outside the process; None: runs are kept in memory only.
            first_wait: seconds that a run's first prompt waits for the archive once it has been read.
        """
        self._clocks = clocks
        self._counter = counter
        self._requests = Requests()
        self._most_kept = 0
        """Bytes: the most that all runs kept when housekeeping looked, since their shared memory was last forgotten."""
        self._lane = Lane(perf_counter, thread_time)
        self.limits = limits.kept
        self._rules = rules
        self._keys = keys
        guard = rules.general.guard
        table = self.table = RunTable(keys, clocks.steady, limits, (guard.vault_bytes, guard.run_vault_bytes))
        self.stash = table.stash
        """The originals of all runs."""
        keeps_values = archive is not None and archive.keeps_values
        self.guarding = Guarding(rules, table.vault, table.bounds, keeps_values=keeps_values)
        self._calibration = Calibration(reached=table.bounds.add)
        self._meter = Meter(rules, table.bounds.add)
        self._turned_away = TurnedAway(kept=bool(limits.journal_entries))
        self._archive = archive
        self._shared_vault = SharedVault(table, archive, rules, keys)
        self._archiving = Archiving(table, archive, self._shared_vault, keys, first_wait, clocks)
        self._taught = TaughtWindows(table.bounds.add)
        self._trimming = Trimming(
            table, counter, self._calibration, self.guarding, self._archiving, self._meter, self._taught, keys, limits
        )
        self.recalling = Recalling(table, counter, self._archiving, self.guarding, self._lane, limits)

    # -- the call -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time by the clock that times to live use."""
        return self._clocks.steady()

    def pace(self, check: Callable[[], None]) -> Pace:
        """Return a call's pace, for its steps before and after `trim`; pass it to `trim` as `check`."""
        return Pace(check, self._lane)

    # -- trim --------------------------------------------------------------------------------------------------------

    def trim(self, call: TrimCall, check: Callable[[], None]) -> TrimAnswer:
        """Trim a prompt.

        Args:
            call: the prompt and how to trim it.
            check: called now and then before anything is changed; what it raises ends the call. May be the call's
                `Pace`, if that has begun before.

        Raises:
            InvalidRequest: the body, the policy or another field is wrong; the run is as it was.
            TooLarge: too many messages, or an answer larger than the caller accepts; the run is as it was.
            RevisionUnknown: `base_revision` is not a state of this run that this process knows.
            GuardRefused: it holds what a rule of the guard refuses; the run is as it was.
            CeilingReached: the prompt would pass a ceiling that refuses; the run is as it was.
        """
        format_ = FORMATS.get(call.format)
        if format_ is None:
            raise InvalidRequest(f"the format is not known; it may be one of {', '.join(FORMATS)}", field="json.format")
        policy = self._policy_of(call)
        key = self._archiving.key_of(call.caller, call.run_id, call.revision or call.base_revision)
        pace = check if isinstance(check, Pace) else self.pace(check)
        with pace, self.table.entered(call.caller, call.run_id, pace.holding, key) as run:
            self._archiving.begin(run)
            if run.torn:
                run.memory = run.memory.fresh()  # it caches a fold, which this prompt computes again
            # Held until the end of the call. The call may end for lack of memory, so nothing must be allocated then.
            run.torn = True
            try:
                answer = self._trimming.trim(run, call, policy, pace)
                run.torn = False
            except InvalidJson as error:
                run.torn = False
                self._refused(run, call, error)
                looks = likely_format(call.body, format_.name) if format_.is_json else ""
                if not looks:
                    raise
                hint = f"; the body looks like {looks.upper()}, and json.format says {format_.name.upper()}"
                raise InvalidJson(error.message + hint, field=error.field) from error
            except SidecarError as error:
                self._refused(run, call, error)
                run.torn = False  # these errors are raised before anything changes
                raise
            for reason, times in self._turned_away.take(run.name).items():
                run.journal.refused(reason, times)
        self._shared_vault.lend(run)
        self._archiving.settle(run)
        return answer

    def _refused(self, run: Run, call: TrimCall, error: SidecarError) -> None:
        """Record for people that a prompt was refused, also for a run about which nothing else is known."""
        if run.unused and not run.registered and not (call.dry_run or call.side_call):
            self._turned_away.add(
                run.name, run.journal_key, call.model or error.model, error.reason, self._clocks.steady()
            )
        else:
            run.journal.refused(error.reason)

    def _policy_of(self, call: TrimCall) -> Policy:
        rules = self._rules.of(call.caller)
        policy = rules.policy
        if call.preset:
            policy = preset(call.preset)
            if rules.overrides:
                policy = policy.override(rules.overrides)
        return policy.override(call.policy) if call.policy else policy

    # -- hidden turns ------------------------------------------------------------------------------------------------

    @property
    def shared(self) -> bool:
        """Whether runs are kept outside the process."""
        return self._archiving.enabled

    @contextmanager
    def awaiting(self, caller: str, run_id: str, revision: bytes, check: Callable[[], None]) -> Iterator[bytes | None]:
        """Have the archive asked for what a prompt needs that a door is about to make.

        The prompt is to be given to `trim` before this ends, with the `revision` that the agent has sent: until then
        the run is not forgotten, and what was asked for it is not asked again. Yields the run's hidden turns as the
        archive has them, if others have changed them; see `ArchivePlace.hidden`.
        """
        if not self.shared:
            yield None
            return
        run = self.table.begun(caller, run_id, self._archiving.key_of(caller, run_id, revision))
        try:
            with self.pace(check) as pace, pace.holding(run.lock):
                found = None if run.ended else self._archiving.hidden_turns(run)
            yield found
        finally:
            self.table.leave(run)

    def keep_hidden(
        self, caller: str, run_id: str, hidden: bytes, check: Callable[[], None] = never, *, at_once: bool
    ) -> None:
        """Give all hidden turns of a run that is known to the archive, in a form that doors alone read.

        `at_once`: an answer may wait for it; otherwise they go with what the next prompt brings.
        """
        run = self.table.known(caller, run_id)
        if run is None or not self.shared:
            return
        with self.pace(check) as pace, pace.holding(run.lock):
            if run.ended:
                return
            self._archiving.keep_hidden(run, hidden, at_once=at_once)
        if at_once:
            with suppress(StoreUnavailable):  # what the model said is with the agent already
                self._archiving.settle(run)

    # -- reports and masks -------------------------------------------------------------------------------------------

    def report_usage(self, call: UsageCall, check: Callable[[], None] = never) -> UsageAnswer:
        """Process a report on a prompt. Raises RunUnknown."""
        with Pace(check, self._lane) as pace:
            self._archiving.restore(call.caller, call.run_id, pace.holding)
            with self.table.seen(call.caller, call.run_id, pace.holding) as run:
                answer = run.usage.report(call, self._calibration, self._rules.money, self._taught)
                if answer.spent is not None and answer.outcome is not UsageOutcome.REPEATED:
                    run.spending = run.spending.plus(answer.spent)
                    if answer.spent.unpriced is None and run.spending.cut:
                        self.table.bounds.add(MODELS_BOUND)
                if answer.outcome is UsageOutcome.RECORDED:
                    self._meter.corrected(call.caller, run, answer.correction)
                if answer.outcome in {UsageOutcome.RECORDED, UsageOutcome.FAILED} and answer.recount is not None:
                    run.comparison = run.comparison.recounted(answer.recount)
                self._archiving.changed(run)
                return replace(answer, comparison=run.comparison)

    def mask(self, call: MaskCall, check: Callable[[], None] = never) -> MaskAnswer:
        """Mask the strings of a body that is not a prompt, by its caller's rules and with its run's masks.

        An unknown run does not begin by this call: it would get the same masks later, and no value is kept.

        Raises:
            GuardRefused: a rule finds something whose action is to refuse.
            InvalidJson: the body is neither JSON nor lines of JSON.
            TooLarge: decoding it would take too much memory for its size.
        """
        run = self.table.known(call.caller, call.run_id) if call.run_id else None
        with check if isinstance(check, Pace) else self.pace(check) as pace:
            if run is not None:
                with pace.holding(run.lock):
                    if not run.ended:
                        return self.guarding.mask(run, (run.key, *run.guard.other_keys), call, pace)
            return self.guarding.mask(None, self._keys.of_run(call.caller, call.run_id), call, pace)

    def restore(self, call: RestoreCall, check: Callable[[], None] = never) -> RestoreAnswer:
        """Replace masks in calls' arguments by their values, where the settings allow it.

        In a run that this process has not seen all masks are unknown, unless the archive keeps their values.
        """
        unavailable = False
        with Pace(check, self._lane) as pace:
            run = self.table.known(call.caller, call.run_id)
            done = self.guarding.restore(run, call)
            if call.may_wait and done.missing and self._shared_vault.enabled(call.caller):
                try:
                    self._archiving.restore(call.caller, call.run_id, pace.holding)
                    run = self.table.known(call.caller, call.run_id)
                    if run is not None:
                        self._archiving.place_of(run, pace.holding)
                        self._shared_vault.read(run, done.missing)
                except StoreUnavailable:
                    unavailable = True
                done = self.guarding.restore(run, call)
            if run is not None and done.filled:
                self._shared_vault.filled(run, done.filled)
            return RestoreAnswer(done.calls, unavailable and bool(done.missing))

    # -- runs --------------------------------------------------------------------------------------------------------

    def figures(self, caller: str, run_id: str, check: Callable[[], None] = never) -> RunFigures:
        """Return a run's figures. Raises RunUnknown."""
        with Pace(check, self._lane) as pace:
            self._archiving.restore(caller, run_id, pace.holding, tasks=True)
            with self.table.seen(caller, run_id, pace.holding) as run:
                return self._figures(run)

    def summaries(self, most: int) -> Sequence[RunSummary]:
        """Return summaries of the runs that this process saw last, the newest first."""
        ahead = self._clocks.ahead()
        known = [run.summary(ahead) for run in self.table.latest(most)]
        return sorted([*known, *self._turned_away.summaries(ahead)], key=attrgetter("last_seen"), reverse=True)[:most]

    def summaries_of(self, run_id: str, among: int, most: int) -> Sequence[RunSummary]:
        """Return summaries of the runs with this id, of any caller, `among` those seen last; the newest first."""
        ahead = self._clocks.ahead()
        same = (run for run in self.table.latest(among) if run.name[1] == run_id)
        refused = (run for run in self._turned_away.summaries(ahead) if run.run_id == run_id)
        return [*(run.summary(ahead) for run in islice(same, most)), *refused][:most]

    def journal(self, key: str, most: int) -> RunJournal | None:
        """Return the journal of the run with this key among those seen last, or None if it is not among them."""
        run = next((run for run in self.table.latest(most) if run.journal_key == key), None)
        ahead = self._clocks.ahead()
        if run is None:
            return self._turned_away.journal(key, ahead)
        return replace(run.journal.read(run.summary(ahead), ahead), requests=run.requests.figures())

    def handled(self, handled: Handled) -> None:
        """Count what was done about a request, whether or not this process has seen its run."""
        self._requests.add(handled)
        if handled.run_id and (run := self.table.known(handled.caller, handled.run_id)) is not None:
            run.requests.add(handled)

    def handled_by_door(self) -> Sequence[HandledCount]:
        """Return what was done about all requests, also those without a known run, by door; the most frequent first."""
        counted = self._requests.by_door().items()
        rows = [HandledCount(door.value, outcome, count, outcome in MISSED) for (door, outcome), count in counted]
        return sorted(rows, key=attrgetter("count"), reverse=True)

    def end(self, caller: str, run_id: str, check: Callable[[], None] = never) -> RunFigures | None:
        """Forget a run now. Returns its last figures, or None if it was not known."""
        with Pace(check, self._lane) as pace:
            self.table.ended(caller, run_id)  # first, as the archive may fail to answer
            self._archiving.restore(caller, run_id, pace.holding)
            return self._end(caller, run_id, pace)

    def end_all(self, caller: str, check: Callable[[], None] = never) -> int:
        """Forget all runs of a caller now, here and in the archive, and return their number.

        What `check` raises ends the call before all are forgotten; another call forgets the rest. Runs that begin
        meanwhile may stay.

        Raises:
            StoreUnavailable: the archive does not answer; the runs in this process are forgotten.
        """
        ended = 0
        with Pace(check, self._lane) as pace:
            for run_id in self.table.run_ids(caller):
                pace()
                ended += self._end(caller, run_id, pace) is not None
            self.table.ended(caller)
            return ended + self._archiving.end_all(caller, pace)

    def _end(self, caller: str, run_id: str, pace: Pace) -> RunFigures | None:
        run = self.table.known(caller, run_id)
        if run is None:
            return None
        with pace.holding(run.lock):
            if run.ended:
                return None
            run.ended = True  # from here on the run is not found any more; calls that wait for its lock begin a new one
            figures = self._figures(run)
            self._archiving.end(run)
            self.stash.forget(run.stash_key)
            self.table.remove(run)
        self.table.events.add(Event.TASK_UNFINISHED, len(figures.unfinished_tasks))
        run.free()
        return figures

    def _figures(self, run: Run) -> RunFigures:
        """Return a run's figures with its times by the wall clock."""
        place = run.archived.place
        return replace(
            run.figures(self._clocks.ahead()),
            ceilings=self._meter.uses(run),
            observed_only=self._rules.observe,
            store=place.figures() if place is not None else None,
        )

    def totals(self) -> Totals:
        """Return what all runs hold, and counts of events."""
        totals = self.table.totals()
        store = self._archive.totals() if self._archive is not None else None
        bounds = {**totals.bounds, **store.bounds} if store is not None else totals.bounds
        return replace(
            totals,
            draft_bytes=self._trimming.drafts.bytes,
            calibration_bytes=self._calibration.kept_bytes,
            observing=self._rules.observe,
            bounds=bounds,
            store=store,
        )

    def sweep(self) -> None:
        """A bounded slice of housekeeping: expired originals, compression, runs idle for twice the time to live."""
        self.table.sweep()
        self._most_kept = max(self._most_kept, self.table.kept_bytes())

    def forget_shared(self) -> bool:
        """Forget the shared caches of token counts and words, once most runs have ended. Returns whether it did.

        Both are small and are built again in milliseconds, but their memory lies between that of the runs, and the
        allocator returns only wholly unused blocks to the system.
        """
        kept = self.table.kept_bytes()
        if kept * OVER >= self._most_kept:
            return False
        self._most_kept = kept
        self._counter.forget()
        forget_words()
        return True

    def shed(self, size: int) -> None:
        """Free about `size` bytes when the process is near its memory limit: caches of runs first, then originals."""
        self.table.shed(size)

    def work_off(self) -> int:
        """Do a bounded slice of the background work that answers left: indexing, with its fetches, then compression.

        Returns the bytes processed; 0 if nothing waits.
        """
        return self.table.index_some() or self.stash.compress_some(COMPRESS_SLICE)

    def __len__(self) -> int:
        """Return the number of runs in memory."""
        return len(self.table)
