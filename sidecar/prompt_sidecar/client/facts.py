"""The sidecar's answers as frozen dataclasses.

Each has the fields of its message in `protos/prompt_sidecar/v1/`, under the same names; the comments there explain
them. Enums are words in lower case (`elided`, `hit`), times are aware datetimes, JSON stays text or bytes. They
are read from their messages by field names and types, so a new field of the protos takes one line here.
"""

from __future__ import annotations

import datetime as dt
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from prompt_sidecar.client.schema import enum_name

Fact = TypeVar("Fact")
Prompt = TypeVar("Prompt")


@dataclass(frozen=True, slots=True)
class Trim:
    """One item that is trimmed in the prompt."""

    message_index: int
    item_index: int
    kind: str
    action: str
    reason: str
    tokens_saved: int
    stash_id: str
    decided_iteration: int


@dataclass(frozen=True, slots=True)
class StashEntry:
    """An entry of the registry."""

    stash_id: str
    kind: str
    tool: str
    arguments_summary: str
    iteration: int
    original_bytes: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token figures of a prompt."""

    before: int
    after: int
    limit: int
    encoding: str
    exact: bool
    calibration_factor: float
    own_text: int
    window_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Cache:
    """How much of the provider's prompt cache is kept."""

    first_changed_message: int
    kept_prefix_tokens: int
    rewritten_tokens: int
    batch_point: bool
    batch_points: int


@dataclass(frozen=True, slots=True)
class OwnText:
    """A piece of the sidecar's own text."""

    kind: str
    place: str
    message_index: int
    text: str


@dataclass(frozen=True, slots=True)
class KindTokens:
    """The tokens of one kind of item in a history."""

    kind: str
    tokens_sent: int
    tokens_returned: int
    items: int


@dataclass(frozen=True, slots=True)
class HistorySize:
    """How large a run's history is."""

    kinds: tuple[KindTokens, ...]
    messages: int
    messages_returned: int
    tokens_sent: int
    tokens_returned: int
    share_of_limit: float


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """A call that was made before with the same arguments and had the same result."""

    tool: str
    iteration: int
    first_iteration: int
    times: int
    tokens: int
    message_index: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule of the guard found in one item."""

    rule: str
    action: str
    """observed, masked or defanged."""
    message_index: int
    item_index: int
    count: int


@dataclass(frozen=True, slots=True)
class CeilingUse:
    """A ceiling and what is used of it."""

    scope: str
    """run or caller."""
    kind: str
    """input_tokens, cost, model_calls or repeated_calls."""
    action: str
    """observe, warn or refuse."""
    limit: float
    used: float


@dataclass(frozen=True, slots=True)
class Restored:
    """A tool call's arguments with values in place of masks."""

    arguments: str
    restored: int
    not_allowed: int
    """Masks that stay, as no pair of tool and kind on the sidecar's list allows them."""
    unknown: int
    """Masks that stay, as the sidecar does not have their values."""


@dataclass(frozen=True, slots=True)
class Trimmed(Generic[Prompt]):
    """A prompt to send to the model: trimmed, or made without the sidecar where the client failed open."""

    prompt: Prompt
    """In the shape that was given. Objects that were not trimmed are the very same objects."""
    trimmed: bool = False
    """Whether the sidecar answered; `trims` lists what it trimmed, if anything."""
    reason: str = ""
    """Why the sidecar did not trim it: the reason of its error, a gRPC status code, or CIRCUIT_OPEN."""
    fallback: str = ""
    """The kind of a prompt made without the sidecar: `last_prompt` (with the messages since), `left_out` (the same
    without the oldest iterations) or `as_given`. Empty: the sidecar trimmed it, or it must not be sent."""
    left_out: int = 0
    """Iterations that the client left out since the sidecar last answered."""
    thinking_removed: int = 0
    """Blocks of thinking that the client removed, as the provider would refuse them: what precedes them has changed."""
    refused: bool = False
    """Whether the provider is known to have refused it as too long."""
    fits: bool | None = None
    """Whether it is within the limit; None: it was not counted."""
    no_fit_reason: str = "unspecified"
    trims: tuple[Trim, ...] = ()
    stash_entries: tuple[StashEntry, ...] = ()
    tokens: Tokens | None = None
    revision: bytes = b""
    cache: Cache | None = None
    own_text: tuple[OwnText, ...] = ()
    compacted: bool = False
    iteration: int = 0
    not_stashable: int = 0
    revision_use: str = "unspecified"
    history_size: HistorySize | None = None
    crossed_percent: tuple[int, ...] = ()
    repeated_calls: tuple[RepeatedCall, ...] = ()
    thinking_invalid_from: int | None = None
    provider_edits: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What the guard found in what is new; never the text."""
    ceilings: tuple[CeilingUse, ...] = ()
    """The ceilings that are set, with what is used of them."""
    observed_only: bool = False
    """Whether the sidecar only observes: the prompt is the one that was given, and the rest says what would be done."""
    comparison: Comparison | None = None
    """What the run's prompts cost so far, next to never trimming; None: the prompt is not part of the run's history."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of an original."""

    start_byte: int
    end_byte: int
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A page of an original; `outcome` is hit, expired, evicted, not_found or run_unknown."""

    outcome: str
    message: str
    content: bytes
    content_type: str
    total_bytes: int
    total_lines: int
    stretches: tuple[Stretch, ...]
    more: bool
    next_offset: int
    matching_lines: int
    content_tokens: int


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of one item of the history, verbatim."""

    stash_id: str
    role: str
    kind: str
    tool: str
    call_id: str
    iteration: int
    start_byte: int
    end_byte: int
    first_line: int
    last_line: int
    total_bytes: int
    total_lines: int
    content_type: str
    text: str
    score: float
    tokens: int
    repeats: int


@dataclass(frozen=True, slots=True)
class InPrompt:
    """An item that a search matched and that stands whole in the prompt; the lines are those of its best passage."""

    stash_id: str
    role: str
    kind: str
    tool: str
    iteration: int
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search; `outcome` is found, nothing_found or run_unknown.

    Where `not_indexed_items` is more than 0, those were not searched yet: search again.
    """

    outcome: str
    message: str
    snippets: tuple[Snippet, ...]
    rendered: str
    matching_items: int
    first_iteration: int
    last_iteration: int
    gone_items: int
    terms_left_out: int
    rendered_tokens: int
    in_prompt: tuple[InPrompt, ...]
    not_indexed_items: int
    first_not_indexed_iteration: int
    last_not_indexed_iteration: int


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a run; `status` is pending, in_progress or completed."""

    id: int
    text: str
    status: str


@dataclass(frozen=True, slots=True)
class TaskList:
    """A run's tasks."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """One of the sidecar's tools for the model."""

    name: str
    description: str
    parameters_json: str
    definition_json: bytes


@dataclass(frozen=True, slots=True)
class Tools:
    """The sidecar's tools for the model; `tools_json` holds their definitions in the requested format."""

    tools: tuple[Tool, ...]
    tools_json: bytes


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer to a tool call; give `content` to the model unchanged."""

    outcome: str
    content: str
    is_error: bool
    content_tokens: int = 0
    recalled: Retrieved | None = None
    found: Found | None = None
    tasks: TaskList | None = None


@dataclass(frozen=True, slots=True)
class UsageLearned:
    """What the sidecar learned from a usage report."""

    outcome: str
    estimated_tokens: int
    real_tokens: int
    error_percent: float
    factor_before: float
    factor_after: float
    calibration_use: str
    learned_limit: int
    next_limit: int
    cache_use: str
    cached_tokens_expected: int
    cached_tokens: int
    cache_hit_share: float
    comparison: Comparison | None
    """What the run's prompts cost so far, next to never trimming, with this report; None: an old server."""


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The number of retrievals with one outcome."""

    outcome: str
    count: int


@dataclass(frozen=True, slots=True)
class StashFigures:
    """The figures of a run's stash."""

    entries: int
    held_bytes: int
    original_bytes: int
    expired: int
    evicted: int
    retrievals: tuple[OutcomeCount, ...]


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """The figures of a run's history and its searches."""

    items: int
    passages: int
    index_bytes: int
    waiting_bytes: int
    first_iteration: int
    searches: int
    searches_found: int
    tool_calls: int


@dataclass(frozen=True, slots=True)
class UsageFigures:
    """Sums of what was reported for a run's prompts."""

    reports: int
    refusals: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cache_breaks: int
    learned_limit: int


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run's figures."""

    run_id: str
    started: dt.datetime | None
    last_seen: dt.datetime | None
    calls: int
    iteration: int
    messages: int
    tokens: Tokens | None
    cache: Cache | None
    tokens_sent_total: int
    tokens_returned_total: int
    trimmed_items: int
    stash: StashFigures | None
    unfinished_tasks: tuple[Task, ...]
    history: HistoryFigures | None
    history_size: HistorySize | None
    repeated_calls: int
    repeated_tokens: int
    usage: UsageFigures | None
    ceilings: tuple[CeilingUse, ...]
    cost: float | None
    """None: no model of the run has a price."""
    observed_only: bool
    comparison: Comparison | None
    """None: the server is too old to tell."""
    store: StoreFigures | None
    """None: the sidecar has no shared store, or is too old to tell."""


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """A run in the shared store, as the sidecar that was asked sees it."""

    reachable: bool
    waiting_calls: int
    """Calls whose changes are not there yet: another replica does not have them."""
    detached: bool
    """Whether the store takes no more of the run from this sidecar."""


@dataclass(frozen=True, slots=True)
class PromptBill:
    """What prompts count for: tokens kept since the prompt before, new tokens, and their cost where it is known."""

    kept_tokens: int
    new_tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a run's prompts cost, next to what they would have cost untrimmed; see docs/when-to-cut.md."""

    prompts: int
    refused: int
    """Larger than the window untrimmed, and on neither side."""
    recalls: int
    """For the sake of the sidecar's own tools alone."""
    returned: PromptBill | None
    untrimmed: PromptBill | None
    reported: int
    """Of `prompts`, those that count by what the provider counted."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of ending a run."""

    ended: bool
    run: RunFigures | None


def read(fact: Callable[..., Fact], message: Any, **more: Any) -> Fact:
    """Return a dataclass with its message's values; `more` are the fields that the message does not have."""
    known = message.DESCRIPTOR.fields_by_name
    taken = {name: take(message, known[name]) for name, take in _takers(fact).items() if name in known}
    return fact(**(taken | more))


@cache
def _takers(fact: Any) -> dict[str, Callable[[Any, Any], Any]]:
    hints = typing.get_type_hints(fact)
    return {field.name: _taker(hints[field.name]) for field in fields(fact)}


def _taker(hint: Any) -> Callable[[Any, Any], Any]:
    """Return what reads a field of this type from a message, given the field's descriptor."""
    if typing.get_origin(hint) is tuple:
        each = typing.get_args(hint)[0]
        if not is_dataclass(each):
            return _scalars
        of = _of_message(each)
        return lambda message, field: tuple(map(of, getattr(message, field.name)))
    inner = typing.get_args(hint)[0] if typing.get_origin(hint) is types.UnionType else None
    if is_dataclass(inner) or inner is dt.datetime:
        some = _of_message(inner)
        return lambda message, field: some(getattr(message, field.name)) if message.HasField(field.name) else None
    if inner in (int, float):
        return lambda message, field: _scalar(message, field) if message.HasField(field.name) else None
    return _scalar


def _of_message(kind: Any) -> Callable[[Any], Any]:
    return _time if kind is dt.datetime else lambda message: read(kind, message)


def _scalar(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    return value if field.enum_type is None else enum_name(field, value)


def _scalars(message: Any, field: Any) -> tuple[Any, ...]:
    values = getattr(message, field.name)
    return tuple(values) if field.enum_type is None else tuple(enum_name(field, value) for value in values)


def _time(stamp: Any) -> dt.datetime | None:
    """A time; None: no calendar has it."""
    try:
        since = dt.timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1_000)
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + since
    except OverflowError:
        return None
