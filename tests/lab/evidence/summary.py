"""From cells to what can be said of a strategy: means over runs with intervals, against the control, and choices.

A run counts once, whatever its length: its figure is the mean of its cells. Intervals are bootstrap percentiles over
runs (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13). Nine runs are few: they are wide.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from tests.lab.evidence.contenders import CONTROL
from tests.lab.evidence.measuring import BAND_NAMES, Cell

DRAWS = 2_000
LEVEL = 0.95
SMALL = 16_000
"""Tokens of a limit below which a cost is reported separately: one break more or less moves it by 10 to 40 %."""
MOST_COST = 0.94
"""Of the control's: what a choice may cost."""

Figure = Callable[[Cell], float | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over runs, and its bootstrap interval."""

    mean: float
    low: float
    high: float
    runs: int


def estimate(values: Sequence[float], weights: Sequence[float] | None = None) -> Estimate | None:
    """The mean of some runs' figures with its interval; None where there is none, or no weight."""
    pairs = [(value, weight) for value, weight in zip(values, weights or [1.0] * len(values), strict=True) if weight]
    if not pairs:
        return None
    chance = random.Random(1)
    means = sorted(_weighed(chance.choices(pairs, k=len(pairs))) for _ in range(DRAWS))
    tail = round((1 - LEVEL) / 2 * DRAWS)
    return Estimate(_weighed(pairs), means[tail], means[-1 - tail], len(pairs))


def _weighed(pairs: Sequence[tuple[float, float]]) -> float:
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)


def by_run(cells: Iterable[Cell], figure: Figure) -> dict[str, float]:
    """The mean of each run's cells."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        value = figure(cell)
        if value is not None:
            found.setdefault(cell.run, []).append(value)
    return {run: fmean(values) for run, values in found.items()}


def share_of(part: str, whole: str = "total") -> Figure:
    """The figure that is one sum as a share of another."""
    return lambda cell: cell.sums.share(part, whole)


def of_hidden(cells: Iterable[Cell], part: str) -> Estimate | None:
    """A sum as a share of what is hidden, each cell weighed by the share that it hides; None: nothing, or not asked.

    An unweighed mean counts a cell that hides six references as much as one that hides a third of all.
    """
    parts: dict[str, float] = {}
    hidden: dict[str, float] = {}
    counts: dict[str, int] = {}
    for cell in cells:
        if cell.sums.total and (part == "askable" or cell.searched):
            parts[cell.run] = parts.get(cell.run, 0.0) + getattr(cell.sums, part) / cell.sums.total
            hidden[cell.run] = hidden.get(cell.run, 0.0) + cell.sums.hidden / cell.sums.total
            counts[cell.run] = counts.get(cell.run, 0) + 1
    runs = [run for run in hidden if hidden[run]]
    return estimate([parts[run] / hidden[run] for run in runs], [hidden[run] / counts[run] for run in runs])


KINDS = {"cc-": "Claude Code", "claude-code": "Claude Code", "codex": "Codex", "opencode": "OpenCode"}
"""Agents by how the names of their runs begin."""
OTHER = "other"


def agent_of(run: str) -> str:
    """The kind of agent that a run is of, by its name."""
    return next((kind for start, kind in KINDS.items() if run.startswith(start)), OTHER)


@dataclass(frozen=True, slots=True)
class Group:
    """The figures of a strategy for one kind of agent at one limit."""

    contender: str
    agent: str
    """Empty: all."""
    share: float
    runs: int
    visible: Estimate | None
    source: Estimate | None
    read: Estimate | None
    source_read: Estimate | None
    hidden: Estimate | None
    by_name: Estimate | None
    by_context: Estimate | None
    lost: Estimate | None
    cost: Estimate | None
    """Of the control's, small limits too."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a strategy."""

    contender: str
    cells: int
    visible: Estimate | None
    source: Estimate | None
    read: Estimate | None
    """Visible, or to be read back from a condensed result."""
    source_read: Estimate | None
    lines: Estimate | None
    askable: Estimate | None
    """Of what is hidden, as `of_hidden` weighs it; the next two too."""
    by_name: Estimate | None
    by_context: Estimate | None
    """Whether or not there was something to ask by."""
    lost: Estimate | None
    lost_without_names: Estimate | None
    cost: Estimate | None
    """Of the control's, at limits that are not small."""
    small_cost: Estimate | None
    """The same at the small ones."""
    over: int
    unavoidable: int
    invalid: int
    bands: Mapping[str, float | None]
    """Visible by age of the evidence, the mean over runs."""
    source_bands: Mapping[str, float | None]
    visible_gain: Estimate | None
    """Against the control, in pairs."""
    source_gain: Estimate | None
    better: int
    """Runs on which visible and source are both above the control's."""
    seconds: float
    failures: tuple[str, ...] = ()

    def facts(self) -> Mapping[str, object]:
        """For the JSON file."""
        return asdict(self)


class Board:
    """All cells of a measurement."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        """Take the cells; those of the control among them are what costs are told against."""
        self.cells = list(cells)
        self._control = {(cell.run, cell.share): cell for cell in self.cells if cell.contender == CONTROL}

    @property
    def contenders(self) -> list[str]:
        """The strategies, in order of appearance."""
        return list(dict.fromkeys(cell.contender for cell in self.cells))

    @property
    def runs(self) -> list[str]:
        """The runs, in order of appearance."""
        return list(dict.fromkeys(cell.run for cell in self.cells))

    def of(self, contender: str, runs: Iterable[str] | None = None) -> list[Cell]:
        """The cells of a strategy that were measured, on some runs."""
        wanted = set(self.runs if runs is None else runs)
        return [cell for cell in self.cells if cell.contender == contender and cell.run in wanted and not cell.failure]

    def cost(self, cell: Cell, *, small: bool = False) -> float | None:
        """A cell's cost as a share of the control's; None where it belongs to the other group of limits."""
        control = self._control.get((cell.run, cell.share))
        return cell.cost / control.cost if control and (cell.limit < SMALL) == small else None

    def gains(self, contender: str, figure: Figure) -> dict[str, float]:
        """By how much a strategy is above the control, by run."""
        own = by_run(self.of(contender), figure)
        control = by_run(self._control.values(), figure)
        return {run: value - control[run] for run, value in own.items() if run in control}

    def summary(self, contender: str) -> Summary:
        """The figures of a strategy."""
        cells = self.of(contender)

        def over_runs(figure: Figure) -> Estimate | None:
            return estimate(list(by_run(cells, figure).values()))

        visible, source = share_of("visible"), share_of("source", "sourced")
        gains, source_gains = self.gains(contender, visible), self.gains(contender, source)
        return Summary(
            contender=contender,
            cells=len(cells),
            visible=over_runs(visible),
            source=over_runs(source),
            read=over_runs(share_of("read")),
            source_read=over_runs(share_of("source_read", "sourced")),
            lines=over_runs(share_of("lines", "quoted")),
            askable=of_hidden(cells, "askable"),
            by_name=of_hidden(cells, "by_name"),
            by_context=of_hidden(cells, "by_context"),
            lost=over_runs(_lost("lost")),
            lost_without_names=over_runs(_lost("lost_without_names")),
            cost=over_runs(self.cost),
            small_cost=over_runs(lambda cell: self.cost(cell, small=True)),
            over=sum(cell.over for cell in cells),
            unavoidable=sum(cell.unavoidable for cell in cells),
            invalid=sum(cell.invalid for cell in cells),
            bands={name: _mean(cells, name, "bands", "visible", "total") for name in BAND_NAMES},
            source_bands={name: _mean(cells, name, "source_bands", "source", "sourced") for name in BAND_NAMES},
            visible_gain=estimate(list(gains.values())),
            source_gain=estimate(list(source_gains.values())),
            better=sum(gain > 0 and source_gains.get(run, 0.0) > 0 for run, gain in gains.items()),
            seconds=sum(cell.seconds for cell in cells),
            failures=tuple(
                f"{cell.run} {cell.share:.0%}: {cell.failure}"
                for cell in self.cells
                if cell.contender == contender and cell.failure
            ),
        )

    def groups(self, contender: str) -> list[Group]:
        """The figures of a strategy by kind of agent and limit, those of all agents last."""
        cells = self.of(contender)
        agents = sorted({agent_of(cell.run) for cell in cells}, key=lambda name: (name == OTHER, name))
        shares = sorted({cell.share for cell in cells})
        return [self._group(contender, agent, share) for agent in (*agents, "") for share in shares]

    def _group(self, contender: str, agent: str, share: float) -> Group:
        cells = [one for one in self.of(contender) if one.share == share and agent in {"", agent_of(one.run)}]

        def over_runs(figure: Figure) -> Estimate | None:
            return estimate(list(by_run(cells, figure).values()))

        return Group(
            contender=contender,
            agent=agent,
            share=share,
            runs=len({cell.run for cell in cells}),
            visible=over_runs(share_of("visible")),
            source=over_runs(share_of("source", "sourced")),
            read=over_runs(share_of("read")),
            source_read=over_runs(share_of("source_read", "sourced")),
            hidden=over_runs(share_of("hidden")),
            by_name=of_hidden(cells, "by_name"),
            by_context=of_hidden(cells, "by_context"),
            lost=over_runs(_lost("lost")),
            cost=over_runs(lambda cell: self.cost(cell) or self.cost(cell, small=True)),
        )


def _lost(part: str) -> Figure:
    """What is lost; unknown where the strategy can be searched and was not."""
    return lambda cell: cell.sums.share(part) if cell.searched or not cell.searchable else None


def _mean(cells: Iterable[Cell], name: str, member: str, part: str, whole: str) -> float | None:
    found = by_run(cells, lambda cell: getattr(cell, member)[name].share(part, whole))
    return fmean(found.values()) if found else None


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen on all other runs, and how it does on this one."""

    run: str
    chosen: str
    visible_gain: float | None
    """Against the control."""
    source_gain: float | None
    cost: float | None
    over: int
    invalid: int


def chosen(board: Board, candidates: Sequence[str], runs: Iterable[str], most_cost: float) -> str:
    """Choose the candidate that shows most on some runs, of those that are sound and cost little enough there.

    Most: by the sum of visible and source. Where none costs little enough, the cheapest.
    """
    wanted = list(runs)

    def judged(candidate: str) -> tuple[bool, float, float]:
        cells = board.of(candidate, wanted)
        sound = bool(cells) and not any(cell.over or cell.invalid for cell in cells)
        cost = _mean_of(by_run(cells, board.cost), 1.0)
        shown = _mean_of(by_run(cells, share_of("visible")), 0.0)
        shown += _mean_of(by_run(cells, share_of("source", "sourced")), 0.0)
        cheap = sound and cost <= most_cost
        return (cheap, shown if cheap else 0.0, -cost if sound else float("-inf"))

    return max(candidates, key=judged)


def left_out(board: Board, candidates: Sequence[str], most_cost: float = MOST_COST) -> list[Choice]:
    """Measure each run with what was chosen on the others."""
    found = []
    for run in board.runs:
        choice = chosen(board, candidates, [other for other in board.runs if other != run], most_cost)
        cells = board.of(choice, [run])
        found.append(
            Choice(
                run=run,
                chosen=choice,
                visible_gain=board.gains(choice, share_of("visible")).get(run),
                source_gain=board.gains(choice, share_of("source", "sourced")).get(run),
                cost=by_run(cells, board.cost).get(run),
                over=sum(cell.over for cell in cells),
                invalid=sum(cell.invalid for cell in cells),
            )
        )
    return found


def _mean_of(values: Mapping[str, float], nothing: float) -> float:
    return fmean(values.values()) if values else nothing
