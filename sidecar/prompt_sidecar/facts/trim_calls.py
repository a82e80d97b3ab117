"""A prompt to trim, and the answer: the trimmed prompt, what was taken from it and why, and the figures.

The servicer turns requests into these and these into answers; telemetry reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prompt_sidecar.facts.comparison import Compared, Comparison, Recount
from prompt_sidecar.facts.guard_calls import Finding
from prompt_sidecar.facts.history_size import HistorySize
from prompt_sidecar.facts.untrimmed import Untrimmed
from prompt_sidecar.guard.ceilings import CeilingUse
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.prompt.provider_edits import ProviderEdit
from prompt_sidecar.trim.entries import CUTS, Action, Reason
from prompt_sidecar.trim.repeated_calls import Repetition


class Annotation(StrEnum):
    """An agent's annotation of one of its messages, apart from pinning."""

    SNAPSHOT = "snapshot"
    VALIDATION_FEEDBACK = "validation_feedback"
    STEP_ERROR = "step_error"
    REPETITION_WARNING = "repetition_warning"


class NoFit(StrEnum):
    """Why a prompt does not fit."""

    PROTECTED_TEXT = "protected_text"
    POLICY = "policy"
    NOT_STASHABLE = "not_stashable"


class OwnTextKind(StrEnum):
    """The kinds of own text."""

    DIRECTIVES = "directives"
    REGISTRY = "registry"
    NOTE = "note"
    DROPPED = "dropped"


class OwnTextPlace(StrEnum):
    """Where a piece of own text is placed."""

    SYSTEM = "system"
    HISTORY = "history"
    TAIL = "tail"
    CALLER = "caller"


class RevisionUse(StrEnum):
    """Whether the sent revision was used."""

    NONE = "none"
    NOT_NEEDED = "not_needed"
    APPLIED = "applied"
    MISMATCHED = "mismatched"
    AHEAD = "ahead"
    """It was newer than this process's memory of the run: from the agent, or from the archive."""


class EditOperation(StrEnum):
    """The kinds of edits."""

    REPLACE = "replace"
    INSERT = "insert"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class TrimCall:
    """A prompt to trim. Exactly one of `body` and `messages` is given."""

    caller: str
    run_id: str
    format: str
    """A key of `prompt_sidecar.prompt.formats.FORMATS`, such as `openai_chat`; `conversation` goes with `messages`."""
    body: bytes = b""
    """The request body, UTF-8 JSON."""
    messages: Sequence[bytes] | None = None
    """Typed messages, each as its serialised bytes."""
    model: str = ""
    context_window: int = 0
    """Tokens; 0: the model's known window, else the configured one."""
    output_reserve: int | None = None
    """Tokens; None: the body's own value."""
    preset: str = ""
    """Empty: the configured policy."""
    policy: Mapping[str, object] = field(default_factory=dict)
    """Overrides, by field name of `Policy`."""
    pinned: frozenset[int] = frozenset()
    """Indices of pinned messages among those sent."""
    annotations: Mapping[int, Annotation] = field(default_factory=dict)
    """Annotations of messages, by their index among those sent; used when a message is first seen."""
    recall_unavailable: bool = False
    dry_run: bool = False
    as_run: bool = False
    """Whether the body does not show how the provider stores it: then it is read as the run's prompts are."""
    side_call: bool = False
    base_revision: bytes = b""
    revision: bytes = b""
    edits: bool = False
    """Answer with edits in place of the prompt."""
    changed_edits_only: bool = False
    """See TrimPromptRequest.changed_edits_only."""
    in_place: bool = False
    """With `edits`: dropped messages are clipped instead of removed, as the agent has a place for each message it sent.
    """
    accept_bytes: int = 0
    """Bytes that the caller can receive; 0: the default of gRPC clients, 4 MiB."""
    served_iterations: int | None = None
    """See TrimPromptRequest.served_iterations."""


@dataclass(frozen=True, slots=True)
class Trim:
    """One trimmed item of a prompt. See TrimPromptResponse.trims."""

    message_index: int
    item_index: int
    kind: ItemKind
    action: Action
    reason: Reason
    tokens_saved: int
    stash_id: str
    decided_iteration: int


@dataclass(frozen=True, slots=True)
class StashEntry:
    """An entry of the registry; `arguments` is JSON-escaped and cut to 80 characters."""

    stash_id: str
    kind: ItemKind
    tool: str
    arguments: str
    iteration: int
    original_bytes: int


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """Tokens of one prompt."""

    before: int
    after: int
    limit: int
    encoding: str
    exact: bool
    factor: float
    own_text: int
    window_assumed: bool = False
    """Whether the window is neither set nor known, so that the limit follows from the configured default."""
    ceiling: int = 0
    """The policy's `ceiling_tokens`, to which the prompt is trimmed below its limit; 0: the limit applies."""
    protected_leaves: int | None = None
    """Tokens that never-trimmed text leaves of the limit or that ceiling, if a cut can then free too little; None if it
    leaves enough, or if there was no cut."""


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """How much of the provider's prompt cache is kept, compared with the last returned prompt. Tokens."""

    first_changed: int
    kept: int
    rewritten: int
    batch_point: bool
    batch_points: int


@dataclass(frozen=True, slots=True)
class OwnText:
    """A piece of the sidecar's own text; `message_index` is -1 if it is not a message."""

    kind: OwnTextKind
    place: OwnTextPlace
    message_index: int
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of the sent body; `value` is JSON (for typed prompts a serialised message)."""

    operation: EditOperation
    pointer: str
    value: bytes


class CacheBreak(StrEnum):
    """Why a prompt does not begin with the previous one."""

    BATCH_POINT = "batch_point"
    """The sidecar trimmed a batch."""
    AGENT = "agent"
    """The agent changed its history, system prompt or tools."""


@dataclass(frozen=True, slots=True)
class ToolNews:
    """The news of one tool's results in a run. Tokens."""

    results: int = 0
    repeats: int = 0
    """How many of these are results of a call with an earlier, identical call and result."""
    brought: int = 0
    """Tokens of the results, untrimmed."""
    trimmed: int = 0
    """Tokens newly trimmed from results, earlier ones included."""


@dataclass(frozen=True, slots=True)
class News:
    """What an answer reports that no earlier answer of the run has: each event once, so that it can be counted."""

    trims: Sequence[Trim] = ()
    """Items newly trimmed, or trimmed further; `tokens_saved` is the saving beyond the last answer."""
    advertised: int = 0
    """Ids that a marker or the registry shows for the first time."""
    cache_break: CacheBreak | None = None
    repeated_whole: int = 0
    """Calls that repeat an earlier one whose result was still whole in the last prompt."""
    repeated_trimmed: int = 0
    """Such calls whose earlier result was trimmed."""
    registry_cut: bool = False
    """Whether the registry was written again and lacked room for some entries."""
    texts_forgotten: int = 0
    """Our texts that the run no longer recognises when they are sent back, as there are too many."""
    ambiguous: int = 0
    """Messages that two parsers may read differently."""
    condensed: Mapping[str, int] = field(default_factory=dict)
    """Tokens that condensing new results has saved, by reduction."""
    names_cut: int = 0
    """Messages with as many names from the model as are kept of one, or more."""
    tools: Mapping[str, ToolNews] = field(default_factory=dict)
    """By the tool's name as the model gave it, cut to one character more than a plain name has; empty if unknown."""
    declared: Collection[str] = ()
    """Those of `tools` that are in the agent's own definitions; a model may write any text as a tool's name."""
    repeated: Sequence[Repetition] = ()
    """New calls that repeat an earlier one, result included; the newest."""
    crossed: Sequence[int] = ()
    """Per cents of the limit that the returned prompt has reached for the first time in this run."""
    result_sizes: Sequence[tuple[str, int]] = ()
    """Tool and tokens of each new result; of a call with more than `MOST_SIZES`, of the first ones."""

    @property
    def cuts(self) -> Sequence[Trim]:
        """The `trims` that hide something."""
        return [trim for trim in self.trims if trim.action in CUTS]


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds spent in the phases of one call."""

    scan: float = 0.0
    """Splitting the body, parsing and recognising new messages."""
    count: float = 0.0
    """Counting tokens of new messages."""
    trim: float = 0.0
    """Deciding, and stashing originals."""
    encode: float = 0.0
    """Writing the trimmed prompt."""


@dataclass(frozen=True, slots=True)
class ReturnedPrompt:
    """The prompt for the model, and what the agent needs to know to send it."""

    body: bytes | None = None
    """The body in the request's format; None for typed prompts and in edits mode."""
    messages: Sequence[bytes] | None = None
    """The typed messages, each serialised; None for JSON prompts and in edits mode."""
    edits: Sequence[Edit] = ()
    edits_since_base: bool = False
    """See TrimPromptResponse.edits_since_base."""
    own_text: Sequence[OwnText] = ()
    revision: bytes = b""
    thinking_invalid_from: int | None = None
    """See TrimPromptResponse.thinking_invalid_from."""
    observed_only: bool = False
    """Whether it is the sent prompt, and the rest of the answer shows what would have been done."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What the prompt lacks of the history."""

    trims: Sequence[Trim]
    """The same object as in the previous answer, unless a decision has changed: a converter may cache on its identity.
    """
    stash_entries: Sequence[StashEntry] = ()
    """As `trims`."""
    compacted: bool = False
    """Whether this call has hidden something; results that were condensed do not count."""
    not_stashable: int = 0

    @property
    def hides(self) -> bool:
        """Whether the prompt lacks text of the conversation, or has shorter text in its place that is not condensed."""
        return any(trim.action in CUTS for trim in self.trims)

    @property
    def cuts(self) -> Sequence[Trim]:
        """The `trims` that hide something."""
        return [trim for trim in self.trims if trim.action in CUTS]


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """Facts about a prompt from guard and ceilings."""

    findings: Sequence[Finding] = ()
    """Finds of the guard's rules in new text, or for the first time outside the history."""
    restorable: bool = False
    """Whether the run has masks whose values the settings may give to a tool."""
    ceilings: Sequence[CeilingUse] = ()
    """The ceilings that are set, with their use, this prompt included."""
    priced: bool = True
    """Whether the model has a price, if there are any prices."""


@dataclass(frozen=True, slots=True)
class Savings:
    """A prompt next to never trimming."""

    sent_again: bool = False
    """Whether the agent sent its last prompt again without a report on it: as far as is known the provider did not
    answer it, so its tokens are counted once."""
    compared: Compared | None = None
    """The comparison with the sent prompt; None if it is not part of the run's history, changes nothing, or was sent
    again."""
    recount: Recount | None = None
    """For a prompt that was sent again after its provider had failed: it counts again. None for any other prompt."""
    comparison: Comparison | None = None
    """The comparison of the run's prompts so far, this one included; None if it is not part of the run's history, or
    changes nothing."""


@dataclass(frozen=True, slots=True)
class TrimAnswer:
    """A trimmed prompt and the facts about it."""

    prompt: ReturnedPrompt
    trimmed: Trimmed
    tokens: TokenFigures
    no_fit: NoFit | None
    """None if it fits."""
    cache: CacheFigures
    iteration: int
    model: str
    """The prompt's model; empty if unset."""
    revision_use: RevisionUse = RevisionUse.NONE
    provider_edits: Sequence[ProviderEdit] = ()
    """What the body asks the provider to remove."""
    size: HistorySize | None = None
    """The history before the model call, by kind; None for a side call."""
    news: News = field(default_factory=News)
    guard: GuardFacts = field(default_factory=GuardFacts)
    savings: Savings = field(default_factory=Savings)
    phases: Phases = field(default_factory=Phases)

    @property
    def fits(self) -> bool:
        """Whether the prompt is within the limit."""
        return self.no_fit is None

    @property
    def untrimmed(self) -> Untrimmed | None:
        """Why the returned prompt equals the sent one, apart from our own text; None if something is trimmed."""
        if self.trimmed.trims:
            return Untrimmed.OBSERVING if self.prompt.observed_only else None
        return Untrimmed.NO_NEED if self.no_fit is None else Untrimmed(self.no_fit.value)
