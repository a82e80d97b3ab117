"""The use cases: trim a prompt, recall what left it, keep tasks, tell a run's figures, end a run.

`Runs` holds every run that this process has seen, each with a lock of its own, and the stash that they share. It is
free of I/O: the clock, the key and the counter are passed in, requests and answers are the data of `facts/`.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Final

from prompt_sidecar.errors import CallCancelled, DeadlinePassed, InvalidJson, InvalidRequest, RunUnknown, SidecarError
from prompt_sidecar.facts.figures import RunFigures
from prompt_sidecar.facts.limits import Limits, RecallLimits
from prompt_sidecar.facts.recall_calls import RetrieveAnswer, RetrieveCall, SearchCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskItem, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import ToolAnswer, ToolCall, ToolDefinition
from prompt_sidecar.facts.totals import Event, Totals
from prompt_sidecar.facts.trim_calls import RevisionUse, TokenFigures, TrimAnswer, TrimCall
from prompt_sidecar.facts.usage_calls import UsageAnswer, UsageCall
from prompt_sidecar.prompt.format import Format, ReasoningRule, Stands
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.likeness import likely_format
from prompt_sidecar.prompt.provider_edits import edits_of_provider
from prompt_sidecar.recall.found import Found, SearchLimits
from prompt_sidecar.recall.stash import Stash
from prompt_sidecar.runs.drafts import Drafts
from prompt_sidecar.runs.pace import Lane, Pace
from prompt_sidecar.runs.recalling import UNKNOWN_RUN, Recalling
from prompt_sidecar.runs.reported_usage import InForce, Returned, told_cache, told_figures, told_tokens
from prompt_sidecar.runs.run import Run
from prompt_sidecar.runs.run_store import LaterStore, RunStore
from prompt_sidecar.runs.side_call import trim_slice
from prompt_sidecar.runs.single import Single, body_of, trim_single
from prompt_sidecar.runs.splitting import Arrived, arrived
from prompt_sidecar.runs.stopwatch import Stopwatch
from prompt_sidecar.runs.table import RunTable
from prompt_sidecar.tokens import Counter, encoding_for
from prompt_sidecar.tokens.calibration import Calibration, Factors
from prompt_sidecar.tokens.models import first_factor
from prompt_sidecar.tools.definitions import definitions
from prompt_sidecar.tools.tasks import open_lines
from prompt_sidecar.trim.own_text import Told
from prompt_sidecar.trim.policy import Policy, preset
from prompt_sidecar.trim.repeated_calls import MOST_TOLD
from prompt_sidecar.trim.revision import DIRECTIVES, Revision, run_digest, seal, unseal
from prompt_sidecar.trim.stages import Inputs
from prompt_sidecar.turn.answer import answer_of, check_size, most_bytes
from prompt_sidecar.turn.in_force import check_annotations, limit_of, model_of, overhead_of, window_assumed
from prompt_sidecar.turn.memory import Memory
from prompt_sidecar.turn.own_state import directive_identities
from prompt_sidecar.turn.received import Draft, Read, read
from prompt_sidecar.turn.work import Served, Work

ACCEPT_BYTES: Final = 4_194_304
"""Bytes that a gRPC client receives by default."""
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
            wall: seconds since the epoch, only for figures that are told; None: `clock` gives them.
        """
        self._key_lasts = key_lasts
        self._counter = counter
        self._clock, self._wall = clock, wall or clock
        self._lane = Lane(perf_counter)
        self._policy = policy
        self._limits = limits
        self._key = key
        self._overrides = dict(preset_overrides or {})
        search, recall = search or SearchLimits(), recall or RecallLimits()
        self._table = RunTable(key, clock, limits, search=search, recall=recall)
        self._drafts = Drafts(self._table.bounds)
        self._calibration = Calibration(reached=self._table.bounds.add)
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
                run.memory = run.new_memory()  # it caches a fold: this prompt makes it again
            # Until the call is through. What stops it may be a lack of memory, so nothing must be made when it does.
            run.torn = True
            try:
                if format_.single:
                    answer = self._trim_single(run, call, format_, policy, pace)
                else:
                    answer = self._trim(run, call, format_, policy, pace)
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

    def _trim(  # noqa: PLR0915 - the way of one prompt, step by step
        self, run: Run, call: TrimCall, format_: Format, policy: Policy, check: Callable[[], None]
    ) -> TrimAnswer:
        watch = Stopwatch(self._counter)
        came = arrived(
            run,
            call,
            format_,
            self._key,
            most_messages=self._limits.run_messages,
            binding=policy.reasoning_binding,
        )
        body, format_, memory = came.body, came.format, came.memory
        edited = () if policy.trim_beside_provider else edits_of_provider(body)
        policy = policy.beside(edited)
        revision, use = self._revision(run, call, len(memory.ledger), bound=format_.reasoning is ReasoningRule.BOUND)
        if not len(memory.ledger):
            memory.own.recognise([*directive_identities(format_), *(revision.own if revision is not None else ())])
        model = model_of(call, body)
        encoding, exact = encoding_for(model)
        count = watch.counting(encoding, check)
        count_many = watch.counting_many(encoding, check)
        draft, run.draft = run.draft, None
        reads: list[Read] = []
        try:
            read(
                body,
                memory.received,
                format_,
                count_many,
                check,
                most_items=self._limits.run_items,
                draft=draft if draft is not None and draft.format == format_.name else None,
                reads=reads,
            )
        except (DeadlinePassed, CallCancelled):
            self._keep_draft(run, call, Draft(format_.name, body, reads))
            raise
        check_annotations(call, len(body))
        limit, reserve = limit_of(call, body, format_, model, self._limits.default_window)
        factors = self._factors(run, call, model)
        factor = factors.text
        in_force = run.usage.in_force(limit, factor)
        overhead = overhead_of(body, reads, memory, format_, count)
        room = memory.room(encoding, in_force.raw, policy, count)
        inputs = Inputs(
            policy,
            in_force.raw,
            overhead,
            room.total,
            not call.recall_unavailable,
            reasoning=policy.reasoning_rule(format_.reasoning, edited),
            reasoning_messages=format_.reasoning_messages,
            own_in_history=format_.placement.lists is Stands.INSIDE,
            opaque_factor=factors.opaque / factors.text,
        )
        check()
        count = watch.counting(encoding)  # from here on the run changes, so the call may end only where `take` asks
        if call.side_call:
            sliced = trim_slice(
                memory, body, reads, format_, inputs=inputs, encoding=encoding, exact=exact, as_edits=call.edits
            )
            return replace(sliced, tokens=_figures(sliced.tokens, in_force, factor, call, model), model=model)
        watch.mark()
        told = Told(open_lines(run.tasks.items, room.note // 2, count), run.history.figures().first_iteration)
        work = Work(
            format_,
            body,
            reads,
            inputs,
            room,
            call.pinned,
            call.annotations,
            revision,
            watch.counting_many(encoding),
            told,
            served=self._served(run, call, came, revision),
            check=check,
            since=run.told_iteration if memory is run.memory else 0,
        )
        accept = call.accept_bytes or ACCEPT_BYTES
        # A call whose answer may turn out too large, or that is only asked what it would do, works on a copy.
        copied = call.dry_run or most_bytes(body, memory) > accept
        target = copy.deepcopy(memory) if copied else memory
        store = (LaterStore if copied else RunStore)(self._table.stash, run, call.caller)
        try:
            result = target.take(work, count, store)
        except (DeadlinePassed, CallCancelled):
            if not call.dry_run:
                if isinstance(store, LaterStore):
                    store.commit()
                run.memory, run.form = target, format_
                self._keep_draft(run, call, Draft(format_.name, body, reads))
            raise
        watch.mark()
        if result.revision_applied is False:
            use = RevisionUse.MISMATCHED
        answer = answer_of(
            work,
            target,
            result,
            use,
            encoding,
            exact=exact,
            as_edits=call.edits,
            revision=self._seal(run, target, factors, bound=format_.reasoning is ReasoningRule.BOUND),
        )
        watch.mark()
        size = result.size
        assert size is not None
        raw, kept = answer.tokens.after, answer.cache.kept
        tokens = _figures(answer.tokens, in_force, factor, call, model)
        answer = replace(
            answer,
            tokens=tokens,
            cache=told_cache(answer.cache, tokens),
            # A factor of one leaves every figure as it is.
            size=size if factor == 1 else size.scaled(partial(told_tokens, factor=factor)),
            phases=watch.phases(),
            crossed=run.marks.crossing(size, in_force.raw),
            repeated=result.repetitions[-MOST_TOLD:],
            model=model,
            provider_edits=edits_of_provider(body),
        )
        if call.dry_run:
            return answer
        if copied:
            check_size(answer, accept)
            assert isinstance(store, LaterStore)
            store.commit()
        run.memory, run.form = target, format_
        run.carried_factors = model, factors
        run.marks.announce(size, in_force.raw)
        run.size = answer.size
        run.usage.prompt_returned(
            Returned(
                model=model,
                format=call.format,
                tokens=raw,
                kept=kept,
                factor=factor,
                opaque=result.opaque,
                opaque_factor=factors.opaque,
                limit=limit,
                reserve=reserve,
                media=bool(target.ledger.media),
                exact=exact,
                revision=answer.revision,
            )
        )
        self._remember(run, call, answer)
        return answer

    def _trim_single(
        self, run: Run, call: TrimCall, format_: Format, policy: Policy, check: Callable[[], None]
    ) -> TrimAnswer:
        """Cap a result that stands on its own; of the run only what it keeps and records changes."""
        watch = Stopwatch(self._counter)
        body = body_of(call)
        check_annotations(call, len(body))
        limit, _ = limit_of(call, body, format_, call.model, self._limits.default_window)
        factor = self._factors(run, call, call.model).text
        in_force = run.usage.in_force(limit, factor)
        single = Single(call, format_, policy, in_force.raw, call.accept_bytes or ACCEPT_BYTES)
        answer = trim_single(run, single, body, self._table.stash, watch, check=check)
        if not (call.dry_run or call.side_call):
            run.calls += 1
            self._table.keep(call.caller, call.run_id, run)
        return replace(answer, tokens=_figures(answer.tokens, in_force, factor, call, call.model), model=call.model)

    def _factors(self, run: Run, call: TrimCall, model: str) -> Factors:
        """The factors of caller, model and format; before any report the run's last.

        Another model without a public vocabulary is likelier to count as the last one did than as we do.
        """
        if self._calibration.reports(call.caller, model, call.format):
            return self._calibration.factors(call.caller, model, call.format)
        if run.carried_factors is not None:
            of_model, factors = run.carried_factors
            if of_model in ("", model) or not encoding_for(model)[1]:
                return factors
        return Factors(first_factor(model))

    def _opened(self, run: Run, sealed: bytes) -> Revision | None:
        """A revision of this run; None if there is none, or it is of another run, another key or another version."""
        revision = unseal(self._key, sealed) if sealed else None
        return revision if revision is not None and revision.run == run_digest(run.key) else None

    def _served(self, run: Run, call: TrimCall, came: Arrived, revision: Revision | None) -> Served | None:
        """Which of the model's words came of prompts that the sidecar returned; None: all, as far as can be known."""
        if came.format.reasoning is not ReasoningRule.BOUND:
            return None
        if call.served_iterations is not None:
            return Served(iterations=call.served_iterations)
        sent = call.revision or call.base_revision
        if sent:
            return Served(revision=revision if revision is not None else self._opened(run, sent))
        # What another process returned is known by a key that both have; in another format it was another prompt.
        anew = came.memory is not run.memory and len(run.memory.ledger) > 0
        return Served(iterations=0) if anew or not (run.calls or self._key_lasts) else None

    def _revision(self, run: Run, call: TrimCall, known: int, *, bound: bool) -> tuple[Revision | None, RevisionUse]:
        if not call.revision:
            return None, RevisionUse.NONE
        if known:
            return None, RevisionUse.NOT_NEEDED
        revision = self._opened(run, call.revision)
        if revision is None or revision.bound != bound:
            return None, RevisionUse.MISMATCHED
        run.carried_factors = "", Factors(revision.factor, revision.opaque_factor)
        run.usage.carry(revision.learned_limit)
        return revision, RevisionUse.APPLIED

    def _seal(self, run: Run, memory: Memory, factors: Factors, *, bound: bool) -> bytes:
        state = memory.packed
        if len(state) > self._limits.revision_bytes:
            state = b""
            self._table.bounds.add("limits.revision_bytes")
        ledger, own = memory.ledger, memory.own
        return seal(
            self._key,
            Revision(
                run=run_digest(run.key),
                length=len(ledger),
                chain=ledger.chain,
                own=own.identities(),
                state=state,
                directives=DIRECTIVES.index(own.directives),
                registry_room=own.registry_room,
                closing_room=own.closing_room,
                factor=factors.text,
                opaque_factor=factors.opaque,
                bound=bound,
                learned_limit=run.usage.learned_limit,
            ),
        )

    def _remember(self, run: Run, call: TrimCall, answer: TrimAnswer) -> None:
        """The call has come to an answer: sum it up, and see that the run is known and not one too many."""
        run.calls += 1
        self._table.keep(call.caller, call.run_id, run)
        run.sum_up(answer)
        received = run.memory.received
        if received is not None and received.whole[-1] == len(run.memory.ledger):
            self.stash.received(run.stash_key)  # every original has come again

    def _keep_draft(self, run: Run, call: TrimCall, draft: Draft) -> None:
        """A call had to end: keep what it has done, so that its retry goes on from there."""
        if draft.worth_keeping:
            self._drafts.keep(run, draft)
        if not run.unused:
            self._table.keep(call.caller, call.run_id, run)

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
            return self._told(run, run_id)

    def end(self, caller: str, run_id: str, check: Callable[[], None] = _never) -> RunFigures | None:
        """Forget a run now; its last figures, or None if it was not known."""
        run = self._table.known(caller, run_id)
        if run is None:
            return None
        with Pace(check, self._lane) as pace, pace.holding(run.lock):
            if run.ended:
                return None
            run.ended = True  # from here on nobody finds it; calls that wait for its lock begin a new one
            figures = self._told(run, run_id)
            self.stash.forget(run.stash_key)
            self._table.remove(caller, run_id, run)
        self._table.events.add(Event.TASK_UNFINISHED, len(figures.unfinished_tasks))
        return figures

    def _told(self, run: Run, run_id: str) -> RunFigures:
        """A run's figures with its times as a reader's watch has them."""
        ahead = self._wall() - self._clock()
        figures = run.figures(run_id)
        return replace(figures, started=figures.started + ahead, last_seen=figures.last_seen + ahead)

    def totals(self) -> Totals:
        """What all runs hold, and what happened to them."""
        return replace(
            self._table.totals(), draft_bytes=self._drafts.bytes, calibration_bytes=self._calibration.kept_bytes
        )

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


def _figures(tokens: TokenFigures, in_force: InForce, factor: float, call: TrimCall, model: str) -> TokenFigures:
    told = told_figures(tokens, in_force, factor)
    return replace(told, window_assumed=True) if window_assumed(call, model) else told
