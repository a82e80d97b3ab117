"""Trimming: a prompt is opened, taken through its run, and answered with the figures that the provider would count.

Up to the point where the prompt is taken nothing of its run has changed. A call whose answer may turn out too large, or
that is only asked what it would do, works on a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from prompt_sidecar.engine.runs.archiving import Archiving
from prompt_sidecar.engine.runs.comparing import Extent, Sides, estimated
from prompt_sidecar.engine.runs.drafts import Drafts
from prompt_sidecar.engine.runs.guarding import Guarding, finding_of
from prompt_sidecar.engine.runs.metering import Meter, Metered, carried
from prompt_sidecar.engine.runs.reported_usage import Returned
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.run_store import LaterStore, RunStore
from prompt_sidecar.engine.runs.single import StoreAtIteration, as_edits, trim_single
from prompt_sidecar.engine.runs.stopwatch import Stopwatch
from prompt_sidecar.engine.runs.table import RunTable
from prompt_sidecar.engine.steps.answer import answer_of, as_sent, calibrated, check_size, most_bytes
from prompt_sidecar.engine.steps.opening import Opened, Opener, Pass, Served, Work, inputs_of
from prompt_sidecar.engine.steps.own_state import constant_identities
from prompt_sidecar.engine.steps.received import Draft
from prompt_sidecar.engine.steps.side_call import trim_slice
from prompt_sidecar.engine.steps.turn import Result, take
from prompt_sidecar.engine.tools.tasks import open_lines
from prompt_sidecar.errors import CallCancelled, DeadlinePassed, SidecarError
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import CacheBreak, RevisionUse, TrimAnswer, TrimCall
from prompt_sidecar.guard.ceilings import NOTHING, Price, Use
from prompt_sidecar.guard.masking import Masker
from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.tokens import Counter, encoding_for
from prompt_sidecar.tokens.calibration import Calibration, Factors, InForce, calibrated_tokens
from prompt_sidecar.tokens.models import first_factor, known_window
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.own_text import NoteFacts, Room
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.revision import DIRECTIVES, Revision, run_digest, seal

ACCEPT_BYTES: Final = 4_194_304
"""Bytes that a gRPC client receives by default."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A prompt that was opened, and what is in force for it."""

    opened: Opened
    inputs: Inputs
    room: Room
    factors: Factors
    in_force: InForce
    revision: Revision | None
    use: RevisionUse
    """Whether the revision that was sent is used, as far as is known before the prompt is taken."""


@dataclass(frozen=True, slots=True)
class _Charged:
    """What the model gets, and what it counts for. Tokens, raw."""

    use: Use
    tokens: int
    kept: int
    """Of the prefix that it shares with the prompt before; 0: that is not known."""
    sides: Sides | None


class Trimming:
    """The use case of trimming, on a table of runs. A run is used under its lock."""

    def __init__(
        self,
        table: RunTable,
        counter: Counter,
        calibration: Calibration,
        guarding: Guarding,
        archiving: Archiving,
        *,
        keys: Keys,
        key_lasts: bool,
        limits: Limits,
        meter: Meter,
    ) -> None:
        """Take what opens prompts, what counts and what meters them; see `Runs` for the keys."""
        self._meter = meter
        self._table = table
        self._counter = counter
        self._calibration = calibration
        self._guarding = guarding
        self._archiving = archiving
        self._opener = Opener(keys, limits)
        self._key_lasts = key_lasts
        self._limits = limits
        self.drafts = Drafts(table.bounds)

    def trim(self, run: Run, call: TrimCall, policy: Policy, check: Callable[[], None]) -> TrimAnswer:
        """See `Runs.trim`."""
        if not run.calls and not run.guard.masks:
            run.guard.masks = self._guarding.masks_for(call.caller) or self._opener.was_masked(call, run.memory)
        masker = self._guarding.masker(run, call.caller)
        try:
            answer = self._trim(run, call, policy, masker, check)
        except (DeadlinePassed, CallCancelled):
            raise  # what was done until then is kept
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
        watch = Stopwatch(self._counter)
        counting = partial(watch.counting_many, check=check)
        by = Pass(counting, check, partial(self._keep_draft, run), run.draft, masker)
        opened = self._opener.open(call, run.memory, policy, by)
        if opened.format.single:
            return self._trim_single(run, opened, watch)
        run.draft = None
        revision, use = self._revision(run, opened)
        if not len(opened.memory.ledger):
            opened.memory.own.recognise(constant_identities(opened.format))
            if revision is not None:
                opened.memory.own.recognise_sealed(run.key, revision.own)
        factors = self._factors(run, opened)
        in_force = run.usage.in_force(opened.limit, factors.text)
        inputs, room = inputs_of(opened, in_force.raw, factors, watch.counting(opened.encoding, check))
        check()
        if call.side_call:
            answer = calibrated(trim_slice(opened, inputs), opened, in_force, factors.text)
            return as_sent(answer, opened) if self._meter.rules.observe else answer
        metered = self._meter.begin(
            run, opened, self._carried(run, opened, revision), _most(opened, inputs, room, factors)
        )
        try:
            return self._take(
                run, _Ready(opened, inputs, room, factors, in_force, revision, use), metered, watch, check
            )
        finally:
            self._meter.end(metered)

    def _take(
        self, run: Run, ready: _Ready, metered: Metered, watch: Stopwatch, check: Callable[[], None]
    ) -> TrimAnswer:
        """Take a prompt through its run, and answer."""
        opened, inputs, room = ready.opened, ready.inputs, ready.room
        factors, in_force, use = ready.factors, ready.in_force, ready.use
        call = opened.call
        watch.mark()
        # From here on the run changes, so the call may end only where `take` asks.
        count = watch.counting(opened.encoding)
        accept = call.accept_bytes or ACCEPT_BYTES
        copied = call.dry_run or metered.on_copy or most_bytes(opened) > accept
        work = Work(
            replace(opened, memory=opened.memory.copy()) if copied else opened,
            inputs,
            room,
            NoteFacts(
                open_lines(run.tasks.items, room.note // 2, count),
                run.history.figures().first_iteration,
                self._meter.left(metered),
            ),
            count,
            watch.counting_many(opened.encoding),
            ready.revision,
            self._served(run, opened),
            check,
            since=run.answered_iteration if opened.continues else 0,
        )
        store = (LaterStore if copied else RunStore)(self._table.stash, run, call.caller)
        try:
            result = take(work, store)
        except (DeadlinePassed, CallCancelled):
            if not (call.dry_run or metered.on_copy):
                store.commit()
                run.memory = work.opened.memory
                self._keep_draft(run, Draft(opened.format.name, opened.body, opened.reads, opened.guarded))
                self._archiving.answered(run, None)
            raise
        observe = self._meter.rules.observe
        tokens = inputs.overhead + result.sent_tokens if observe else result.after
        self._meter.settle(metered, run, work.opened, result, tokens, factors)
        watch.mark()
        findings = self._guarding.findings(run, work.opened, call)
        use = RevisionUse.MISMATCHED if result.revision_applied is False and opened.call.revision else use
        raw = answer_of(work, result, use, self._seal(run, work.opened, factors, metered.carried))
        watch.mark()
        crossed = run.marks.crossing(result.size, in_force.raw)
        answer = replace(
            calibrated(raw, opened, in_force, factors.text),
            phases=watch.phases(),
            crossed=crossed,
            findings=findings,
            restorable=self._guarding.restores(run, call.caller),
            ceilings=metered.uses,
            priced=metered.price is not None or not self._meter.rules.prices,
        )
        if observe:
            answer = as_sent(answer, opened)
        if call.dry_run:
            return answer
        sides: Sides | None = None
        before = run.usage.unanswered if result.same else None
        if before is not None:
            sides = before.sides
            answer = replace(answer, sent_again=True, comparison=run.comparison)
        elif answer.size is not None:
            sides = _sides(answer, result, opened, factors, metered.price)
            compared = estimated(sides)
            answer = replace(answer, compared=compared, comparison=run.comparison.plus(compared))
        if copied:
            check_size(answer, accept)
        store.commit()
        run.memory = work.opened.memory
        self._meter.answered(metered, run)
        kept = result.shared.kept if before is None else before.kept
        charged = _Charged(metered.charge, tokens, 0 if observe else kept, sides)
        self._remember(run, work.opened, result, answer, factors, in_force, charged)
        self._archiving.answered(run, answer)
        return answer

    def _trim_single(self, run: Run, opened: Opened, watch: Stopwatch) -> TrimAnswer:
        """Cap a result that is no part of a history; of the run only what it keeps and records changes."""
        call = opened.call
        factors = self._factors(run, opened)
        in_force = run.usage.in_force(opened.limit, factors.text)
        store = StoreAtIteration(self._table.stash, run, call.caller)
        answer = trim_single(run, opened, in_force.raw, store, watch)
        answer = replace(answer, findings=[finding_of(each, 0) for each in opened.sightings])
        if call.edits:
            answer = as_edits(answer, opened)
        if self._meter.rules.observe:
            answer = as_sent(answer, opened)
        watch.mark()
        if not (call.dry_run or call.side_call):
            check_size(answer, call.accept_bytes or ACCEPT_BYTES)
            store.commit()
            run.calls += 1
            self._table.keep(run)
            self._archiving.answered(run, answer)
        return replace(calibrated(answer, opened, in_force, factors.text), phases=watch.phases())

    def _factors(self, run: Run, opened: Opened) -> Factors:
        """The factors of caller, model and format; before any report the run's last.

        Another model without a public vocabulary is likelier to count as the last one did than as we do.
        """
        caller, model, form = opened.call.caller, opened.model, opened.call.format
        if self._calibration.reports(caller, model, form):
            return self._calibration.factors(caller, model, form)
        if run.carried_factors is not None:
            of_model, factors = run.carried_factors
            if of_model in ("", model) or not encoding_for(model)[1]:
                return factors
        return Factors(first_factor(model))

    def _served(self, run: Run, opened: Opened) -> Served | None:
        """Which of the model's words came of prompts that the sidecar returned; None: all, as far as can be known."""
        call = opened.call
        if opened.format.reasoning is not ReasoningRule.BOUND:
            return None
        if call.served_iterations is not None:
            return Served(iterations=call.served_iterations)
        if call.revision or call.base_revision:
            return Served(revision=opened.revision)
        # What another process returned is known by a key that both have; in another format it was another prompt.
        begun_again = not opened.continues and len(run.memory.ledger) > 0
        return Served(iterations=0) if begun_again or not (run.calls or self._key_lasts) else None

    def _revision(self, run: Run, opened: Opened) -> tuple[Revision | None, RevisionUse]:
        """The revision that the prompt's decisions go on from, and what becomes of the one that was sent."""
        if not opened.call.revision:
            return self._stored_revision(run, opened), RevisionUse.NONE
        if len(opened.memory.ledger):
            return None, RevisionUse.NOT_NEEDED
        revision = opened.revision
        if revision is None or revision.bound != (opened.format.reasoning is ReasoningRule.BOUND):
            return None, RevisionUse.MISMATCHED
        run.carried_factors = "", Factors(revision.factor, revision.opaque_factor)
        run.usage.carry(revision.learned_limit)
        return revision, RevisionUse.APPLIED

    def _carried(self, run: Run, opened: Opened, revision: Revision | None) -> Use:
        """What the revision that was sent, or that another process has left, says that the run has used."""
        call = opened.call
        sealed = call.revision or call.base_revision
        if not sealed:
            return carried(revision) if revision is not None else NOTHING
        if run.usage.returned(sealed):  # of what this process returned it knows
            return NOTHING
        return carried(opened.revision or self._opener.revision(sealed, opened.memory))

    def _stored_revision(self, run: Run, opened: Opened) -> Revision | None:
        """The revision that another process left of the run, where this one has yet to see a prompt of it."""
        if run.archived.place is None or len(opened.memory.ledger):
            return None
        left = self._archiving.first_revision(run)
        revision = self._opener.revision(left, opened.memory)
        if revision is None or revision.bound != (opened.format.reasoning is ReasoningRule.BOUND):
            return None
        run.carried_factors = "", Factors(revision.factor, revision.opaque_factor)
        run.usage.carry(revision.learned_limit)
        return revision

    def _seal(self, run: Run, opened: Opened, factors: Factors, used: Use) -> bytes:
        memory = opened.memory
        state = memory.listed.packed
        if len(state) > self._limits.revision_bytes:
            state = b""
            self._table.bounds.add("limits.revision_bytes")
        ledger, own = memory.ledger, memory.own
        return seal(
            self._opener.keys.first,
            Revision(
                run=run_digest(run.key),
                length=len(ledger),
                chain=ledger.chain,
                own=own.identities(run.key),
                state=state,
                directives=DIRECTIVES.index(own.directives),
                registry_room=own.registry_room,
                closing_room=own.closing_room,
                factor=factors.text,
                opaque_factor=factors.opaque,
                bound=opened.format.reasoning is ReasoningRule.BOUND,
                learned_limit=run.usage.learned_limit,
                ids=memory.kept_ids(),
                rules=self._guarding.digest(run, opened.call.caller),
                used=(used.input_tokens, used.cost, used.model_calls),
            ),
        )

    def _remember(  # noqa: PLR0917 - all that a prompt came to
        self,
        run: Run,
        opened: Opened,
        result: Result,
        answer: TrimAnswer,
        factors: Factors,
        in_force: InForce,
        charged: _Charged,
    ) -> None:
        """The call has come to an answer: sum it up, and see that the run is known and not one too many."""
        call, memory = opened.call, opened.memory
        run.carried_factors = opened.model, factors
        run.marks.announce(result.size, in_force.raw)
        run.size = answer.size
        run.usage.prompt_returned(
            Returned(
                model=opened.model,
                format=call.format,
                tokens=charged.tokens,
                kept=charged.kept,
                factor=factors.text,
                opaque=result.opaque,
                opaque_factor=factors.opaque,
                limit=opened.limit,
                reserve=opened.reserve,
                media=bool(memory.ledger.media),
                exact=opened.exact,
                revision=answer.revision,
                charge=charged.use,
                sides=charged.sides,
            )
        )
        run.calls += 1
        self._table.keep(run)
        run.sum_up(answer)
        received = memory.received
        if received is not None and received.rows[-1].whole == len(memory.ledger):
            self._table.stash.received(run.stash_key)  # every original has come again

    def _keep_draft(self, run: Run, draft: Draft) -> None:
        """A call had to end: keep what it has done, so that its retry goes on from there."""
        if draft.worth_keeping:
            self.drafts.keep(run, draft)
        if not run.unused:
            self._table.keep(run)


def _sides(answer: TrimAnswer, result: Result, opened: Opened, factors: Factors, price: Price | None) -> Sides:
    """A prompt next to what it would have been without the sidecar."""
    whole, window = calibrated_tokens(result.untrimmed, factors.text), known_window(opened.model)
    return Sides(
        returned=Extent(answer.cache.kept + answer.cache.rewritten, answer.cache.kept),
        untrimmed=Extent(whole, min(calibrated_tokens(result.untrimmed_kept, factors.text), whole)),
        room=answer.tokens.limit if window is None else window - opened.reserve,
        recalls=result.recalls,
        rewritten=result.batch_point or result.news.cache_break is CacheBreak.BATCH_POINT,
        observed=answer.observed_only,
        price=price,
    )


def _most(opened: Opened, inputs: Inputs, room: Room, factors: Factors) -> int:
    """Tokens that a prompt takes at most, as the provider counts: all that was sent, and our own text."""
    sent = sum(read.tokens for read in opened.reads)
    opaque = sum(read.opaque for read in opened.reads) * max(0.0, inputs.opaque_factor - 1.0)
    return calibrated_tokens(inputs.overhead + room.total + sent + round(opaque), factors.text) + 1
