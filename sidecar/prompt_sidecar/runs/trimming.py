"""Trimming: a prompt is opened, taken through its run, and answered with the figures that the provider would count.

Up to the point where the prompt is taken nothing of its run has changed. A call whose answer may turn out too large, or
that is only asked what it would do, works on a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from prompt_sidecar.errors import CallCancelled, DeadlinePassed
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import RevisionUse, TrimAnswer, TrimCall
from prompt_sidecar.prompt.format import ReasoningRule
from prompt_sidecar.runs.drafts import Drafts
from prompt_sidecar.runs.reported_usage import Returned
from prompt_sidecar.runs.run import Run
from prompt_sidecar.runs.run_store import LaterStore, RunStore
from prompt_sidecar.runs.single import StoreAtIteration, as_edits, trim_single
from prompt_sidecar.runs.stopwatch import Stopwatch
from prompt_sidecar.runs.table import RunTable
from prompt_sidecar.tokens import Counter, encoding_for
from prompt_sidecar.tokens.calibration import Calibration, Factors, InForce
from prompt_sidecar.tokens.models import first_factor
from prompt_sidecar.tools.tasks import open_lines
from prompt_sidecar.trim.own_text import Told
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.revision import DIRECTIVES, Revision, run_digest, seal
from prompt_sidecar.turn.answer import answer_of, calibrated, check_size, most_bytes
from prompt_sidecar.turn.opening import Opened, Opener, Pass, Served, Work, inputs_of
from prompt_sidecar.turn.own_state import directive_identities
from prompt_sidecar.turn.received import Draft
from prompt_sidecar.turn.side_call import trim_slice
from prompt_sidecar.turn.turn import Result, take

ACCEPT_BYTES: Final = 4_194_304
"""Bytes that a gRPC client receives by default."""


class Trimming:
    """The use case of trimming, on a table of runs. A run is used under its lock."""

    def __init__(
        self,
        table: RunTable,
        counter: Counter,
        calibration: Calibration,
        *,
        key: bytes,
        key_lasts: bool,
        limits: Limits,
    ) -> None:
        """Take what opens prompts and what counts them; see `Runs` for the key."""
        self._table = table
        self._counter = counter
        self._calibration = calibration
        self._opener = Opener(key, limits)
        self._key_lasts = key_lasts
        self._limits = limits
        self.drafts = Drafts(table.bounds)

    def trim(self, run: Run, call: TrimCall, policy: Policy, check: Callable[[], None]) -> TrimAnswer:
        """See `Runs.trim`."""
        watch = Stopwatch(self._counter)
        by = Pass(partial(watch.counting_many, check=check), check, partial(self._keep_draft, run, call), run.draft)
        opened = self._opener.open(call, run.memory, policy, by)
        if opened.format.single:
            return self._trim_single(run, opened, watch)
        run.draft = None
        revision, use = self._revision(run, opened)
        if not len(opened.memory.ledger):
            sealed = revision.own if revision is not None else ()
            opened.memory.own.recognise([*directive_identities(opened.format), *sealed])
        factors = self._factors(run, opened)
        in_force = run.usage.in_force(opened.limit, factors.text)
        inputs, room = inputs_of(opened, in_force.raw, factors, watch.counting(opened.encoding, check))
        check()
        if call.side_call:
            return calibrated(trim_slice(opened, inputs), opened, in_force, factors.text)
        watch.mark()
        # From here on the run changes, so the call may end only where `take` asks.
        count = watch.counting(opened.encoding)
        accept = call.accept_bytes or ACCEPT_BYTES
        copied = call.dry_run or most_bytes(opened) > accept
        work = Work(
            replace(opened, memory=opened.memory.copy()) if copied else opened,
            inputs,
            room,
            Told(open_lines(run.tasks.items, room.note // 2, count), run.history.figures().first_iteration),
            count,
            watch.counting_many(opened.encoding),
            revision,
            self._served(run, opened),
            check,
            since=run.answered_iteration if opened.continues else 0,
        )
        store = (LaterStore if copied else RunStore)(self._table.stash, run, call.caller)
        try:
            result = take(work, store)
        except (DeadlinePassed, CallCancelled):
            if not call.dry_run:
                store.commit()
                run.memory = work.opened.memory
                self._keep_draft(run, call, Draft(opened.format.name, opened.body, opened.reads))
            raise
        watch.mark()
        use = RevisionUse.MISMATCHED if result.revision_applied is False else use
        raw = answer_of(work, result, use, self._seal(run, work.opened, factors))
        watch.mark()
        crossed = run.marks.crossing(result.size, in_force.raw)
        answer = replace(calibrated(raw, opened, in_force, factors.text), phases=watch.phases(), crossed=crossed)
        if call.dry_run:
            return answer
        if copied:
            check_size(answer, accept)
        store.commit()
        run.memory = work.opened.memory
        self._remember(run, work.opened, result, answer, factors, in_force)
        return answer

    def _trim_single(self, run: Run, opened: Opened, watch: Stopwatch) -> TrimAnswer:
        """Cap a result that is no part of a history; of the run only what it keeps and records changes."""
        call = opened.call
        factors = self._factors(run, opened)
        in_force = run.usage.in_force(opened.limit, factors.text)
        store = StoreAtIteration(self._table.stash, run, call.caller)
        answer = trim_single(run, opened, in_force.raw, store, watch)
        if call.edits:
            answer = as_edits(answer, opened)
        watch.mark()
        if not (call.dry_run or call.side_call):
            check_size(answer, call.accept_bytes or ACCEPT_BYTES)
            store.commit()
            run.calls += 1
            self._table.keep(call.caller, call.run_id, run)
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
            return None, RevisionUse.NONE
        if len(opened.memory.ledger):
            return None, RevisionUse.NOT_NEEDED
        revision = opened.revision
        if revision is None or revision.bound != (opened.format.reasoning is ReasoningRule.BOUND):
            return None, RevisionUse.MISMATCHED
        run.carried_factors = "", Factors(revision.factor, revision.opaque_factor)
        run.usage.carry(revision.learned_limit)
        return revision, RevisionUse.APPLIED

    def _seal(self, run: Run, opened: Opened, factors: Factors) -> bytes:
        memory = opened.memory
        state = memory.listed.packed
        if len(state) > self._limits.revision_bytes:
            state = b""
            self._table.bounds.add("limits.revision_bytes")
        ledger, own = memory.ledger, memory.own
        return seal(
            self._opener.key,
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
                bound=opened.format.reasoning is ReasoningRule.BOUND,
                learned_limit=run.usage.learned_limit,
            ),
        )

    def _remember(  # noqa: PLR0917 - all that a prompt came to
        self, run: Run, opened: Opened, result: Result, answer: TrimAnswer, factors: Factors, in_force: InForce
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
                tokens=result.after,
                kept=result.shared.kept,
                factor=factors.text,
                opaque=result.opaque,
                opaque_factor=factors.opaque,
                limit=opened.limit,
                reserve=opened.reserve,
                media=bool(memory.ledger.media),
                exact=opened.exact,
                revision=answer.revision,
            )
        )
        run.calls += 1
        self._table.keep(call.caller, call.run_id, run)
        run.sum_up(answer)
        received = memory.received
        if received is not None and received.rows[-1].whole == len(memory.ledger):
            self._table.stash.received(run.stash_key)  # every original has come again

    def _keep_draft(self, run: Run, call: TrimCall, draft: Draft) -> None:
        """A call had to end: keep what it has done, so that its retry goes on from there."""
        if draft.worth_keeping:
            self.drafts.keep(run, draft)
        if not run.unused:
            self._table.keep(call.caller, call.run_id, run)
