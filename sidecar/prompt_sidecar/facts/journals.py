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
    """What a rule of the guard found in one prompt."""

    rule: str
    action: FindingAction
    count: int


@dataclass(frozen=True, slots=True)
class ItemEntry:
    """One item that an answer trimmed for the first time, or further."""

    stash_id: str
    tool: str
    """Of its call, by a plain name; empty: it belongs to none."""
    kind: ItemKind
    size: int
    """Bytes of the original; 0: not known."""
    first: int
    """The iteration that it came in; 0: not known."""
    action: Action
    reason: Reason
    tokens: int
    """Tokens that are saved by it."""


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """One answered prompt. Tokens, as its answer had them; `at` is in seconds since the epoch."""

    at: float
    iteration: int
    before: int
    after: int
    limit: int
    fits: bool
    kept: int
    """Of the prefix that it shares with the prompt before."""
    rewritten: int
    cache_break: CacheBreak | None
    trimmed: Sequence[TrimmedItems] = ()
    findings: Sequence[RuleFindings] = ()
    observed_only: bool = False
    items: Sequence[ItemEntry] = ()
    """Items that the answer trimmed, the largest, `MOST_ITEMS` of `prompt_sidecar.engine.runs.journal` at most."""
    tools: Sequence[str] = ()
    """Tools of which the prompt brought new results, by plain names: what the model had called."""

    @property
    def is_cut(self) -> bool:
        """Whether something was hidden, not only condensed."""
        return any(each.action in CUTS for each in self.trimmed)


@dataclass(frozen=True, slots=True)
class RecallEntry:
    """One retrieval or search; `at` is in seconds since the epoch."""

    at: float
    iteration: int
    """Of the last answered prompt."""
    stash_id: str
    """As it was asked for, cut; empty: it was a search."""
    outcome: str
    """Of `prompt_sidecar.recall.outcome.Outcome`, or of `SearchOutcome`."""
    tokens: int
    by: str = ""
    """The model's tool, or the method of the service, that asked."""

    @property
    def failed(self) -> bool:
        """Whether an original was asked for and was not there."""
        return bool(self.stash_id) and self.outcome != Outcome.HIT


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a line. Counts are of all that happened; times are seconds since the epoch."""

    key: str
    """Names the run in addresses; neither its id nor its ids of originals can be derived from it."""
    caller: str
    run_id: str
    started: float
    last_seen: float
    prompts: int = 0
    iteration: int = 0
    before: int = 0
    """Of the last prompt, as the next three."""
    after: int = 0
    limit: int = 0
    ceiling: int = 0
    """What it was trimmed to instead of the limit; 0: there is no ceiling."""
    ceiling_cuts: int = 0
    protected_leaves: int | None = None
    """See `TokenFigures.protected_leaves`."""
    sent_total: int = 0
    returned_total: int = 0
    cost: float | None = None
    """As ceilings count it, by estimates until there is a report; None: no model of its prompts has a price."""
    spending: Spending = field(default_factory=Spending)
    """What the reported calls cost."""
    trimmed: int = 0
    """Items of which something was cut, each once for each change."""
    condensed: int = 0
    """Tokens that condensing results at first sight has saved, once each."""
    recalls: int = 0
    searches: int = 0
    breaks: int = 0
    refused: int = 0
    findings: int = 0
    model: str = ""
    """That the last prompt was for; empty: none was named."""
    failed_recalls: int = 0
    """Originals that were asked for and were not there."""
    unfit: int = 0
    """Prompts that did not fit."""
    missed: int = 0
    """Requests that went on untrimmed for a reason that somebody should look at."""


@dataclass(frozen=True, slots=True)
class RunJournal:
    """What is kept of one run: the newest entries, the oldest of them first."""

    summary: RunSummary
    prompts: Sequence[PromptEntry] = ()
    recalls: Sequence[RecallEntry] = ()
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Prompts that were refused, by the reason of their error."""
    forgotten: int = 0
    """Entries that gave way to newer ones."""
    requests: RequestFigures = field(default_factory=RequestFigures)
    """What was done about its requests."""


@dataclass(frozen=True, slots=True)
class HandledCount:
    """Requests through a door about which the same was done."""

    door: str
    outcome: str
    """Of `prompt_sidecar.facts.untrimmed.Handled`."""
    count: int
    missed: bool
    """Whether somebody should look at it."""
