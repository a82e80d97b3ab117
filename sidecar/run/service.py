"""The use cases: trim a prompt, retrieve an original, tell a run's figures, end a run.

`Runs` holds every run that this process has seen, each with a lock of its own, and the stash that they share. It is
free of I/O: the clock, the key and the counter are passed in, requests and answers are the facts of `calls.py`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final

from sidecar.errors import InvalidRequest, RevisionUnknown, RunUnknown, SidecarError, TooLarge
from sidecar.prompt.body import Split, continued, join_slices, split
from sidecar.prompt.format import Format
from sidecar.prompt.formats import FORMATS
from sidecar.recall.outcome import describe, describe_page
from sidecar.recall.retrieve import select
from sidecar.recall.selection import PatternMatch
from sidecar.recall.stash import Stash
from sidecar.run.answer import answer_of, check_size, most_bytes
from sidecar.run.budget import MemoryBudget, weight
from sidecar.run.calls import (
    CacheFigures,
    Outcome,
    RetrieveAnswer,
    RetrieveCall,
    RevisionUse,
    RunFigures,
    StashFigures,
    TokenFigures,
    TrimAnswer,
    TrimCall,
)
from sidecar.run.in_force import check_pins, limit_of, model_of, overhead_of
from sidecar.run.limits import Limits
from sidecar.run.memory import Memory
from sidecar.run.own_state import directive_identities
from sidecar.run.received import read
from sidecar.run.slice import trim_slice
from sidecar.run.stopwatch import Stopwatch
from sidecar.run.work import Work
from sidecar.tokens import Counter, encoding_for
from sidecar.trim.ids import run_key
from sidecar.trim.policy import Policy, preset
from sidecar.trim.revision import DIRECTIVES, Revision, run_digest, seal, unseal
from sidecar.trim.stages import Inputs

ACCEPT_BYTES: Final = 4_194_304
"""Bytes that a gRPC client receives by default."""
PAGE_ENCODING: Final = "o200k_base"
"""What pages of a retrieval are counted with, as no model is named there."""


class _Run:
    """One run: its memory, its lock and its sums."""

    def __init__(self, key: bytes, stash_key: str, now: float, hold_bytes: int) -> None:
        self.lock = Lock()
        self.key = key
        self.stash_key = stash_key
        self.hold_bytes = hold_bytes
        self.memory = Memory(key, hold_bytes)
        self.format = ""
        self.started = self.last_seen = now
        self.calls = 0
        self.ended = False
        self.tokens: TokenFigures | None = None
        self.cache: CacheFigures | None = None
        self.sent_total = 0
        self.returned_total = 0


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
    ) -> None:
        """Take what the use cases need.

        Args:
            counter: counts tokens.
            policy: the configured policy, for requests that name no preset.
            limits: bounds of what is kept.
            key: mints ids and signs revisions; the same key in every process gives the same ids.
            clock: seconds since the epoch.
            preset_overrides: configured policy fields, which hold for a preset that a request names too.
        """
        self._counter = counter
        self._policy = policy
        self._limits = limits
        self._key = key
        self._clock = clock
        self._overrides = dict(preset_overrides or {})
        self._lock = Lock()
        self._runs: OrderedDict[tuple[str, str], _Run] = OrderedDict()
        self._budget = MemoryBudget(limits.memory_bytes)
        self.stash = Stash(limits.stash_bytes, limits.run_stash_bytes, limits.time_to_live, clock)

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
        run = self._run_of(call.caller, call.run_id)
        with run.lock:
            try:
                return self._trim(run, call, format_, policy, check)
            except SidecarError:
                raise
            except BaseException:
                run.memory = Memory(run.key, run.hold_bytes)  # it caches a fold: the next prompt makes it again
                raise
            finally:
                if not run.calls:
                    self._forget_unused(call.caller, call.run_id, run)

    def _trim(
        self, run: _Run, call: TrimCall, format_: Format, policy: Policy, check: Callable[[], None]
    ) -> TrimAnswer:
        watch = Stopwatch(self._counter)
        # Another format is another history.
        memory = run.memory if call.format == run.format else Memory(run.key, run.hold_bytes)
        body = self._split(run, call, format_, memory)
        if len(body) > self._limits.run_messages:
            raise TooLarge(
                f"the prompt has {len(body):,} messages; limits.run_messages allows {self._limits.run_messages:,}",
                field="json.body.messages",
            )
        revision, use = self._revision(run, call, len(memory.ledger))
        if not len(memory.ledger):
            memory.own.recognise([*directive_identities(format_), *(revision.own if revision is not None else ())])
        model = model_of(call, body)
        encoding, exact = encoding_for(model)
        count = watch.counting(encoding, check)
        count_many = watch.counting_many(encoding, check)
        reads = read(body, memory.received, format_, count_many, check, most_items=self._limits.run_items)
        check_pins(call.pinned, len(body))
        limit = limit_of(call, body, format_, model, self._limits.default_window)
        overhead = overhead_of(body, reads, memory, format_, count)
        room = memory.room(encoding, limit, policy, count)
        inputs = Inputs(policy, limit, overhead, room.total, not call.recall_unavailable)
        check()
        count = watch.counting(encoding)  # from here on the run changes, so nothing may stop the call half way
        if call.side_call:
            return trim_slice(
                memory, body, reads, format_, inputs=inputs, encoding=encoding, exact=exact, as_edits=call.edits
            )
        watch.mark()
        work = Work(format_, body, reads, inputs, room, call.pinned, revision, watch.counting_many(encoding))
        accept = call.accept_bytes or ACCEPT_BYTES
        # A call whose answer may turn out too large, or that is only asked what it would do, works on a copy.
        copied = call.dry_run or most_bytes(body, memory) > accept
        target = copy.deepcopy(memory) if copied else memory
        put_now = partial(self._put, run.stash_key, call.caller)
        held: dict[str, tuple[bytes, str]] = {}

        def put_later(stash_id: str, original: bytes, content_type: str) -> None:
            held[stash_id] = original, content_type

        result = target.take(
            work,
            count,
            put_later if copied else put_now,
            partial(self.stash.dead, run.stash_key),
            self.stash.missing(run.stash_key),
        )
        watch.mark()
        if result.revision_applied is False:
            use = RevisionUse.MISMATCHED
        answer = answer_of(
            work, target, result, use, encoding, exact=exact, as_edits=call.edits, revision=self._seal(run, target)
        )
        watch.mark()
        answer = replace(answer, phases=watch.phases())
        if call.dry_run:
            return answer
        if copied:
            check_size(answer, accept)
            for stash_id, (original, content_type) in held.items():
                put_now(stash_id, original, content_type)
        run.memory, run.format = target, call.format
        self._remember(run, call, answer)
        return answer

    def _split(self, run: _Run, call: TrimCall, format_: Format, memory: Memory) -> Split:
        received = memory.received
        before = received.split if received is not None else None
        if call.base_revision:
            kept = self._messages_of(run, call.base_revision, memory)
            assert before is not None
            new = split(call.body) if format_.is_json else join_slices(call.messages or ())
            return continued(before, kept, new, is_json=format_.is_json)
        if format_.is_json:
            return split(call.body, before)
        if not call.messages:
            raise InvalidRequest(
                "conversation.messages is empty; it must hold at least one message", field="conversation"
            )
        return join_slices(call.messages, before)

    def _messages_of(self, run: _Run, sealed: bytes, memory: Memory) -> int:
        """How many messages of the last prompt make up the history that a revision stands for."""
        revision = unseal(self._key, sealed)
        records = memory.ledger.records
        received = memory.received
        if (
            revision is not None
            and received is not None
            and revision.run == run_digest(run.key)
            and 0 < revision.length <= len(records)
            and records[revision.length - 1].chain == revision.chain
        ):
            kept = len(received.nexts)
            while kept and received.nexts[kept - 1] > revision.length:
                kept -= 1
            if kept and received.nexts[kept - 1] == revision.length:
                return kept
        raise RevisionUnknown(
            "base_revision is not a revision of this run that this process knows; send the whole history",
            field="base_revision",
        )

    def _revision(self, run: _Run, call: TrimCall, known: int) -> tuple[Revision | None, RevisionUse]:
        if not call.revision:
            return None, RevisionUse.NONE
        if known:
            return None, RevisionUse.NOT_NEEDED
        revision = unseal(self._key, call.revision)
        if revision is None or revision.run != run_digest(run.key):
            return None, RevisionUse.MISMATCHED
        return revision, RevisionUse.APPLIED

    def _seal(self, run: _Run, memory: Memory) -> bytes:
        state = memory.packed
        if len(state) > self._limits.revision_bytes:
            state = b""
        ledger, own = memory.ledger, memory.own
        return seal(
            self._key,
            Revision(
                run=run_digest(run.key),
                length=len(ledger),
                chain=ledger.chain,
                own=own.identities(),
                state=state,
                directives=DIRECTIVES.index(own.texts.directives),
                registry_room=own.registry_room,
            ),
        )

    def _remember(self, run: _Run, call: TrimCall, answer: TrimAnswer) -> None:
        """The call has come to an answer: sum it up, and see that the run is known and not one too many."""
        run.calls += 1
        name = call.caller, call.run_id
        forgotten = None
        over: list[_Run] = []
        with self._lock:
            if not run.ended:
                received, records = run.memory.received, len(run.memory.ledger)
                used = weight(len(received.split.raw) if received is not None else 0, records)
                over = [self._runs[other] for other in self._budget.use(name, used) if other in self._runs]
            if not run.ended and run.calls == 1:
                registered = self._runs.get(name)
                if registered is None or not registered.calls:  # a neighbour that failed may have unmade this one
                    self._runs[name] = run
                if len(self._runs) > self._limits.runs:
                    oldest, forgotten = self._runs.popitem(last=False)
                    self._budget.drop(oldest)
        if forgotten is not None:
            self.stash.forget(forgotten.stash_key)
        for other in over:
            other.memory = Memory(
                other.key, other.hold_bytes
            )  # a call that is at it now keeps its own and puts it back
        self.stash.touch_run(run.stash_key)
        run.tokens, run.cache = answer.tokens, answer.cache
        run.sent_total += answer.tokens.before
        run.returned_total += answer.tokens.after
        received = run.memory.received
        if received is not None and received.whole[-1] == len(run.memory.ledger):
            self.stash.received(run.stash_key)  # every original has come again

    def _policy_of(self, call: TrimCall) -> Policy:
        policy = self._policy
        if call.preset:
            policy = preset(call.preset).override(self._overrides)
        return policy.override(call.policy) if call.policy else policy

    # -- recall ------------------------------------------------------------------------------------------------------

    def retrieve(self, call: RetrieveCall) -> RetrieveAnswer:
        """Fetch an original, or say why there is none.

        Raises:
            InvalidRequest: the selection, the offset or the page is wrong.
        """
        run = self._known(call.caller, call.run_id)
        if run is None:
            return RetrieveAnswer(Outcome.RUN_UNKNOWN, describe(Outcome.RUN_UNKNOWN))
        held = self.stash.get(run.stash_key, call.stash_id)
        if isinstance(held, Outcome):
            outcome = Outcome.NOT_FOUND if held is Outcome.RUN_UNKNOWN else held
            return RetrieveAnswer(outcome, describe(outcome))
        page = select(
            held.original,
            held.content_type,
            call.selection,
            call.offset,
            call.page_tokens or self._limits.page_tokens,
            lambda text: self._counter.count(text, PAGE_ENCODING),
        )
        return RetrieveAnswer(
            outcome=Outcome.HIT,
            message=describe_page(page, searched=isinstance(call.selection, PatternMatch)),
            content=page.content,
            content_type=page.content_type,
            total_bytes=page.total_bytes,
            total_lines=page.total_lines,
            stretches=page.stretches,
            more=page.more,
            next_offset=page.next_offset,
            matching_lines=page.matching_lines,
            content_tokens=page.content_tokens,
        )

    def _put(self, stash_key: str, caller: str, stash_id: str, original: bytes, content_type: str) -> None:
        if not self.stash.put(stash_key, caller, stash_id, original, content_type):
            raise RuntimeError("an original that was said to fit does not fit the stash")

    # -- runs --------------------------------------------------------------------------------------------------------

    def figures(self, caller: str, run_id: str) -> RunFigures:
        """A run's figures. Raises RunUnknown."""
        run = self._known(caller, run_id)
        if run is None:
            raise RunUnknown("this process has not seen the run; send its prompt first", field="run_id")
        with run.lock:
            return self._figures(run, run_id)

    def end(self, caller: str, run_id: str) -> RunFigures | None:
        """Forget a run now; its last figures, or None if it was not known."""
        with self._lock:
            run = self._runs.pop((caller, run_id), None)
            self._budget.drop((caller, run_id))
        if run is None:
            return None
        with run.lock:
            run.ended = True
            figures = self._figures(run, run_id)
            self.stash.forget(run.stash_key)
        return figures

    def sweep(self) -> None:
        """A bounded slice of housekeeping: expired originals, compression, runs idle for twice the time to live."""
        self.stash.sweep()
        self.stash.compress_some()
        horizon = self._clock() - 2 * self._limits.time_to_live
        for _ in range(16):
            with self._lock:
                oldest = next(iter(self._runs.items()), None)
                if oldest is None or oldest[1].last_seen > horizon:
                    return
                del self._runs[oldest[0]]
                self._budget.drop(oldest[0])
            self.stash.forget(oldest[1].stash_key)

    def __len__(self) -> int:
        """Runs remembered."""
        return len(self._runs)

    def _figures(self, run: _Run, run_id: str) -> RunFigures:
        stash = self.stash.figures(run.stash_key)
        return RunFigures(
            run_id=run_id,
            started=run.started,
            last_seen=run.last_seen,
            calls=run.calls,
            iteration=run.memory.ledger.iteration if len(run.memory.ledger) else 0,
            messages=len(run.memory.ledger),
            tokens=run.tokens,
            cache=run.cache,
            tokens_sent_total=run.sent_total,
            tokens_returned_total=run.returned_total,
            trimmed_items=len(run.memory.trims),
            stash=StashFigures(
                entries=stash.entries,
                held_bytes=stash.held_bytes,
                original_bytes=stash.original_bytes,
                expired=stash.expired,
                evicted=stash.evicted,
                retrievals=stash.retrievals,
            ),
        )

    def _known(self, caller: str, run_id: str) -> _Run | None:
        with self._lock:
            run = self._runs.get((caller, run_id))
            if run is not None:
                run.last_seen = self._clock()
                self._runs.move_to_end((caller, run_id))
            return run

    def _forget_unused(self, caller: str, run_id: str, run: _Run) -> None:
        """A run that has come to nothing, by an error or a dry run, has not been seen."""
        with self._lock:
            if self._runs.get((caller, run_id)) is run:
                del self._runs[caller, run_id]

    def _run_of(self, caller: str, run_id: str) -> _Run:
        name = (caller, run_id)
        now = self._clock()
        with self._lock:
            run = self._runs.get(name)
            if run is None:
                key = run_key(self._key, caller, run_id)
                run = self._runs[name] = _Run(key, key.hex(), now, self._limits.run_stash_bytes)
            run.last_seen = now
            self._runs.move_to_end(name)
        return run
