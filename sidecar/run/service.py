"""The use cases: trim a prompt, retrieve an original, tell a run's figures, end a run.

`Runs` holds every run that this process has seen, each with a lock of its own, and the stash that they share. It is
free of I/O: the clock, the key and the counter are passed in, requests and answers are the facts of `calls.py`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from threading import Lock
from time import perf_counter

from sidecar.errors import InvalidRequest, RevisionUnknown, RunUnknown, SidecarError, TooLarge
from sidecar.prompt.body import Split, continued, join_slices, split
from sidecar.prompt.format import Format
from sidecar.prompt.formats import FORMATS
from sidecar.prompt.jsontext import canonical, load
from sidecar.recall.outcome import describe, describe_page
from sidecar.recall.retrieve import select
from sidecar.recall.selection import PatternMatch
from sidecar.recall.stash import Stash
from sidecar.run.calls import (
    CacheFigures,
    NoFit,
    Outcome,
    Phases,
    RetrieveAnswer,
    RetrieveCall,
    RevisionUse,
    RunFigures,
    StashFigures,
    TokenFigures,
    TrimAnswer,
    TrimCall,
)
from sidecar.run.edits import edits_of
from sidecar.run.frame import without_own
from sidecar.run.limits import Limits
from sidecar.run.memory import Memory, Result, Work
from sidecar.run.received import Read, read
from sidecar.run.slice import trim_slice
from sidecar.run.weigh import PRIMING, count_opaque
from sidecar.tokens import Counter, encoding_for, known_window
from sidecar.trim import own_text
from sidecar.trim.ids import run_key
from sidecar.trim.policy import DEFAULT_PRESET, FitStage, Policy, preset
from sidecar.trim.revision import Revision, run_digest, seal, unseal
from sidecar.trim.stages import Inputs

ACCEPT_BYTES = 4_194_304
"""Bytes that a gRPC client receives by default."""
BYTES_PER_TRIM = 128
"""An upper bound on what one trim or registry entry adds to an answer, arguments summary included, at its common size."""
ENCODING_OF_OWN_TEXT = "o200k_base"
"""What pages of a retrieval are counted with, as no model is named there."""

_nothing: Callable[[str, bytes, str], None] = lambda *_: None  # noqa: E731 - the stash of a dry run


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
        self.tokens: TokenFigures | None = None
        self.cache: CacheFigures | None = None
        self.sent_total = 0
        self.returned_total = 0

    def forget_memory(self) -> None:
        """Start the fold anew: what it caches can be derived again from the next prompt."""
        self.memory = Memory(self.key, self.hold_bytes)


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
            if run.format != call.format:
                run.forget_memory()  # another format is another history
                run.format = call.format
            try:
                return self._trim(run, call, format_, policy, check)
            except SidecarError:
                raise
            except BaseException:
                run.forget_memory()
                raise
            finally:
                if not run.calls:
                    self._forget_unused(call.caller, call.run_id, run)

    def _trim(
        self, run: _Run, call: TrimCall, format_: Format, policy: Policy, check: Callable[[], None]
    ) -> TrimAnswer:
        began = perf_counter()
        counted = 0.0
        memory = run.memory
        before = memory.received
        body = self._split(run, call, format_, memory)
        if len(body) > self._limits.run_messages:
            raise TooLarge(
                f"the prompt has {len(body):,} messages; limits.run_messages allows {self._limits.run_messages:,}",
                field="json.body.messages",
            )
        model = call.model or _string_field(body, "model")
        encoding, exact = encoding_for(model)

        def count(text: str) -> int:
            nonlocal counted
            start = perf_counter()
            tokens = self._counter.count(text, encoding, check)
            counted += perf_counter() - start
            return tokens

        def count_finally(text: str) -> int:
            nonlocal counted
            start = perf_counter()
            tokens = self._counter.count(text, encoding)
            counted += perf_counter() - start
            return tokens

        field = "json.body.messages" if format_.is_json else "conversation.messages"
        revision, use = self._revision(run, call, len(memory.ledger))
        if revision is not None:
            memory.own.recognise(revision.own)
        if not len(memory.ledger):
            memory.own.recognise(_directives(format_))
        reads = read(body, before, format_, count, check, field)
        _check_pins(call.pinned, len(body))
        limit = self._limit(call, body, format_, model)
        overhead = PRIMING + self._overhead(body, reads, memory, format_, count)
        room = own_text.room(
            limit, policy.own_text_max_tokens, policy.note_max_tokens, policy.registry_share, count
        )
        recall = not call.recall_unavailable
        inputs = Inputs(policy, limit, overhead, room.total, recall)
        check()
        if call.side_call:
            return trim_slice(memory, body, reads, format_, encoding, exact, inputs, count, call.edits)
        scanned = perf_counter()
        scan_counted, counted = counted, 0.0
        work = Work(format_, body, reads, inputs, room, call.pinned, revision)
        accept = call.accept_bytes or ACCEPT_BYTES
        largest = len(body.raw) + 65_536 + BYTES_PER_TRIM * (len(memory.ledger.by_id) + 8 * (len(body) - body.same))
        tentative = call.dry_run or largest > accept
        target = copy.deepcopy(memory) if tentative else memory
        if call.dry_run:
            put: Callable[[str, bytes, str], None] = _nothing
            held: list[tuple[str, bytes, str]] = []
        elif tentative:
            held = []
            put = lambda *original: held.append(original)  # noqa: E731 - stored once the answer is accepted
        else:
            held = []
            put = lambda *original: self._put(run, call.caller, *original)  # noqa: E731
            self.stash.touch_run(run.stash_key)
        result = target.take(
            work, count_finally, put, lambda stash_id: self._alive(run, stash_id), self.stash.missing(run.stash_key)
        )
        trimmed = perf_counter()
        if result.revision_applied is False:
            use = RevisionUse.MISMATCHED
        answer = self._answer(run, call, format_, target, work, result, use, encoding, exact)
        size = len(answer.body or b"") + sum(map(len, answer.messages or ())) + len(answer.revision)
        size += sum(len(edit.value) + 64 for edit in answer.edits)
        size += sum(4 * len(own.text) for own in answer.own_text)
        size += BYTES_PER_TRIM * (len(answer.trims) + 4 * len(answer.stash_entries))
        if tentative and not call.dry_run and size > accept:
            raise TooLarge(
                f"the answer may take {size:,} bytes and the caller accepts {accept:,}; "
                "raise its receive limit and accept_bytes, or ask for edits",
                field="accept_bytes",
            )
        encoded = perf_counter()
        phases = Phases(
            scan=scanned - began - scan_counted,
            count=scan_counted + counted,
            trim=trimmed - scanned - counted,
            encode=encoded - trimmed,
        )
        if not call.dry_run:
            if tentative:
                self.stash.touch_run(run.stash_key)
                for original in held:
                    self._put(run, call.caller, *original)
                run.memory = target
            self._remember(run, target, answer)
        return _with_phases(answer, phases)

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
            raise InvalidRequest("conversation.messages is empty; it must hold at least one message", field="conversation")
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

    def _answer(
        self,
        run: _Run,
        call: TrimCall,
        format_: Format,
        memory: Memory,
        work: Work,
        result: Result,
        use: RevisionUse,
        encoding: str,
        exact: bool,
    ) -> TrimAnswer:
        inputs, framed, ledger = work.inputs, result.framed, memory.ledger
        tokens = TokenFigures(
            before=inputs.overhead + result.sent_tokens,
            after=result.after,
            limit=inputs.limit,
            encoding=encoding,
            exact=exact and not ledger.media,
            factor=1.0,
            own_text=result.own_tokens,
        )
        fits = tokens.after <= tokens.limit
        body = messages = None
        if not call.edits:
            if format_.is_json:
                body = b"".join((framed.head, b",".join(framed.parts), framed.tail))
            else:
                messages = framed.parts
        return TrimAnswer(
            body=body,
            messages=messages,
            edits=edits_of(work.split, framed, memory, format_) if call.edits else (),
            trims=memory.trims,
            stash_entries=memory.own.entries,
            tokens=tokens,
            fits=fits,
            no_fit=None if fits else _why_not(memory, inputs),
            revision=self._seal(run, memory),
            revision_use=use,
            cache=CacheFigures(
                first_changed=result.first_changed,
                kept=result.kept,
                rewritten=tokens.after - result.kept,
                batch_point=result.batch_point,
                batch_points=ledger.batches,
            ),
            own_text=framed.own,
            compacted=result.compacted,
            iteration=ledger.iteration,
            not_stashable=ledger.not_holdable,
            phases=Phases(),
        )

    def _seal(self, run: _Run, memory: Memory) -> bytes:
        state = memory.packed
        if len(state) > self._limits.revision_bytes:
            state = b""
        ledger = memory.ledger
        return seal(
            self._key, Revision(run_digest(run.key), len(ledger), ledger.chain, memory.own.identities(), state)
        )

    def _remember(self, run: _Run, memory: Memory, answer: TrimAnswer) -> None:
        run.calls += 1
        run.tokens, run.cache = answer.tokens, answer.cache
        run.sent_total += answer.tokens.before
        run.returned_total += answer.tokens.after
        received = memory.received
        if received is not None and received.nexts and len(received.nexts) >= len(memory.ledger):
            self.stash.received(run.stash_key)

    # -- what is in force --------------------------------------------------------------------------------------------

    def _policy_of(self, call: TrimCall) -> Policy:
        policy = self._policy
        if call.preset:
            policy = preset(call.preset).override(self._overrides)
        return policy.override(call.policy) if call.policy else policy

    def _limit(self, call: TrimCall, body: Split, format_: Format, model: str) -> int:
        if call.context_window < 0:
            raise InvalidRequest(
                f"context_window is {call.context_window}; it may be 0 (the known window) or more", field="context_window"
            )
        windows = [window for window in (call.context_window, known_window(model)) if window]
        window = min(windows) if windows else self._limits.default_window
        reserve = call.output_reserve
        if reserve is None:
            asked = (_int_field(body, name) for name in format_.reserve_fields)
            reserve = min(next((tokens for tokens in asked if tokens is not None), 0), window // 2)
        if not 0 <= reserve < window:
            raise InvalidRequest(
                f"output_reserve is {reserve}; it may be from 0 to {window - 1:,}, one less than the window",
                field="output_reserve",
            )
        return window - reserve

    def _overhead(
        self, body: Split, reads: list[Read], memory: Memory, format_: Format, count: Callable[[str], int]
    ) -> int:
        """Tokens of the system prompt and the tool schemas."""
        tokens = 0
        for name in (*format_.tool_fields, format_.system_field):
            value = body.field(name) if name else None
            if value is not None and value != b"null":
                weigh = partial(self._weigh_field, name, format_, memory, count)
                tokens += memory.field_tokens(name, value, weigh)
        return tokens + memory.leading_tokens(reads, format_)

    def _weigh_field(
        self, name: str, format_: Format, memory: Memory, count: Callable[[str], int], value: bytes
    ) -> int:
        field = f"json.body.{name}"
        if name == format_.system_field:
            value = without_own(value, memory.own.is_own_text)
            if format_.add_system is not None:
                format_.add_system(value, "")  # refuses a shape that could not be added to
        decoded = load(value, field)
        if name == format_.system_field and isinstance(decoded, list):
            return sum(_weigh_system(block, count) for block in decoded)
        return _weigh_system(decoded, count)

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
            lambda text: self._counter.count(text, ENCODING_OF_OWN_TEXT),
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

    def _put(self, run: _Run, caller: str, stash_id: str, original: bytes, content_type: str) -> None:
        self.stash.put(run.stash_key, caller, stash_id, original, content_type)

    def _alive(self, run: _Run, stash_id: str) -> bool:
        return self.stash.holds(run.stash_key, stash_id)

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
        if run is None:
            return None
        with run.lock:
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
        forgotten = None
        with self._lock:
            run = self._runs.get(name)
            if run is None:
                key = run_key(self._key, caller, run_id)
                run = self._runs[name] = _Run(key, key.hex(), now, self._limits.run_stash_bytes)
                if len(self._runs) > self._limits.runs:
                    _, forgotten = self._runs.popitem(last=False)
            run.last_seen = now
            self._runs.move_to_end(name)
        if forgotten is not None:
            self.stash.forget(forgotten.stash_key)
        return run


def configured_policy(name: str = DEFAULT_PRESET, overrides: Mapping[str, object] | None = None) -> Policy:
    """The policy of a preset with overrides. Raises InvalidPolicy."""
    return preset(name).override(overrides or {})


@cache
def _directives(format_: Format) -> list[bytes]:
    """Identities of the messages that directives are in a format; they are the same in every run."""
    if format_.system_message is None:
        return []
    texts = (own_text.DIRECTIVES, own_text.SHORT_DIRECTIVES)
    return [format_.read(format_.system_message(text), "own").identity for text in texts]


def _why_not(memory: Memory, inputs: Inputs) -> NoFit:
    if inputs.policy.fit_stage is FitStage.OFF:
        return NoFit.POLICY
    return NoFit.NOT_STASHABLE if memory.ledger.not_holdable else NoFit.PROTECTED_TEXT


def _check_pins(pinned: frozenset[int], messages: int) -> None:
    wrong = [index for index in pinned if not 0 <= index < messages]
    if wrong:
        raise InvalidRequest(
            f"annotations name message {min(wrong)}; the prompt has messages 0 to {messages - 1}", field="annotations"
        )


def _weigh_system(block: object, count: Callable[[str], int]) -> int:
    """Tokens of a system prompt's block, or of a tool schema."""
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        block = block["text"]
    return count(block) if isinstance(block, str) else count_opaque(canonical(block).decode(), count)


def _string_field(body: Split, name: str) -> str:
    value = body.field(name)
    decoded = load(value, f"json.body.{name}") if value is not None else ""
    return decoded if isinstance(decoded, str) else ""


def _int_field(body: Split, name: str) -> int | None:
    value = body.field(name)
    decoded = load(value, f"json.body.{name}") if value is not None else None
    return decoded if isinstance(decoded, int) and not isinstance(decoded, bool) and decoded >= 0 else None


def _with_phases(answer: TrimAnswer, phases: Phases) -> TrimAnswer:
    return replace(answer, phases=phases)
