"""A run's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prompt_sidecar.facts.comparison import Comparison
from prompt_sidecar.facts.history_size import HistorySize
from prompt_sidecar.facts.money import ModelCost
from prompt_sidecar.facts.task_calls import TaskItem
from prompt_sidecar.facts.trim_calls import CacheFigures, TokenFigures
from prompt_sidecar.facts.untrimmed import MISSED
from prompt_sidecar.facts.usage_calls import UsageFigures
from prompt_sidecar.guard.ceilings import CeilingUse
from prompt_sidecar.recall.holding import StashFigures
from prompt_sidecar.trim.repeated_calls import RepeatedFigures


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """What a run has recorded, and how it was searched."""

    items: int = 0
    passages: int = 0
    index_bytes: int = 0
    waiting_bytes: int = 0
    """Bytes of originals that wait to be indexed."""
    first_iteration: int = 1
    """First iteration that search covers."""
    searches: int = 0
    searches_found: int = 0
    tool_calls: int = 0


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """What was done about a run's requests; see `prompt_sidecar.facts.untrimmed`."""

    handled: Mapping[str, int] = field(default_factory=dict)
    """Counts of forwarded requests, by `Handled.outcome`."""
    untrimmed: str = ""
    """Why the last one was not trimmed; empty if it was, or if there was none."""
    recall: str = ""
    """Whether recall was offered with the last prompt, or why not; empty if there was none."""

    @property
    def missed(self) -> int:
        """Number of requests that were forwarded untrimmed for a reason that an operator should check."""
        return sum(self.handled.get(reason, 0) for reason in MISSED)


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """A run in the shared store, as this process sees it."""

    reachable: bool
    """Whether the store answered the last command."""
    waiting_calls: int
    """Calls whose changes are not in the store yet."""
    detached: bool
    """Whether nothing more is written to the run, as another process has ended it or its state could not be read."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run's figures; times are seconds since the epoch."""

    run_id: str
    started: float
    last_seen: float
    calls: int
    iteration: int
    messages: int
    tokens: TokenFigures | None
    cache: CacheFigures | None
    tokens_sent_total: int
    tokens_returned_total: int
    trimmed_items: int
    stash: StashFigures
    history: HistoryFigures
    unfinished_tasks: Sequence[TaskItem]
    size: HistorySize | None = None
    """The size of the last prompt's history."""
    repeated: RepeatedFigures = field(default_factory=RepeatedFigures)
    usage: UsageFigures = field(default_factory=UsageFigures)
    """The provider's reported usage."""
    ceilings: Sequence[CeilingUse] = ()
    """The ceilings that are set for the run and its caller, with their use."""
    cost: float | None = None
    """The cost of all prompts and answers as ceilings count it, by estimates until reported; None if no model of the
    run has a price."""
    comparison: Comparison = field(default_factory=Comparison)
    """The cost of its prompts, next to their cost without trimming."""
    observed_only: bool = False
    """Whether the sidecar only observes, so that prompts are returned as they were sent."""
    model_costs: Sequence[ModelCost] = ()
    """The cost of the reported calls, by model."""
    unpriced_calls: int = 0
    """Reported calls without a price, which `model_costs` lacks."""
    condensed_items: int = 0
    """Condensed results in the last prompt."""
    condensed_tokens: int = 0
    """Tokens that these results save there."""
    store: StoreFigures | None = None
    """None if there is no shared store."""
    requests: RequestFigures = field(default_factory=RequestFigures)
    """What was done about its requests."""
    ceiling_cuts: int = 0
    """Cuts because of the policy's `ceiling_tokens`, not because of the limit."""
