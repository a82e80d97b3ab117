"""Opening a prompt: its parts and the values in force for it, found once, before anything in its run changes.

A body that differs from the run's others in its format, or in what decides a format's variant, is another history: our
own text has other places in it. A side call is a slice of the run's history, whatever surrounds it.

The limit is the least of the window that the agent asks for and the one that the model is known to have, less what is
kept for the answer (`engine/steps/windows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from prompt_sidecar.engine.steps.memory import Memory
from prompt_sidecar.engine.steps.received import (
    CountMany,
    Draft,
    GuardedDraft,
    Pass,
    SentMessage,
    Sighting,
    newest_compaction,
    read,
)
from prompt_sidecar.engine.steps.windows import Window
from prompt_sidecar.errors import (
    CallCancelled,
    DeadlinePassed,
    InvalidRequest,
    RevisionUnknown,
    SidecarError,
    TooLarge,
)
from prompt_sidecar.facts.known_models import Models
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.guard.masked_body import Before
from prompt_sidecar.guard.masking import ActionTaken, MaskedPrompt, NotedFinding
from prompt_sidecar.prompt.ambiguous import load_any
from prompt_sidecar.prompt.body import FIELD, Split, continued, join_slices, split
from prompt_sidecar.prompt.format import Compaction, DeferredTools, Format, ReasoningRule, Stands, SystemMember
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.jsontext import canonical, decoded_once
from prompt_sidecar.prompt.provider_edits import ProviderEdit, edits_of_provider
from prompt_sidecar.providers.claude import binds_thinking
from prompt_sidecar.providers.gpt import caches_at_breakpoints
from prompt_sidecar.tokens import encoding_for
from prompt_sidecar.tokens.calibration import Factors
from prompt_sidecar.tokens.weigh import PRIMING, count_opaque, weigh
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.inputs import Inputs
from prompt_sidecar.trim.own_text import NoteFacts, Room
from prompt_sidecar.trim.policy import Policy, ReasoningBinding
from prompt_sidecar.trim.revision import RULES_9, Revision, run_digest, unseal

NOT_A_BASE: Final = "base_revision is not a revision of this run that this process knows; send the whole history"
_SPACE: Final = b" \t\r\n"

Count = Callable[[str], int]


def _never() -> None:
    """Check nothing: the call cannot be cancelled."""


def _forget(_: Draft) -> None:
    """Keep no draft: the call has no retry."""


@dataclass(frozen=True, slots=True)
class PromptModel:
    """The model that a prompt is for, and what its window leaves. In the provider's tokens."""

    name: str
    """Empty: unset."""
    encoding: str
    exact: bool
    """Whether the model's own vocabulary counts the prompt."""
    limit: int = 0
    """The limit by windows and reserve."""
    reserve: int = 0
    """The part of the window that is kept for the answer."""
    window: int = 0
    window_assumed: bool = False
    """Whether the window is the configured default, as neither the agent nor the table of known models gives one."""
    breakpoints: bool = False
    """Whether it caches a prompt at breakpoints only; see `prompt_sidecar.providers.gpt`."""
    found: Window = field(default_factory=Window)
    """Its known window, found at the run's first prompt for it."""


@dataclass(frozen=True, slots=True)
class GuardedPrompt:
    """A prompt as it was sent, and the guard's work on it."""

    sent: Split
    """The sent body, for its edits and for comparing the next prompt; the masked body itself if nothing is masked."""
    masks: bool
    """Whether the guard masks the run's prompts."""
    unmasked: Mapping[int, bytes]
    """Identities of messages as they were sent, by index, if the revision's history was not masked."""
    originals: Mapping[int, bytes]
    """Messages in which the guard has defanged imitations, by index, as they were before."""
    sightings: Sequence[Sighting]
    """Finds of the guard's rules in the new parts."""
    done: GuardedDraft | None
    """For a retry; None if there is no guard."""
    recorded: int
    """Number of messages in the history before the prompt's first call: a retry may find more."""


@dataclass(frozen=True, slots=True)
class OpenedPrompt:
    """A prompt that was split, masked, read and checked."""

    call: TrimCall
    format: Format
    """The format's variant of the body."""
    body: Split
    """Masked: nothing behind the guard sees more than this."""
    guard: GuardedPrompt
    reads: list[SentMessage]
    """Its messages; their texts are forgotten once records are made from them."""
    memory: Memory
    """The memory that it is taken into: the run's, or an empty one if the prompt is another history."""
    continues: bool
    """Whether that is the run's memory."""
    policy: Policy
    provider_edits: Sequence[ProviderEdit]
    """What the body asks the provider to remove."""
    model: PromptModel
    compaction: int
    """The newest message with a provider's compaction; -1 if there is none."""
    revision: Revision | None
    """The revision that was sent, read only if the run is not known or binds reasoning to its prompts; None if there is
    none, or it belongs to another run, key or version."""

    @property
    def unseen(self) -> int:
        """Number of its first messages that take no tokens, as the provider drops them."""
        return max(self.compaction, 0) if self.format.compaction is Compaction.DROPS else 0


@dataclass(frozen=True, slots=True)
class _SplitPrompt:
    """A prompt that was split, and the memory that it belongs to."""

    call: TrimCall
    format: Format
    split: Split
    memory: Memory
    model: str


@dataclass(frozen=True, slots=True)
class Served:
    """Which model calls of a history answered prompts that the sidecar returned; the agent may have sent others."""

    iterations: int | None = None
    """The number of such iterations at the start, if the agent reports it, else None."""
    revision: Revision | None = None
    """If the agent does not report it: all up to this revision, the last that it got; None: the prompts that this
    process returned."""


@dataclass(frozen=True, slots=True)
class PromptWork:
    """A prompt that was opened, with what is in force for it in its run."""

    opened: OpenedPrompt
    inputs: Inputs
    room: Room
    shown: NoteFacts
    """State that the note and the registry's end show in addition to trims."""
    count: Count
    count_many: CountMany
    revision: Revision | None = None
    """The revision that a fresh process continues from; None if none was sent, or the run is known."""
    served: Served | None = None
    """None if unknown: then all are assumed to be."""
    check: Callable[[], None] = field(default=_never)
    """Called now and then while the prompt is taken; what it raises ends the call, and decisions made so far stay."""
    since: int = 0
    """Iteration of the run's last answer, if the memory may have been given up since: decisions up to there are not
    news."""


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens the prompts of all runs."""

    keys: Keys
    """Sign revisions."""
    limits: Limits
    models: Models
    """The windows and encodings of known models."""

    def open(
        self, call: TrimCall, memory: Memory, policy: Policy, by: Pass, window: Callable[[str], Window]
    ) -> OpenedPrompt:
        """Open a prompt.

        Args:
            call: the prompt.
            memory: its run's memory.
            policy: how it is trimmed.
            by: what the call provides for masking, counting and drafts.
            window: returns what is known of a model's window, by the model's name.

        Raises:
            InvalidRequest: the body is not of the format's shape, or another field is wrong.
            TooLarge: it has too many messages, or too many new items.
            RevisionUnknown: `base_revision` is not a state of this run that this process knows.
            GuardRefused: it holds what a rule of the guard refuses.
        """
        if FORMATS[call.format].single:  # drafts belong to the history
            by = replace(by, draft=None, keep=_forget)
        placed = self._place(call, memory, policy.reasoning_binding, by)
        with naming(placed.model):
            return self._opened(call, policy, by, window, placed, before=memory)

    def _opened(
        self,
        call: TrimCall,
        policy: Policy,
        by: Pass,
        window: Callable[[str], Window],
        placed: _SplitPrompt,
        *,
        before: Memory,
    ) -> OpenedPrompt:
        """Mask and read a prompt that has its place, and find what its model's window leaves.

        `before`: its run's memory.
        """
        into, format_ = placed.memory, placed.format
        named = self.models.alike(placed.model)
        encoding, exact = encoding_for(named)
        with decoded_once():  # by the guard and the reader
            masked, done = self._mask(placed, by)
            body = masked.split
            provider_edits = edits_of_provider(body)
            if format_.single:
                reads = [_read_single(body, format_, by.counting(encoding))]
            else:
                most = self.limits.run_items
                count_many = by.counting(encoding)
                reads = read(body, into.received, format_, by, count_many=count_many, guarded=done, most_items=most)
        check_annotations(call, len(body))
        model = PromptModel(placed.model, encoding, exact, breakpoints=caches_at_breakpoints(named))
        model = _with_window(model, call, body, format_, window(placed.model))
        asked = not format_.single and (not len(into.ledger) or format_.reasoning is ReasoningRule.BOUND)
        revision = self.revision(call.revision or call.base_revision, into) if asked else None
        masks = by.masker is not None and by.masker.masks
        sightings = done.sightings if done is not None else None
        if sightings is None:
            sightings = _sighted(masked.noted, reads)
        unmasked = masks and revision is not None and not revision.rules
        return OpenedPrompt(
            call=call,
            format=format_,
            body=body,
            guard=GuardedPrompt(
                sent=placed.split,
                masks=masks,
                unmasked=_unmasked(placed.split, body, format_) if unmasked else {},
                originals=masked.originals,
                sightings=sightings,
                done=replace(done, sightings=sightings) if done is not None else None,
                recorded=done.recorded if done is not None else len(into.ledger),
            ),
            reads=reads,
            memory=into,
            continues=into is before,
            policy=policy if policy.trim_beside_provider else policy.beside(provider_edits),
            provider_edits=provider_edits,
            model=model,
            compaction=-1 if format_.single else newest_compaction(reads, format_),
            revision=revision,
        )

    def _place(self, call: TrimCall, memory: Memory, binding: ReasoningBinding, by: Pass) -> _SplitPrompt:
        """Split a prompt, and find its memory: the run's, or an empty one for another history."""
        named = FORMATS[call.format]
        into = memory if memory.format is not None and memory.format.name == named.name else memory.fresh()
        split_ = self._split(call, named, into, by.check)
        model = call.model or _string_member(split_, "model")
        variant = _variant(call, named, split_, self.models.alike(model), into, binding)
        if len(into.ledger) and variant is not into.format:
            if call.base_revision:
                raise RevisionUnknown(NOT_A_BASE, field="base_revision")
            ours = into.own
            into = memory.fresh()
            into.own.take_over(ours)
            split_ = replace(split_, same=0)
        if len(split_) > self.limits.run_messages:
            raise TooLarge(
                f"the prompt has {len(split_):,} messages; limits.run_messages allows {self.limits.run_messages:,}",
                field=named.messages_path,
                bound="limits.run_messages",
            )
        if named.single:
            check_annotations(call, len(split_))
        return _SplitPrompt(call, variant, split_, into, model)

    def was_masked(self, call: TrimCall, memory: Memory) -> bool:
        """Whether the run's prompts were masked elsewhere, according to the revision that was sent."""
        revision = self.revision(call.revision, memory) if call.revision else None
        return revision is not None and bool(revision.rules)

    @staticmethod
    def _mask(placed: _SplitPrompt, by: Pass) -> tuple[MaskedPrompt, GuardedDraft | None]:
        """Mask the sent prompt. Returns the masked prompt, and the guard's draft for a retry of the call."""
        sent, memory, format_, masker = placed.split, placed.memory, placed.format, by.masker
        if masker is None:
            return MaskedPrompt(sent), None
        kept = by.draft.guarded if by.draft is not None else None
        received = memory.received

        def stands(raw: bytes) -> bool:
            identity = format_.read(raw, "history").identity
            return any(
                record.identity == identity
                or (record.touched > 0 and identity in memory.rendered.known_forms(index, format_))
                for index, record in enumerate(memory.ledger.records)
            )

        def so_far() -> GuardedDraft | None:
            progress = masker.progress
            if progress is None:
                return None
            return (
                kept if kept is not None and kept.progress is progress else GuardedDraft(progress, len(memory.ledger))
            )

        before = Before(received.sent, received.split) if received is not None else None
        try:
            masked = masker.mask(sent, before, format_, by.check, stands, kept.progress if kept is not None else None)
        except (DeadlinePassed, CallCancelled):
            by.keep(Draft(format_, sent, [], so_far()))
            raise
        return masked, so_far()

    def revision(self, sealed: bytes, memory: Memory) -> Revision | None:
        """Return a revision of the memory's run; None if it is empty, or belongs to another run, key or version."""
        for key in self.keys.all if sealed else ():
            revision = unseal(key, sealed)
            if revision is not None and revision.run == run_digest(memory.recorder.of_run):
                return revision
        return None

    def _split(self, call: TrimCall, format_: Format, memory: Memory, check: Callable[[], None]) -> Split:
        if format_.single:
            return _split_single(call)
        received = memory.received
        base = self._base(call.base_revision, memory) if call.base_revision else None
        known = received.sent if received is not None and base is None else None
        if format_.is_json:
            text = format_.text_message and base is None
            new = split(call.body, known, format_.messages_field, text=text, check=check)
        elif call.messages or base is not None:
            new = join_slices(call.messages or (), known)
        else:
            raise InvalidRequest(
                "conversation.messages is empty; it must hold at least one message", field="conversation"
            )
        return new if base is None else continued(*base, new, is_json=format_.is_json)

    def _base(self, sealed: bytes, memory: Memory) -> tuple[Split, int]:
        """Return the last prompt, and how many of its messages make up the history that a revision covers."""
        revision = self.revision(sealed, memory)
        records = memory.ledger.records
        received = memory.received
        if (
            revision is not None
            and received is not None
            and not received.split.is_text
            and 0 < revision.length <= len(records)
            and records[revision.length - 1].chain == revision.chain
        ):
            kept = len(received.rows)
            while kept and received.rows[kept - 1].next > revision.length:
                kept -= 1
            if kept and received.rows[kept - 1].next == revision.length:
                return received.sent, kept
        raise RevisionUnknown(NOT_A_BASE, field="base_revision")


def _split_single(call: TrimCall) -> Split:
    """Split a single result: a body of one message, which is all but the white space around it."""
    if call.base_revision:
        raise InvalidRequest(
            "base_revision goes with a history; a single result is sent whole, without it", field="base_revision"
        )
    raw = call.body
    first, last = len(raw) - len(raw.lstrip(_SPACE)), len(raw.rstrip(_SPACE))
    return Split(raw, [first], [max(first, last)], {}, is_object=False)


def _read_single(body: Split, format_: Format, count_many: CountMany) -> SentMessage:
    message = format_.read(body.message(0), FIELD)
    weight = weigh([message], count_many)[0]
    return SentMessage(message.identity, weight.total, message.role, message, weight)


def _unmasked(sent: Split, body: Split, format_: Format) -> Mapping[int, bytes]:
    """Return the identities of the masked messages as they were sent."""
    if sent is body:
        return {}
    return {
        index: format_.read(sent.message(index), "history").identity
        for index in range(len(sent))
        if sent.message(index) != body.message(index)
    }


def _sighted(noted: Sequence[NotedFinding], reads: Sequence[SentMessage]) -> Sequence[Sighting]:
    """Return the finds, by the item that they are in."""
    counts: dict[tuple[int, str, int, str, ActionTaken], int] = {}
    for each in noted:
        message = reads[each.message].message if each.message >= 0 else None
        items = message.items if message is not None else ()
        inside = [
            (len(item.path), number) for number, item in enumerate(items) if item.path == each.path[: len(item.path)]
        ]
        where = each.message, each.member, max(inside, default=(0, -1))[1], each.rule, each.action
        counts[where] = counts.get(where, 0) + each.count
    return [Sighting(*where, count) for where, count in counts.items()]


def inputs_of(
    opened: OpenedPrompt, limit: int, factors: Factors, count: Count, *, first: float, began_under: int
) -> tuple[Inputs, Room]:
    """Return the inputs of an evaluation of the prompt, and the room for our own text.

    Args:
        opened: the prompt.
        limit: tokens that it may take, raw.
        factors: what calibration multiplies the counts with.
        count: counts tokens.
        first: the factor for texts before any report.
        began_under: version of the rules that the run began under.
    """
    format_, policy = opened.format, opened.policy
    ceiling = int(policy.ceiling(opened.model.window) / factors.text)
    ceiling = ceiling if ceiling < limit else 0
    room_limit = ceiling or limit
    if began_under >= RULES_9:
        # As before any report: replicas that were given other reports write the same names.
        announced = min(opened.model.limit, policy.ceiling(opened.model.window) or opened.model.limit)
        room_limit = int(announced / first)
    room = opened.memory.room(opened.model.encoding, room_limit, policy, count, opened.guard.masks)
    edited = () if policy.trim_beside_provider else opened.provider_edits
    overhead = _overhead_of(opened, count)
    inputs = Inputs(
        policy,
        limit,
        overhead,
        room.total,
        not opened.call.recall_unavailable,
        reasoning=policy.reasoning_rule(format_.reasoning, edited),
        reasoning_messages=format_.reasoning_messages,
        own_in_history=format_.placement.lists is Stands.INSIDE,
        behind_registry=overhead if _rewrites_overhead(format_) else 0,
        own_after_user=format_.placement.after_user,
        alternating=format_.alternating,
        opaque_factor=factors.opaque / factors.text,
        ceiling=ceiling,
    )
    return inputs, room


def with_window(opened: OpenedPrompt, found: Window) -> OpenedPrompt:
    """Return the prompt with its model's window replaced by the run's first one, according to its revision.

    Raises InvalidRequest if that leaves nothing for the prompt.
    """
    if found == opened.model.found:
        return opened
    return replace(opened, model=_with_window(opened.model, opened.call, opened.body, opened.format, found))


def numbered_as_begun(opened: OpenedPrompt, revision: Revision | None) -> OpenedPrompt:
    """Return a prompt with an empty memory, with the texts of results numbered as when its run began.

    The numbering is given by the revision that it continues from, or without one by the memory's format before it was
    given up.
    """
    format_, begun = opened.format.as_sent, opened.memory.format
    as_sent = begun is not None and begun.numbers_as_sent if revision is None else not revision.results_by_name
    if format_ is None or not as_sent:
        return opened
    reads = list(opened.reads)
    moved: dict[tuple[int, int], int] = {}
    for index, each in enumerate(opened.reads):
        message, weight = each.message, each.weight
        if message is None or weight is None:
            continue
        items = format_.read(opened.body.message(index), "history", identify=False).items
        before = {item.path: number for number, item in enumerate(message.items)}
        places = [before[item.path] for item in items]
        if places == list(range(len(places))):
            continue
        moved |= {(index, place): number for number, place in enumerate(places)}
        weight = weight._replace(items=tuple(weight.items[place] for place in places))
        items = tuple(message.items[place] for place in places)
        reads[index] = each._replace(message=message._replace(items=items), weight=weight)
    seen = [each._replace(item=moved.get((each.message, each.item), each.item)) for each in opened.guard.sightings]
    done = replace(opened.guard.done, sightings=seen) if opened.guard.done is not None else None
    return replace(opened, format=format_, reads=reads, guard=replace(opened.guard, sightings=seen, done=done))


def _with_window(model: PromptModel, call: TrimCall, body: Split, format_: Format, found: Window) -> PromptModel:
    """Return the model with what its window leaves for the prompt. Raises InvalidRequest if that is nothing."""
    asked = call.context_window
    limit, reserve = _limit(call, body, format_, found)
    window, assumed = found.of(asked), found.assumed(asked)
    return replace(model, limit=limit, reserve=reserve, window=window, window_assumed=assumed, found=found)


def _limit(call: TrimCall, body: Split, format_: Format, found: Window) -> tuple[int, int]:
    """Return the prompt's limit and the output reserve, in tokens.

    Raises InvalidRequest if the limit is zero or less.
    """
    if call.context_window < 0:
        raise InvalidRequest(
            f"context_window is {call.context_window}; it may be 0 (the known window) or more", field="context_window"
        )
    window = found.of(call.context_window)
    reserve = call.output_reserve
    if reserve is None:
        asked = (_whole_number(body, name) for name in format_.reserve_fields)
        reserve = min(next((tokens for tokens in asked if tokens is not None), 0), window // 2)
    if not 0 <= reserve < window:
        raise InvalidRequest(
            f"output_reserve is {reserve}; it may be from 0 to {window - 1:,}, one less than the window",
            field="output_reserve",
        )
    return found.limit(call.context_window, reserve), reserve


def check_annotations(call: TrimCall, messages: int) -> None:
    """Check annotations. Raises InvalidRequest if one names a message that was not sent."""
    wrong = [index for index in (*call.pinned, *call.annotations) if not 0 <= index < messages]
    if wrong:
        raise InvalidRequest(
            f"annotations name message {min(wrong)}; the prompt has messages 0 to {messages - 1}", field="annotations"
        )


def _variant(  # noqa: PLR0917 - what decides it
    call: TrimCall, format_: Format, body: Split, model: str, memory: Memory, binding: ReasoningBinding
) -> Format:
    """Return the variant of its format that a body is in."""
    if (call.side_call or call.as_run) and len(memory.ledger) and memory.format is not None:
        return memory.format
    variant = format_ if format_.variant is None else format_.variant(body, model)
    bound = binds_thinking(model) if binding is ReasoningBinding.AUTO else binding is ReasoningBinding.BOUND
    variant = variant.bound if bound and variant.bound is not None else variant
    began = memory.format
    return began if len(memory.ledger) and began is not None and began is variant.as_sent else variant


def _overhead_of(opened: OpenedPrompt, count: Count) -> int:
    """Return the tokens of the system prompt without ours, the tool schemas, and what opens the answer."""
    body, format_, memory = opened.body, opened.format, opened.memory
    tokens = PRIMING
    for name in format_.tool_fields:
        value = body.field(name)
        if value is not None and value != b"null":
            tokens += memory.member_tokens(name, value, partial(_weigh_schemas, name, count, format_.deferred))
    name, value = format_.member(body)
    if format_.system is not None and value is not None and value != b"null":
        tokens += memory.member_tokens(name, value, partial(_weigh_system, format_.system, memory, count))
    return tokens + (memory.leading_tokens(opened.reads) if format_.leading_system else 0)


def _rewrites_overhead(format_: Format) -> bool:
    """Whether a change of the registry makes the provider read system prompt, tools and leading messages again."""
    outside = format_.placement.lists is Stands.OUTSIDE
    return outside and format_.system is not None and format_.system.one_text


def _weigh_schemas(name: str, count: Count, deferred: DeferredTools | None, value: bytes) -> int:
    """Return the tokens of tools that the model sees from the start; deferred ones count where they are loaded."""
    decoded = load_any(value, f"json.body.{name}")
    decoded = decoded if deferred is None else deferred.seen(decoded)
    return count(decoded) if isinstance(decoded, str) else count_opaque(canonical(decoded).decode(), count)


def _weigh_system(system: SystemMember, memory: Memory, count: Count, value: bytes) -> int:
    """Return the tokens of a system prompt without ours. Refuses a shape that our text could not be added to."""
    value = system.without(value, memory.own.is_own_text)
    system.add(value, "")
    return sum(count_opaque(text, count) if text[:1] == "{" else count(text) for text in system.texts(value))


@contextmanager
def naming(model: str) -> Iterator[None]:
    """Make errors name the model of the refused prompt."""
    try:
        yield
    except SidecarError as error:
        error.model = error.model or model
        raise


def _string_member(body: Split, name: str) -> str:
    decoded = _member(body, name)
    return decoded if isinstance(decoded, str) else ""


def _whole_number(body: Split, name: str) -> int | None:
    decoded = _member(body, name)
    return decoded if isinstance(decoded, int) and not isinstance(decoded, bool) and decoded >= 0 else None


def _member(body: Split, name: str) -> Any:
    value = body.field(name)
    return load_any(value, f"json.body.{name}") if value is not None else None
