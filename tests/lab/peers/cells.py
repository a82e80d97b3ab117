"""One cell: a run at one budget, all strategies on the same prompts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from statistics import fmean

from prompt_sidecar.tokens.weigh import PRIMING
from tests.lab.harness.environments import Environment, Unavailable, prepared, vocabularies
from tests.lab.peers.accounting import Figures, figures, floor, shape_of
from tests.lab.peers.contenders import CONTROL, NEVER, OURS, SLIDING, Outcome, control, never, ours, sliding
from tests.lab.peers.material import Material
from tests.lab.peers.peers import Peer, run_peer

PROCESSES = 2
"""Peers measured at once: each has one busy thread, and small machines have two cores."""
LONG = 100
"""Prompts from which a run is long."""

IN_PROCESS: Mapping[str, Callable[[Material, int], Outcome]] = {
    NEVER: never,
    OURS: ours,
    CONTROL: control,
    SLIDING: sliding,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy in a cell."""

    name: str
    figures: Figures | None
    failure: str = ""
    remarks: Sequence[str] = ()


@dataclass(slots=True)
class Cell:
    """A run at one budget."""

    material: Material
    share: float
    budget: int
    floor: float
    rows: list[Row] = field(default_factory=list)

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.material.run.name

    @property
    def long(self) -> bool:
        """Whether the run is one of the long ones."""
        return len(self.material.lengths) >= LONG

    def figures(self, name: str) -> Figures:
        """Return the figures of a strategy that ran in this process."""
        return next(row.figures for row in self.rows if row.name == name and row.figures is not None)

    def facts(self) -> Mapping[str, object]:
        """For the JSON file."""
        whole = self.figures(NEVER).cost
        rows = [
            {"name": row.name, "failure": row.failure, "remarks": list(row.remarks)}
            | (asdict(row.figures) | {"of_never": row.figures.cost / whole} if row.figures else {})
            for row in self.rows
        ]
        head = {"run": self.run, "share": self.share, "budget": self.budget, "prompts": len(self.material.lengths)}
        return {**head, "floor": self.floor, "floor_of_never": self.floor / whole, "rows": rows}


def row_of(name: str, outcome: Outcome, material: Material, budget: int) -> Row:
    """Measure an outcome; a failure is a row as well."""
    if outcome.failure:
        return Row(name, None, outcome.failure, outcome.remarks)
    return Row(name, figures(outcome, material, budget), "", outcome.remarks)


def cell_of(material: Material, share: float, names: Sequence[str] = tuple(IN_PROCESS)) -> Cell:
    """Measure the strategies that run in this process."""
    budget = int(material.final * share)
    shape = shape_of([material.sized(length) for length in material.lengths])
    cell = Cell(material, share, budget, floor(*shape, budget - PRIMING))
    for name in names:
        cell.rows.append(row_of(name, IN_PROCESS[name](material, budget), material, budget))
    return cell


def add_peers(cells: Sequence[Cell], peers: Sequence[Peer], cache: Path) -> None:
    """Measure the peers in each cell, telling each one that is done."""
    if not cells or not peers:
        return
    progress("making the peers' environments")
    homes = prepared(dict.fromkeys(peer.key for peer in peers), cache)
    vocabularies(cache)  # once, ahead of the threads, of which each would make them
    with ThreadPoolExecutor(PROCESSES) as pool:
        work = [(cell, pool.submit(_measured, peer, homes[peer.key], cell)) for cell in cells for peer in peers]
        for number, (cell, row) in enumerate(work, 1):
            cell.rows.append(_reported(row, cell, f"{number}/{len(work)}"))


def _measured(peer: Peer, home: Environment | Unavailable, cell: Cell) -> tuple[Row, float]:
    began = time.perf_counter()
    outcome = run_peer(peer, home, cell.material, cell.budget)
    return row_of(peer.name, outcome, cell.material, cell.budget), time.perf_counter() - began


def _reported(row: Future[tuple[Row, float]], cell: Cell, number: str) -> Row:
    found, seconds = row.result()
    progress(f"{number} {cell.run} {cell.share:.0%}: {found.name}, {seconds:.0f} s {found.failure}")
    return found


def progress(text: str) -> None:
    """Say on standard error how far the bench is."""
    print(f"bench-peers: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Line:
    """A run's line of the grid: our cost as a share of the control's, by budget."""

    run: str
    long: bool
    ratios: Mapping[float, float]
    shown: Mapping[float, tuple[float, float]]
    """Result text that stands on average, ours and the control's, by budget."""

    @property
    def texts(self) -> tuple[float, float]:
        """The means of what stands, ours and the control's."""
        ours, others = zip(*self.shown.values(), strict=True)
        return fmean(ours), fmean(others)

    @property
    def mean(self) -> float:
        """The geometric mean."""
        return float(prod(self.ratios.values()) ** (1 / len(self.ratios)))


def grid(materials: Sequence[Material], shares: Sequence[float], cells: Sequence[Cell]) -> Iterator[Line]:
    """Measure ourselves against the control over a grid of budgets; single cells jump by a batch."""
    known = {(cell.run, cell.share): cell for cell in cells}
    for material in materials:
        ratios, shown = {}, {}
        for share in shares:
            cell = known.get((material.run.name, share)) or cell_of(material, share, (OURS, CONTROL))
            own, other = cell.figures(OURS), cell.figures(CONTROL)
            ratios[share], shown[share] = own.cost / other.cost, (own.verbatim, other.verbatim)
        progress(f"grid: {material.run.name}")
        yield Line(material.run.name, len(material.lengths) >= LONG, ratios, shown)
