"""A report's figures for a run, without any text except names of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prompt_sidecar.guard.ceilings import Price
from prompt_sidecar.report.prices import RelativePrices
from prompt_sidecar.report.strategies import Cost
from prompt_sidecar.report.tool_weights import ToolWeight


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to measure. Curve, cuts and tools are shown for the first preset."""

    limit: float = 0.3
    """Tokens that a prompt may have; below 1 a share of the largest prompt's part above its head; 0: all that the model
    accepts."""
    presets: Sequence[str] = ()
    prices: RelativePrices = field(default_factory=RelativePrices)
    money: Mapping[str, Price] = field(default_factory=dict)
    """Prices by model, which override the catalogue's; empty: only the catalogue's."""
    model: str = ""
    """The model of runs whose file names none."""
    window: int = 0
    """The model's window in tokens; 0: as known by its name."""


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """One model call under the first preset. Tokens."""

    turn: int
    messages: int
    before: int
    after: int
    kept: int
    trims: int
    """Number of trimmed items in this prompt."""
    batch_point: bool
    fits: bool
    no_fit_reason: str
    refused: bool
    """Whether the untrimmed prompt is larger than the window."""
    counted: int
    """The prompt's tokens by the provider's count; 0 if unknown."""
    counted_cached: int


@dataclass(frozen=True, slots=True)
class CutFigures:
    """The new trims at one model call."""

    turn: int
    action: str
    kind: str
    items: int
    tokens: int
    batch_point: bool


@dataclass(frozen=True, slots=True)
class PresetFigures:
    """One preset on a run."""

    preset: str
    cost: Cost
    share: float
    """Share of never trimming's cost, on the prompts that fit the window untrimmed; below 1 it saves."""
    after: Sequence[int]
    """Tokens of each returned prompt."""


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """The provider's counts, if the file has them, and the estimates for the same calls."""

    calls: int
    input: int
    cached: int
    written: int
    output: int
    estimated: int
    """Tokens of these calls' prompts by our count, without what the file lacks."""
    estimated_cached: int
    """Those of them that the previous prompts began with too."""
    cold: int
    """Calls for which the provider had much less cached than possible."""
    cost: float
    """Relative price of the sent prompts, by the provider's counts."""
    estimated_cost: float
    """The same by our count, with everything cached that could have been."""
    money: float | None
    """The real bill: the provider's counts at the prices of each call's model; None if none has a price."""
    estimated_money: float | None = None
    """The same by our count, with everything cached that could have been."""
    unpriced: int = 0
    """Calls whose model has no price."""


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """A setting that was tried with the first preset."""

    limit: int
    """Tokens that a prompt may have; 0 if unknown, as the model's limit is."""
    whole_window: bool
    """Whether that is the model's own limit; if that is unknown, more than any prompt has."""
    cost: Cost
    """Prompts above `limit` count as over the limit; a ceiling refuses none."""
    share: float
    """Share of never trimming's cost."""
    control_share: float
    """The plain control's share, at the same size: the ceiling, else the limit."""
    visible: float
    """The share of the agent's tokens that the model saw."""
    ceiling: int = 0
    """`policy.ceiling_tokens`; 0: as in the settings."""
    condense: str = ""
    """`policy.condense`; empty: as in the settings."""

    @property
    def name(self) -> str:
        """The setting in words."""
        if self.ceiling:
            return f"ceiling {self.ceiling:,}"
        if self.condense:
            return f"condense {self.condense}"
        if not self.limit:
            return "no limit, as the window is not known"
        return f"limit {self.limit:,}{', all that it takes' if self.whole_window else ''}"


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """One run of a transcript."""

    name: str
    source: str
    form: str
    model: str
    limit: int
    window: int
    """0 if unknown."""
    never: Cost
    control: Cost
    control_share: float
    presets: Sequence[PresetFigures]
    turns: Sequence[TurnFigures]
    cuts: Sequence[CutFigures]
    tools: Sequence[ToolWeight]
    counted: ProviderCounts | None
    missing: Sequence[str]
    head: int = 0
    """Tokens of system text, tools and attachments that the file lacks, by the provider's count of the first call."""
    settings: Sequence[TriedSetting] = ()
    """The settings that were tried, the model's own limit first."""
    fits: bool = True
    """Whether any tried setting keeps all prompts within its limit."""
    currency: str = "USD"
    ceilings_ignored: bool = False
    """Whether the first preset ignores ceilings, so that none was tried."""
    project: str = ""
    """The name of the agent's working folder; empty if unknown."""
    date: str = ""
    """The date on which the run began, as YYYY-MM-DD; empty if unknown."""

    @property
    def title(self) -> str:
        """Its project and date if known, else its name."""
        return ", ".join(filter(None, (self.project, self.date))) if self.project else self.name


@dataclass(frozen=True, slots=True)
class Recommended:
    """Settings for all runs of a report, with their effect on these runs."""

    lines: Sequence[str]
    """Lines for the settings file; empty: no change."""
    ceiling: int
    """`policy.ceiling_tokens`; 0: as in the settings."""
    condense: str
    """`policy.condense`; empty: as in the settings."""
    runs: int
    bill: float | None
    """Cost of these runs without trimming, in money; None if no model has a price."""
    saved: float | None
    """The part of the bill that is saved, an estimate; money."""
    share: float
    """Share of never trimming's cost."""
    control_share: float
    """The plain control's share, at the same size."""
    hidden: float
    """The share of the agents' tokens that the model does not see."""
    currency: str
    ignored: bool = False
    """Whether no ceiling was tried, as the preset ignores them."""
    smaller: Recommended | None = None
    """The next smaller ceiling, which saves more and hides more, or hides too much to be recommended; None if there is
    none, or if it saves no more."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a run of one, that has no figures."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """All runs, the most expensive first."""

    asked: ReportRequest
    runs: Sequence[ReportedRun]
    skipped: Sequence[Skipped]
    tools: Sequence[ToolWeight]
    recommended: Sequence[Recommended] = ()


def weighed(runs: Sequence[ReportedRun]) -> list[float]:
    """Return the weight of each run in a share of all: its bill without trimming, in money if every run has a price."""
    money = [run.never.comparable_money for run in runs]
    priced = [bill for bill in money if bill is not None]
    return priced if len(priced) == len(runs) else [run.never.comparable_cost for run in runs]
