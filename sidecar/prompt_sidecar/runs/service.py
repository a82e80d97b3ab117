"""The use cases: trim a prompt, recall what left it, keep tasks, report a run's figures, end a run.

`Runs` holds every run that this process has seen, each with a lock of its own, and the stash that they share. It is
free of I/O: the clock, the key and the counter are passed in, requests and answers are the data of `facts/`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Final

from prompt_sidecar.errors import InvalidJson, InvalidRequest, RunUnknown, SidecarError
from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.facts.recall_calls import RetrieveAnswer, RetrieveCall, SearchCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskItem, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall, ToolDefinition
from prompt_sidecar.facts.totals import Event, Totals
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.likeness import likely_format
from prompt_sidecar.recall.found import Found, SearchLimits
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.runs.pace import Lane, Pace
from prompt_sidecar.runs.recalling import UNKNOWN_RUN, Recalling
from prompt_sidecar.runs.run import Run
from prompt_sidecar.runs.table import RunTable
from prompt_sidecar.runs.trimming import Trimming
from prompt_sidecar.tokens import Counter
from prompt_sidecar.tokens.calibration import Calibration
from prompt_sidecar.tools.definitions import definitions
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset

COMPRESS_SLICE: Final = 65_536
"""Bytes that a slice of background work compresses: a quarter of a millisecond."""
NONCE_DIGITS: Final = 6
"""Digits of a fence's nonce: two tokens. Who writes the quoted text cannot know it, as it is drawn later."""


def _never() -> None:
    """Nobody stops the call."""


class Runs:
    """All runs that this process has seen. Thread-safe."""

    def __init__(
        self,
        *,
        counter: Counter,
        policy: Policy,
        limits: Limits,
        key: bytes,
        clock: Callable[[], float],
        preset_overrides: Mapping[str, object] | None = None,
        search: SearchLimits | None = None,
        recall: RecallLimits | None = None,
        nonce: Callable[[], str] | None = None,
        key_lasts: bool = True,
        wall: Callable[[], float] | None = None,
    ) -> None:
        """Take what the use cases need.

        Args:
            counter: counts tokens.
            policy: the configured policy, for requests that name no preset.
            limits: bounds of what is kept.
            key: mints ids and signs revisions; the same key in every process gives the same ids.
            clock: seconds that never step and go on while the machine sleeps: times to live are counted by it.
            preset_overrides: configured policy fields, which hold for a preset that a request names too.
            search: bounds of a search.
            recall: bounds of recall by the model.
            nonce: gives the random part of a fence; None: the system's randomness.
            key_lasts: whether another process may have had the key, as one that is configured; not a random one.
            wall: seconds since the epoch, only for the figures of runs; None: `clock` gives them.
        """
        self._clock, self._wall = clock, wall or clock
        self._lane = Lane(perf_counter)
        self._policy = policy
        self._limits = limits
        self._overrides = dict(preset_overrides or {})
        search, recall = search or SearchLimits(), recall or RecallLimits()
        self._table = RunTable(key, clock, limits, search=search, recall=recall)
        self._calibration = Calibration(reached=self._table.bounds.add)
        self._trimming = Trimming(self._table, counter, self._calibration, key=key, key_lasts=key_lasts, limits=limits)
        self._recalling = Recalling(self._table, counter, nonce or _nonce, search=search, recall=recall)

    @property
    def limits(self) -> Limits:
        """The bounds of what is kept."""
        return self._limits

    @property
    def stash(self) -> Stash:
        """The originals of all runs."""
        return self._table.stash

    # -- trim --------------------------------------------------------------------------------------------------------

    def trim(self, call: TrimCall, check: Callable[[], None]) -> TrimAnswer:
        """Trim a prompt.

        Args:
            call: the prompt and how to trim it.
            check: called now and then before anything is changed; what it raises ends the call.

        Raises:
            InvalidRequest: the body, the policy or another field is wrong; the run is as it was.
            TooLarge: too many messages, or an answer larger than the caller accepts; the run is as it was.
            RevisionUnknown: `base_revision` is not a state of this run that this process knows.
        """
        format_ = FORMATS.get(call.format)
        if format_ is None:
            raise InvalidRequest(f"the format is not known; it may be one of {', '.join(FORMATS)}", field="json.format")
        policy = self._policy_of(call)
        with Pace(check, self._lane) as pace, self._table.entered(call.caller, call.run_id, pace.holding) as run:
            if run.torn:
                run.memory = run.memory.fresh()  # it caches a fold: this prompt makes it again
            # Until the call is through. What stops it may be a lack of memory, so nothing must be made when it does.
            run.torn = True
            try:
                answer = self._trimming.trim(run, call, policy, pace)
                run.torn = False
            except InvalidJson as error:
                run.torn = False
                looks = likely_format(call.body, format_.name) if format_.is_json else ""
                if not looks:
                    raise
                hint = f"; the body looks like {looks.upper()}, and json.format says {format_.name.upper()}"
                raise InvalidJson(error.message + hint, field=error.field) from error
            except SidecarError:
                run.torn = False  # such errors are raised before anything changes
                raise
            return answer

    def _policy_of(self, call: TrimCall) -> Policy:
        policy = self._policy
        if call.preset:
            policy = preset(call.preset)
            if self._overrides:
                policy = policy.override(self._overrides)
        return policy.override(call.policy) if call.policy else policy

    # -- recall ------------------------------------------------------------------------------------------------------

    def retrieve(
        self,
        call: RetrieveCall,
        check: Callable[[], None] = _never,
        reserve: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> RetrieveAnswer:
        """Fetch an original, or say why there is none.

        Args:
            call: which, and what of it.
            check: called between the steps of a search in it; what it raises ends the call.
            reserve: holds memory for the original while it is read.

        Raises:
            InvalidRequest: the selection, the offset or the page is wrong.
            TooLarge: there is no memory for the original now.
        """
        with Pace(check, self._lane, reserve) as pace:
            return self._recalling.retrieve(call, pace)

    def search(self, call: SearchCall, check: Callable[[], None]) -> Found:
        """Search a run's history. What waits to be indexed is indexed first; `check` is called in between.

        Raises:
            InvalidRequest: the query or a bound is wrong.
        """
        with Pace(check, self._lane) as pace:
            return self._recalling.search(call, pace)

    def create_tasks(self, call: CreateTasksCall, check: Callable[[], None] = _never) -> Sequence[TaskItem]:
        """Write down tasks; all that there are now. A run that has not been seen begins.

        Raises:
            InvalidRequest: a task is empty or too long, or there are too many; nothing has changed.
        """
        with Pace(check, self._lane) as pace:
            return self._recalling.create_tasks(call, pace)

    def update_task(self, call: UpdateTaskCall, check: Callable[[], None] = _never) -> Sequence[TaskItem]:
        """Say where a task stands; all tasks.

        Raises:
            InvalidRequest: there is no such task.
            RunUnknown: this process has not seen the run.
        """
        with Pace(check, self._lane) as pace:
            return self._recalling.update_task(call, pace)

    def list_tasks(self, caller: str, run_id: str, check: Callable[[], None] = _never) -> Sequence[TaskItem]:
        """All tasks of a run. Raises RunUnknown."""
        with Pace(check, self._lane) as pace:
            return self._recalling.list_tasks(caller, run_id, pace)

    def list_tools(self, format_name: str, names: Collection[str] = ()) -> Sequence[ToolDefinition]:
        """The model's tools as definitions in a format; an empty name: plain.

        Raises:
            InvalidRequest: the format or a name is not known.
        """
        return definitions(format_name, names)

    def call_tool(
        self,
        call: ToolCall,
        check: Callable[[], None],
        reserve: Callable[[int], AbstractContextManager[object]] = nullcontext,
    ) -> ToolAnswer:
        """Run one of the model's tools; see `retrieve` on `check` and `reserve`.

        What the model did wrong is answered, never raised.
        """
        with Pace(check, self._lane, reserve) as pace:
            return self._recalling.call_tool(call, pace)

    def report_usage(self, call: UsageCall, check: Callable[[], None] = _never) -> UsageAnswer:
        """Take a report on a prompt. Raises RunUnknown."""
        run = self._table.known(call.caller, call.run_id)
        if run is None:
            raise RunUnknown(UNKNOWN_RUN, field="run_id")
        with Pace(check, self._lane) as pace, pace.holding(run.lock):
            return run.usage.report(call, self._calibration)

    # -- runs --------------------------------------------------------------------------------------------------------

    def figures(self, caller: str, run_id: str, check: Callable[[], None] = _never) -> RunFigures:
        """A run's figures. Raises RunUnknown."""
        run = self._table.known(caller, run_id)
        if run is None:
            raise RunUnknown(UNKNOWN_RUN, field="run_id")
        with Pace(check, self._lane) as pace, pace.holding(run.lock):
            return self._figures(run, run_id)

    def end(self, caller: str, run_id: str, check: Callable[[], None] = _never) -> RunFigures | None:
        """Forget a run now; its last figures, or None if it was not known."""
        run = self._table.known(caller, run_id)
        if run is None:
            return None
        with Pace(check, self._lane) as pace, pace.holding(run.lock):
            if run.ended:
                return None
            run.ended = True  # from here on nobody finds it; calls that wait for its lock begin a new one
            figures = self._figures(run, run_id)
            self.stash.forget(run.stash_key)
            self._table.remove(caller, run_id, run)
        self._table.events.add(Event.TASK_UNFINISHED, len(figures.unfinished_tasks))
        return figures

    def _figures(self, run: Run, run_id: str) -> RunFigures:
        """A run's figures with its times as a reader's watch has them."""
        ahead = self._wall() - self._clock()
        figures = run.figures(run_id)
        return replace(figures, started=figures.started + ahead, last_seen=figures.last_seen + ahead)

    def totals(self) -> Totals:
        """What all runs hold, and what happened to them."""
        drafts, calibration = self._trimming.drafts.bytes, self._calibration.kept_bytes
        return replace(self._table.totals(), draft_bytes=drafts, calibration_bytes=calibration)

    def sweep(self) -> None:
        """A bounded slice of housekeeping: expired originals, compression, runs idle for twice the time to live."""
        self._table.sweep()

    def work_off(self) -> int:
        """A bounded slice of what answers left to be done: indexing, then compression. Bytes done; 0: nothing waits."""
        return self._table.index_some() or self.stash.compress_some(COMPRESS_SLICE)

    def __len__(self) -> int:
        """Runs remembered."""
        return len(self._table)


def _nonce() -> str:
    return f"{secrets.randbelow(10**NONCE_DIGITS):0{NONCE_DIGITS}}"
