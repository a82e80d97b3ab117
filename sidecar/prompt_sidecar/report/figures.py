"""What a report says of a run: figures only, and no text but names of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prompt_sidecar.guard.ceilings import Price
from prompt_sidecar.report.prices import RelativePrices
from prompt_sidecar.report.strategies import Cost
from prompt_sidecar.report.tool_weights import ToolWeight


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure. The first of the presets is the one that curve, cuts and tools are shown for."""

    limit: float = 0.3
    """Tokens that a prompt may have, or below 1 a share of the run's largest one."""
    presets: Sequence[str] = ()
    prices: RelativePrices = field(default_factory=RelativePrices)
    money: Mapping[str, Price] = field(default_factory=dict)
    """Prices in a currency by model; empty: none."""
    model: str = ""
    """For runs whose file names none."""
    window: int = 0
    """The model's window in tokens; 0: as known by its name."""


@dataclass(frozen=True, slots=True)
class Turn:
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
class Cut:
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
class Counted:
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


@dataclass(frozen=True, slots=True)
class RunFigures:
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
    turns: Sequence[Turn]
    cuts: Sequence[Cut]
    tools: Sequence[ToolWeight]
    counted: Counted | None
    missing: Sequence[str]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a run of one, that has no figures."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """All runs, the dearest first."""

    asked: Asked
    runs: Sequence[RunFigures]
    skipped: Sequence[Skipped]
    tools: Sequence[ToolWeight]
