"""Trimming: a prompt is opened, taken through its run, and answered with figures in the provider's tokens.

Up to the point where the prompt is taken nothing of its run has changed. A call whose answer may turn out too large, or
that is only asked what it would do, works on a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Final

from prompt_sidecar.engine.runs.archiving import Archiving
from prompt_sidecar.engine.runs.comparing import FAILED, Extent, Sides, estimated
from prompt_sidecar.engine.runs.drafts import Drafts
from prompt_sidecar.engine.runs.guarding import Guarding
from prompt_sidecar.engine.runs.metering import Meter, MeteredPrompt, carried
from prompt_sidecar.engine.runs.reported_usage import SentTokens
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.run_store import RunStore
from prompt_sidecar.engine.runs.single import trim_single
from prompt_sidecar.engine.runs.stopwatch import Stopwatch
from prompt_sidecar.engine.runs.table import RunTable
from prompt_sidecar.engine.runs.taught_windows import TaughtWindows
from prompt_sidecar.engine.runs.unanswered import unanswered_calls
from prompt_sidecar.engine.steps.ahead import OWN_CALL, Standing, others_may_have_answered
from prompt_sidecar.engine.steps.answer import answer_of, as_sent, calibrated, check_size, most_bytes
from prompt_sidecar.engine.steps.opening import (
    OpenedPrompt,
    Opener,
    PromptWork,
    Served,
    inputs_of,
    naming,
    numbered_as_begun,
    with_window,
)
from prompt_sidecar.engine.steps.own_state import constant_identities
from prompt_sidecar.engine.steps.received import Draft, Pass
from prompt_sidecar.engine.steps.side_call import trim_slice
from prompt_sidecar.engine.steps.turn import Result, take
from prompt_sidecar.engine.steps.windows import BOUND as MODELS_BOUND
from prompt_sidecar.engine.steps.windows import Window
from prompt_sidecar.engine.tools.tasks import open_lines
from prompt_sidecar.errors import CallCancelled, DeadlinePassed, SidecarError
from prompt_sidecar.facts.comparison import Recount
from prompt_sidecar.facts.guard_calls import Finding
from prompt_sidecar.facts.limits import CoreLimits
from prompt_sidecar.facts.trim_calls import CacheBreak, GuardFacts, RevisionUse, Savings, TrimAnswer, TrimCall
from prompt_sidecar.guard.ceilings import NOTHING, CeilingUsage
from prompt_sidecar.guard.masking import Masker
from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.providers.models import first_factor
from prompt_sidecar.tokens import Counter
from prompt_sidecar.tokens.calibration import Calibration, Factors, InForce, calibrated_tokens
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.own_text import NoteFacts, Room
from prompt_sidecar.trim.policy import NO_CEILING, Policy
from prompt_sidecar.trim.revision import DIRECTIVES, WINDOWED, Revision, run_digest, seal

CEILING: Final = "ceiling_tokens"
ACCEPT_BYTES: Final = 4_194_304
"""Bytes that a gRPC client receives by default."""
_TOKENS: Final = attrgetter("tokens")
_OPAQUE: Final = attrgetter("opaque")


@dataclass(frozen=True, slots=True)
class _EnteredPrompt:
    """An opened prompt, with what is in force for it in its run."""

    opened: OpenedPrompt
    inputs: Inputs
    room: Room
    factors: Factors
    in_force: InForce
    revision: Revision | None
    use: RevisionUse
    """How the revision that was sent is used, as far as is known before the prompt is taken."""


@dataclass(frozen=True, slots=True)
class _TakenPrompt:
    """A prompt that was taken through its run or a copy of it, and counted for its ceilings."""

    entered: _EnteredPrompt
    work: PromptWork
    copied: bool
    store: RunStore
    result: Result
    metered: MeteredPrompt
    tokens: int
    """Raw tokens of the prompt that the model gets."""
    before: SentTokens | None
    """The previous prompt, if this is the same one sent again and no counts were reported for it."""
    failed: bool
    """Whether the provider of `before` failed."""


class Trimming:
    """The use case of trimming, on a table of runs. A run is used under its lock."""

    def __init__(  # noqa: PLR0917 - the parts that it works with
        self,
        table: RunTable,
        counter: Counter,
        calibration: Calibration,
        guarding: Guarding,
        archiving: Archiving,
        meter: Meter,
        taught: TaughtWindows,
        keys: Keys,
        limits: CoreLimits,
    ) -> None:
        """Take the components that open, count and meter prompts."""
        self._taught = taught
        self._meter = meter
        self._table = table
        self._counter = counter
        self._calibration = calibration
        self._guarding = guarding
        self._archiving = archiving
        self._opener = Opener(keys, limits.kept, limits.models)
        self._keys = keys
        self._limits = limits.kept
        self._models = limits.models
        self.drafts = Drafts(table.bounds)

    def trim(self, run: Run, call: TrimCall, policy: Policy, check: Callable[[], None]) -> TrimAnswer:
        """See `Runs.trim`."""
        masker = self._guarding.masker(run, call.caller, partial(self._opener.was_masked, call, run.memory))
        try:
            answer = self._trim(run, call, policy, masker, check)
        except (DeadlinePassed, CallCancelled):
            raise  # the partial result is kept
        except SidecarError:
            if masker is not None:
                masker.take_back()
            raise
        if call.dry_run and masker is not None:
            masker.take_back()
        return answer

    def _trim(
        self, run: Run, call: TrimCall, policy: Policy, masker: Masker | None, check: Callable[[], None]
    ) -> TrimAnswer:
        """Open ─► enter ─► take ─► answer ─► compare ─► keep: each step takes what the one before has found."""
        watch = Stopwatch(self._counter)
        by = Pass(partial(watch.counting_many, check=check), check, partial(self._keep_draft, run), run.draft, masker)
        opened = self._opener.open(call, run.memory, policy, by, partial(self._window, run, call.caller))
        if opened.format.single:
            return self._trim_single(run, opened, watch)
        run.draft = None
        entered = self._enter(run, opened, watch, check)
        opened = entered.opened
        if call.side_call:
            answer = calibrated(trim_slice(opened, entered.inputs), entered.in_force, entered.factors.text)
            return as_sent(answer, opened) if self._meter.rules.observe else answer
        with naming(opened.model.name):
            metered = self._meter.begin(run, opened, self._carried(run, opened, entered.revision), _most(entered))
        try:
            taken = self._take(run, entered, metered, watch, check)
            answer = self._answer(run, taken, watch)
            if call.dry_run:
                return answer
            sides = _sides(taken, answer) if taken.before is None else taken.before.sides
            answer = replace(answer, savings=_savings(run, taken, sides))
            self._keep(run, taken, answer, sides)
            return answer
        finally:
            self._meter.end(metered)

    def _enter(self, run: Run, opened: OpenedPrompt, watch: Stopwatch, check: Callable[[], None]) -> _EnteredPrompt:
        """Find what is in force for a prompt: the revision to continue from, factors, limit, room for our text."""
        revision, use = self._revision(run, opened)
        if revision is not None and len(opened.memory.ledger):
            opened = replace(opened, memory=opened.memory.without_decisions())
        if not len(opened.memory.ledger):
            opened = numbered_as_begun(opened, revision)
        opened = with_window(opened, self._window(run, opened.call.caller, opened.model.name))
        if run.windows.ceiling is not None and CEILING not in opened.call.policy:
            opened = replace(opened, policy=replace(opened.policy, ceiling_tokens=run.windows.ceiling))
        own = opened.memory.own
        if not len(opened.memory.ledger):
            own.recognise(constant_identities(opened.format))
            if revision is not None:
                own.recognise_sealed(run.key, revision.own)
        factors = self._factors(run, opened)
        in_force = run.usage.in_force(opened.model.limit, factors.text)
        began_under = opened.memory.began_under if revision is None else revision.began_under
        counting = watch.counting(opened.model.encoding, check)
        first = first_factor(self._models.alike(opened.model.name))
        inputs, room = inputs_of(opened, in_force.raw, factors, counting, first=first, began_under=began_under)
        check()
        return _EnteredPrompt(opened, inputs, room, factors, in_force, revision, use)

    def _take(
        self, run: Run, entered: _EnteredPrompt, metered: MeteredPrompt, watch: Stopwatch, check: Callable[[], None]
    ) -> _TakenPrompt:
        """Take a prompt through its run, on a copy where it may change nothing yet. Raises CeilingReached."""
        watch.mark()
        # From here on the run changes, so the call may end only where `take` checks.
        opened, room = entered.opened, entered.room
        call, encoding = opened.call, opened.model.encoding
        count = watch.counting(encoding)
        self._archiving.read_tasks(run)
        copied = call.dry_run or metered.on_copy or most_bytes(opened) > _accepted(call)
        work = PromptWork(
            replace(opened, memory=opened.memory.copy()) if copied else opened,
            entered.inputs,
            room,
            NoteFacts(
                open_lines(run.tasks.items, room.note // 2, count),
                run.history.figures().first_iteration,
                self._meter.left(metered),
            ),
            count,
            watch.counting_many(encoding),
            entered.revision,
            self._served(run, opened),
            check,
            since=run.answered_iteration if opened.continues else 0,
        )
        store = RunStore(self._table.stash, run, call.caller, later=copied)
        try:
            result = take(work, store)
        except (DeadlinePassed, CallCancelled):
            if not (call.dry_run or metered.on_copy):
                store.commit()
                run.memory = work.opened.memory
                self._keep_window(run, work.opened)  # by which the prompt was trimmed
                self._keep_draft(run, Draft(opened.format, opened.body, opened.reads, opened.guard.done))
                self._archiving.answered(run, None)
            raise
        tokens = result.tokens.before if self._meter.rules.observe else result.tokens.after
        self._meter.settle(metered, run, work.opened, result, tokens, entered.factors)
        watch.mark()
        before = run.usage.unanswered if result.same else None
        failed = before is not None and run.usage.last_failed
        return _TakenPrompt(entered, work, copied, store, result, metered, tokens, before, failed)

    def _answer(self, run: Run, taken: _TakenPrompt, watch: Stopwatch) -> TrimAnswer:
        """Return the agent's answer, with figures in the provider's tokens."""
        work, result, entered, metered = taken.work, taken.result, taken.entered, taken.metered
        opened, use, in_force = work.opened, entered.use, entered.in_force
        caller = opened.call.caller
        findings = [*self._guarding.findings(run, opened, opened.call), *_unanswered(run, opened)]
        if result.revision_applied is False:
            use = RevisionUse.MISMATCHED if opened.call.revision else RevisionUse.NONE
        revision = self._seal(run, opened, entered.factors, metered.carried)
        follows = run.usage.returned_last(opened.call.base_revision)
        raw = answer_of(work, result, use, revision, run_key=run.key, follows=follows)
        watch.mark()
        answer = replace(
            calibrated(raw, in_force, entered.factors.text),
            phases=watch.phases(),
            news=replace(result.news, crossed=run.marks.crossing(result.size, in_force.raw)),
            guard=GuardFacts(
                findings=findings,
                restorable=self._guarding.restores(run, caller),
                ceilings=metered.uses,
                priced=metered.price is not None or not self._meter.prices(caller),
            ),
        )
        return as_sent(answer, entered.opened) if self._meter.rules.observe else answer

    def _keep(self, run: Run, taken: _TakenPrompt, answer: TrimAnswer, sides: Sides | None) -> None:
        """Add an answered call to its run, register the run, and keep the number of runs within the limit."""
        entered, opened, result, metered = taken.entered, taken.work.opened, taken.result, taken.metered
        if taken.copied:
            check_size(answer, _accepted(opened.call))
        taken.store.commit()
        memory = run.memory = opened.memory
        self._keep_window(run, opened)
        self._meter.answered(metered, run)
        model, factors, observe = opened.model, entered.factors, self._meter.rules.observe
        run.carried_factors = model.name, factors
        run.marks.announce(result.size, entered.in_force.raw)
        run.size = answer.size
        kept = result.cache.kept if taken.before is None else taken.before.kept
        run.usage.prompt_returned(
            SentTokens(
                model=model.name,
                format=opened.call.format,
                tokens=taken.tokens,
                kept=0 if observe else kept,
                factor=factors.text,
                opaque=result.opaque,
                opaque_factor=factors.opaque,
                limit=model.limit,
                reserve=model.reserve,
                unknown=not model.found.known,
                media=bool(memory.ledger.messages.media),
                exact=model.exact,
                revision=answer.prompt.revision,
                charge=metered.charge,
                sides=sides,
            )
        )
        run.calls += 1
        self._table.keep(run)
        run.sum_up(answer)
        received = memory.received
        if received is not None and received.rows[-1].whole == len(memory.ledger):
            self._table.stash.received(run.stash_key)  # every original was sent again
        self._archiving.answered(run, answer)

    def _trim_single(self, run: Run, opened: OpenedPrompt, watch: Stopwatch) -> TrimAnswer:
        """Cap a result outside a history; only the run's stash and recorded items change."""
        call = opened.call
        factors = self._factors(run, opened)
        in_force = run.usage.in_force(opened.model.limit, factors.text)
        store = RunStore(self._table.stash, run, call.caller, later=True, iteration=run.memory.ledger.iteration)
        answer = trim_single(run, opened, in_force.raw, store, watch)
        if self._meter.rules.observe:
            answer = as_sent(answer, opened)
        watch.mark()
        if not (call.dry_run or call.side_call):
            check_size(answer, _accepted(call))
            store.commit()
            run.calls += 1
            self._table.keep(run)
            self._archiving.answered(run, answer)
        return replace(calibrated(answer, in_force, factors.text), phases=watch.phases())

    # -- the state that a prompt continues from
    # ----------------------------------------------------------------------------------

    def _window(self, run: Run, caller: str, model: str) -> Window:
        """Return the window found at the run's first prompt for a model, or looked up now if this is the first."""
        found = run.windows.find(model)
        if found is not None:
            return found
        known = self._models.find(model)
        if known is not None and known.model.window:
            return Window(known.model.window, known.model.most_input or 0)
        taught = self._taught.of(caller, model)
        most_input = known.model.most_input or 0 if known is not None else 0
        return Window(0, taught.most_input or most_input, self._limits.default_window, taught.window)

    @staticmethod
    def _ceiling(run: Run, opened: OpenedPrompt) -> int | None:
        """Return the settings' ceiling at the run's first prompt that used it; None if each had its agent's own."""
        by_agent = CEILING in opened.call.policy
        return run.windows.ceiling if by_agent or run.windows.ceiling is not None else opened.policy.ceiling_tokens

    def _keep_window(self, run: Run, opened: OpenedPrompt) -> None:
        """Keep the window and the ceiling of this prompt for the run's next prompts."""
        run.windows.ceiling = self._ceiling(run, opened)
        if not run.windows.keep(opened.model.name, opened.model.found):
            self._table.bounds.add(MODELS_BOUND)

    def _factors(self, run: Run, opened: OpenedPrompt) -> Factors:
        """Return the factors of caller, model and format; before any report, those of the run's last model.

        Another model without a public vocabulary probably counts more like the last model than like our vocabulary.
        """
        caller, model, form = opened.call.caller, opened.model.name, opened.call.format
        if self._calibration.reports(caller, model, form):
            return self._calibration.factors(caller, model, form)
        if run.carried_factors is not None:
            of_model, factors = run.carried_factors
            if of_model in ("", model) or not opened.model.exact:
                return factors
        return Factors(first_factor(self._models.alike(model)))

    def _served(self, run: Run, opened: OpenedPrompt) -> Served | None:
        """Return which model calls answered prompts from the sidecar; None: all, as far as is known."""
        call = opened.call
        if opened.format.reasoning is not ReasoningRule.BOUND:
            return None
        if call.served_iterations is not None:
            return Served(iterations=call.served_iterations)
        if call.revision or call.base_revision:
            return Served(revision=opened.revision)
        # A prompt that another process returned is recognised by the key that both share; in another format it was
        # another prompt.
        begun_again = not opened.continues and len(run.memory.ledger) > 0
        return Served(iterations=0) if begun_again or not (run.calls or self._keys.lasting) else None

    def _revision(self, run: Run, opened: OpenedPrompt) -> tuple[Revision | None, RevisionUse]:
        """Return the revision to continue the prompt's decisions from, and how the revision that was sent is used.

        It is the newest of: the revision that was sent; this process's memory; and, if this process has not seen a
        prompt of the run or others have answered prompts since, the revision that another process left.
        """
        sent, known = bool(opened.call.revision), len(opened.memory.ledger) > 0
        revision = self._ahead(run, opened) if known else opened.revision
        if not (sent or known):
            revision = self._left(run, opened)
        if revision is None or not _alike_bound(revision, opened):
            if known:
                return None, RevisionUse.NOT_NEEDED if sent else RevisionUse.NONE
            return None, RevisionUse.MISMATCHED if sent else RevisionUse.NONE
        run.carried_factors = "", Factors(revision.factor, revision.opaque_factor)
        run.usage.carry(revision.learned_limit)
        # Revisions from before there were ceilings have none.
        run.windows.take_over(revision.windows, revision.ceiling if revision.version >= WINDOWED else NO_CEILING)
        if known:
            return revision, RevisionUse.AHEAD
        return revision, RevisionUse.APPLIED if sent else RevisionUse.NONE

    def _left(self, run: Run, opened: OpenedPrompt) -> Revision | None:
        """Return the revision of the run's last answer elsewhere, for a process whose memory of the run is empty."""
        first = not (run.archived.adopted or run.archived.answered)
        left = self._archiving.first_revision(run)
        if not (first or left):  # its memory was given up since
            left = self._archiving.newest_revision(run)
        return self._opener.revision(left, opened.memory)

    def _ahead(self, run: Run, opened: OpenedPrompt) -> Revision | None:
        """Return the newest revision that covers more of the prompt's history than this process answered, or None.

        The archive is read only where the prompt shows that others have answered prompts of the run since.
        """
        call, memory = opened.call, opened.memory
        sealed = call.revision
        if call.side_call or call.base_revision or not opened.continues:
            return None
        foreign = bool(sealed) and not run.usage.returned(sealed)
        if not foreign and not (self._archiving.enabled and others_may_have_answered(opened)):
            return None
        standing, newest = Standing.of(opened), None
        if foreign:
            revision = self._opener.revision(sealed, memory)
            if revision is not None and standing.is_behind(revision, returned_here=False):
                newest = revision
        covered = newest.length if newest is not None else standing.known
        if standing.calls_since(covered) > OWN_CALL:
            left = self._archiving.newest_revision(run)
            revision = self._opener.revision(left, memory)
            known_here = run.usage.returned(left)
            if revision is not None and standing.is_behind(revision, returned_here=known_here):
                newest = revision if newest is None or revision.length > newest.length else newest
        return newest if newest is not None and _alike_bound(newest, opened) else None

    def _carried(self, run: Run, opened: OpenedPrompt, revision: Revision | None) -> CeilingUsage:
        """Return the run's use according to the revision that was sent, or that another process left."""
        call = opened.call
        sealed = call.revision or call.base_revision
        if not sealed:
            return carried(revision) if revision is not None else NOTHING
        if run.usage.returned(sealed):  # for its own prompts this process has the figures
            return NOTHING
        return carried(opened.revision or self._opener.revision(sealed, opened.memory))

    def _seal(self, run: Run, opened: OpenedPrompt, factors: Factors, used: CeilingUsage) -> bytes:
        memory = opened.memory
        state = memory.listed.packed
        if len(state) > self._limits.revision_bytes:
            state = b""
            self._table.bounds.add("limits.revision_bytes")
        ledger, own = memory.ledger, memory.own
        windows = run.windows.carried(opened.model.name, opened.model.found)
        return seal(
            self._keys.first,
            Revision(
                run=run_digest(run.key),
                length=len(ledger),
                chain=ledger.chain,
                own=own.identities(run.key),
                state=state,
                directives=DIRECTIVES.index(own.directives),
                note_waits=own.note_waits,
                registry_room=own.registry_room,
                closing_room=own.closing_room,
                factor=factors.text,
                opaque_factor=factors.opaque,
                bound=opened.format.reasoning is ReasoningRule.BOUND,
                learned_limit=run.usage.learned_limit,
                ids=memory.kept_ids(),
                rules=self._guarding.digest(run, opened.call.caller),
                used=(used.input_tokens, used.cost, used.model_calls),
                windows=windows,
                ceiling=self._ceiling(run, opened),
                results_by_name=not opened.format.numbers_as_sent,
                supersedes=memory.recorder.supersedes,
                began_under=memory.began_under,
            ),
        )

    def _keep_draft(self, run: Run, draft: Draft) -> None:
        """Keep an interrupted call's partial result, for its retry."""
        if draft.worth_keeping:
            self.drafts.keep(run, draft)
        if not run.unused:
            self._table.keep(run)


def _alike_bound(revision: Revision, opened: OpenedPrompt) -> bool:
    """Whether reasoning is bound to prompts in a revision's run as in this prompt."""
    return revision.bound == (opened.format.reasoning is ReasoningRule.BOUND)


def _accepted(call: TrimCall) -> int:
    """Return the most bytes of an answer that the caller can receive."""
    return call.accept_bytes or ACCEPT_BYTES


def _unanswered(run: Run, opened: OpenedPrompt) -> Iterator[Finding]:
    """Yield calls without results that this prompt is the first to show; a side call is not part of the history."""
    if opened.call.side_call or opened.memory.received is None:
        return iter(())
    known = opened.guard.recorded
    since = run.answered_iteration if opened.continues and not known else 0
    return unanswered_calls(opened.memory.ledger, known, since)


def _sides(taken: _TakenPrompt, answer: TrimAnswer) -> Sides:
    """Compare a prompt with the one that would be sent without the sidecar."""
    result, model, factor = taken.result, taken.work.opened.model, taken.entered.factors.text
    whole, window = calibrated_tokens(result.untrimmed, factor), model.found.known
    return Sides(
        returned=Extent(answer.cache.kept + answer.cache.rewritten, answer.cache.kept),
        untrimmed=Extent(whole, min(calibrated_tokens(result.untrimmed_kept, factor), whole)),
        room=window - model.reserve if window else answer.tokens.limit,
        recalls=result.recalls,
        rewritten=result.cache.batch_point or result.news.cache_break is CacheBreak.BATCH_POINT,
        observed=answer.prompt.observed_only,
        price=taken.metered.price,
    )


def _savings(run: Run, taken: _TakenPrompt, sides: Sides | None) -> Savings:
    """Return what a prompt adds to its run's comparison; a prompt sent again adds nothing, unless it had failed."""
    if sides is None or (taken.before is not None and not taken.failed):
        return Savings(sent_again=True, comparison=run.comparison)
    compared = estimated(sides)
    if taken.failed:
        back = Recount(FAILED, compared, counted=False)
        return Savings(sent_again=True, recount=back, comparison=run.comparison.recounted(back))
    return Savings(compared=compared, comparison=run.comparison.plus(compared))


def _most(entered: _EnteredPrompt) -> int:
    """Return the most tokens that a prompt may take, as the provider counts: all that was sent, and our own text."""
    reads, inputs = entered.opened.reads[entered.opened.unseen :], entered.inputs
    sent = sum(map(_TOKENS, reads))  # called for all messages at each call, so it has to be quick
    opaque = sum(map(_OPAQUE, reads)) * max(0.0, inputs.opaque_factor - 1.0)
    raw = inputs.overhead + entered.room.total + sent + round(opaque)
    return calibrated_tokens(raw, entered.factors.text) + 1
