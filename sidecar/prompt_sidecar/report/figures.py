"""What a report says of a run: figures only, and no text but names of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prompt_sidecar.guard.ceilings import Price
from prompt_sidecar.report.prices import RelativePrices
from prompt_sidecar.report.strategies import Cost
from prompt_sidecar.report.tool_weights import ToolWeight


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to measure. The first of the presets is the one that curve, cuts and tools are shown for."""

    limit: float = 0.3
    """Tokens that a prompt may have; below 1 a share of the run's largest one, of what is above its head; 0: all that
    the model takes."""
    presets: Sequence[str] = ()
    prices: RelativePrices = field(default_factory=RelativePrices)
    money: Mapping[str, Price] = field(default_factory=dict)
    """Prices by model, which go before the catalogue's; empty: the catalogue's alone."""
    model: str = ""
    """For runs whose file names none."""
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
    """Items that are trimmed in this prompt."""
    batch_point: bool
    fits: bool
    no_fit_reason: str
    refused: bool
    """Whether the untrimmed prompt is larger than the window."""
    counted: int
    """The prompt's tokens as the provider counted them; 0: unknown."""
    counted_cached: int


@dataclass(frozen=True, slots=True)
class CutFigures:
    """What was newly trimmed at one model call."""

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
    """Of never trimming, on the prompts that fit the window untrimmed; below 1 it saves."""
    after: Sequence[int]
    """Tokens of each returned prompt."""


@dataclass(frozen=True, slots=True)
class ProviderCounts:
    """What the provider counted where the file says it, and the same calls as estimated here."""

    calls: int
    input: int
    cached: int
    written: int
    output: int
    estimated: int
    """Tokens of these calls' prompts by our count: what the file has of them."""
    estimated_cached: int
    """Of these, what the prompts before began with as well."""
    cold: int
    """Calls for which the provider had much less cached than it could have had."""
    cost: float
    """Relative price of what was sent, by the provider's counts."""
    estimated_cost: float
    """The same by our count, with all cached that could have been."""
    money: float | None
    """The real bill: the provider's counts at the prices of each call's model; None: none has a price."""
    estimated_money: float | None = None
    """The same by our count, with all cached that could have been."""
    unpriced: int = 0
    """Calls whose model has no price."""


@dataclass(frozen=True, slots=True)
class TriedSetting:
    """A setting that was tried with the first preset."""

    limit: int
    """Tokens that a prompt may have; 0: not known, as what the model takes is not."""
    whole_window: bool
    """Whether that is all that the model takes; where that is not known, more than any prompt has."""
    cost: Cost
    """Over the limit are prompts above `limit`; a ceiling refuses none."""
    share: float
    """Of never trimming."""
    control_share: float
    """The plain control's, at the same size: the ceiling, else the limit."""
    visible: float
    """Of the tokens that the agent sent, the share that the model saw."""
    ceiling: int = 0
    """`policy.ceiling_tokens`; 0: as the settings have it."""
    condense: str = ""
    """`policy.condense`; empty: as the settings have it."""

    @property
    def name(self) -> str:
        """It, for people."""
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
    """0: unknown."""
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
    """The settings that were tried; what the model takes comes first."""
    fits: bool = True
    """Whether any setting that was tried keeps all prompts within its limit."""
    currency: str = "USD"
    ceilings_ignored: bool = False
    """Whether the first preset ignores ceilings, so that none was tried."""
    project: str = ""
    """The name of the folder that the agent worked in; empty: unknown."""
    date: str = ""
    """On which the run began, as YYYY-MM-DD; empty: unknown."""

    @property
    def title(self) -> str:
        """Its project and date where they are known, else its name."""
        return ", ".join(filter(None, (self.project, self.date))) if self.project else self.name


@dataclass(frozen=True, slots=True)
class Recommended:
    """What to set for all runs of a report, with what it would have done to them."""

    lines: Sequence[str]
    """Of the settings file; empty: as it is."""
    ceiling: int
    """`policy.ceiling_tokens`; 0: as the settings have it."""
    condense: str
    """`policy.condense`; empty: as the settings have it."""
    runs: int
    bill: float | None
    """What never trimming cost these runs; money, None: no model has a price."""
    saved: float | None
    """Of the bill, an estimate; money."""
    share: float
    """Of never trimming."""
    control_share: float
    """The plain control's, at the same size."""
    hidden: float
    """Of the tokens that agents sent, the share that the model does not see."""
    currency: str
    ignored: bool = False
    """Whether no ceiling was tried, as the preset ignores them."""
    smaller: Recommended | None = None
    """The next smaller ceiling, which saves more and hides more, or hides too much to be recommended; None: there is
    none, or it saves no more."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a run of one, that has no figures."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """All runs, the dearest first."""

    asked: ReportRequest
    runs: Sequence[ReportedRun]
    skipped: Sequence[Skipped]
    tools: Sequence[ToolWeight]
    recommended: Sequence[Recommended] = ()


def weighed(runs: Sequence[ReportedRun]) -> list[float]:
    """What each run weighs in a share of all: its bill of never trimming, in money where every run has a price."""
    money = [run.never.comparable_money for run in runs]
    priced = [bill for bill in money if bill is not None]
    return priced if len(priced) == len(runs) else [run.never.comparable_cost for run in runs]
