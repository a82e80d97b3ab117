"""What happened in a run, prompt by prompt and recall by recall, as plain data; never text of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prompt_sidecar.facts.figures import RequestFigures
from prompt_sidecar.facts.guard_calls import FindingAction
from prompt_sidecar.facts.money import Spending
from prompt_sidecar.facts.trim_calls import CacheBreak
from prompt_sidecar.prompt.items import ItemKind
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.trim.entries import CUTS, Action, Reason


@dataclass(frozen=True, slots=True)
class TrimmedItems:
    """Items that one answer trimmed for the first time, or further, in one way for one reason."""

    action: Action
    reason: Reason
    items: int
    tokens: int


@dataclass(frozen=True, slots=True)
class RuleFindings:
    """Finds of one rule of the guard in one prompt."""

    rule: str
    action: FindingAction
    count: int


@dataclass(frozen=True, slots=True)
class ItemEntry:
    """One item that an answer trimmed for the first time, or further."""

    stash_id: str
    tool: str
    """The tool of its call, by a plain name; empty if there is none."""
    kind: ItemKind
    size: int
    """Bytes of the original; 0 if unknown."""
    first: int
    """The iteration in which it was first sent; 0 if unknown."""
    action: Action
    reason: Reason
    tokens: int
    """Tokens that trimming it saves."""


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """One answered prompt. Tokens as in its answer; `at` is in seconds since the epoch."""

    at: float
    iteration: int
    before: int
    after: int
    limit: int
    fits: bool
    kept: int
    """Tokens of the prefix shared with the previous prompt."""
    rewritten: int
    cache_break: CacheBreak | None
    trimmed: Sequence[TrimmedItems] = ()
    findings: Sequence[RuleFindings] = ()
    observed_only: bool = False
    items: Sequence[ItemEntry] = ()
    """The largest items that the answer trimmed, at most `MOST_ITEMS` of `prompt_sidecar.engine.runs.journal`."""
    tools: Sequence[str] = ()
    """Tools with new results in the prompt, by plain names."""

    @property
    def is_cut(self) -> bool:
        """Whether something was hidden, not only condensed."""
        return any(each.action in CUTS for each in self.trimmed)


@dataclass(frozen=True, slots=True)
class RecallEntry:
    """One retrieval or search; `at` is in seconds since the epoch."""

    at: float
    iteration: int
    """The iteration of the last answered prompt."""
    stash_id: str
    """The requested id, cut; empty for a search."""
    outcome: str
    """A value of `prompt_sidecar.recall.outcome.Outcome`, or of `SearchOutcome`."""
    tokens: int
    by: str = ""
    """The model's tool, or the method of the service, that made the request."""

    @property
    def failed(self) -> bool:
        """Whether an original was requested and was not there."""
        return bool(self.stash_id) and self.outcome != Outcome.HIT


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run's summary. Counts are of everything that happened; times are seconds since the epoch."""

    key: str
    """The run's name in addresses; neither its id nor its ids of originals can be derived from it."""
    caller: str
    run_id: str
    started: float
    last_seen: float
    prompts: int = 0
    iteration: int = 0
    before: int = 0
    """Tokens of the last prompt untrimmed; the next three fields are of that prompt too."""
    after: int = 0
    limit: int = 0
    ceiling: int = 0
    """The ceiling below the limit to which it was trimmed; 0 if there is none."""
    ceiling_cuts: int = 0
    protected_leaves: int | None = None
    """See `TokenFigures.protected_leaves`."""
    sent_total: int = 0
    returned_total: int = 0
    cost: float | None = None
    """The cost as ceilings count it, by estimates until reported; None if no model of its prompts has a price."""
    spending: Spending = field(default_factory=Spending)
    """The cost of the reported calls."""
    trimmed: int = 0
    """Items that were cut, counted once for each change."""
    condensed: int = 0
    """Tokens saved by condensing results at first sight, counted once each."""
    recalls: int = 0
    searches: int = 0
    breaks: int = 0
    refused: int = 0
    findings: int = 0
    model: str = ""
    """The model of the last prompt; empty if none was named."""
    failed_recalls: int = 0
    """Originals that were requested and were not there."""
    unfit: int = 0
    """Prompts that did not fit."""
    missed: int = 0
    """Requests that were forwarded untrimmed for a reason that an operator should check."""


@dataclass(frozen=True, slots=True)
class RunJournal:
    """The stored entries of one run: the newest ones, in order of age, the oldest first."""

    summary: RunSummary
    prompts: Sequence[PromptEntry] = ()
    recalls: Sequence[RecallEntry] = ()
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Counts of refused prompts, by the reason of their error."""
    forgotten: int = 0
    """Entries that were dropped for newer ones."""
    requests: RequestFigures = field(default_factory=RequestFigures)
    """What was done about its requests."""


@dataclass(frozen=True, slots=True)
class HandledCount:
    """Requests through a door with the same outcome."""

    door: str
    outcome: str
    """An outcome of `prompt_sidecar.facts.untrimmed.Handled`."""
    count: int
    missed: bool
    """Whether an operator should check it."""
