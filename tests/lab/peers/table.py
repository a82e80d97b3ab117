"""The table, the grid, and what the project demands of itself, as text for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from rich.table import Table

from tests.lab.harness.tables import TITLED, table
from tests.lab.peers.accounting import Figures
from tests.lab.peers.cells import Cell, Line
from tests.lab.peers.contenders import CONTROL, NEVER, OURS

MOST_LONG = 0.95
MOST_SHORT = 1.05
"""What we may cost of the control on long and on short runs, as the geometric mean over the grid."""
LEGEND = (
    "sent: tokens of all prompts. cost: 0.1 for a token of a kept prefix, 1.25 for each other; of never: as a share of "
    "never trimming. over: prompts over the budget (those whose system prompt, opening and newest turn alone are). "
    "pairing, refused: prompts with a new defect of that kind, or of any kind that their provider refuses. verbatim: "
    "characters of tool results still shown, averaged over the prompts. recallable: of what the last prompt lacks. "
    "task: whether the first user message is in every prompt. ms: median time of a call. floor: the least that any "
    "strategy can cost that always keeps the newest half budget as it is; one that keeps less may be below it."
)


def cell_table(cell: Cell) -> Table:
    """Return the table of one run at one budget."""
    title = f"{cell.run}, {len(cell.material.lengths)} prompts, budget {cell.budget:,} tokens ({cell.share:.0%})"
    whole = cell.figures(NEVER).cost
    columns: dict[str, Callable[[Figures], str]] = {
        "sent": lambda found: f"{found.sent:,}",
        "cost": lambda found: f"{found.cost:,.0f}",
        "of never": lambda found: f"{found.cost / whole:.3f}",
        "prefix kept": lambda found: f"{found.kept:.3f}",
        "over": lambda found: f"{found.over}" + (f" ({found.unavoidable})" if found.unavoidable else ""),
        "pairing": lambda found: f"{found.pairing}",
        "refused": lambda found: f"{found.refused}",
        "verbatim": lambda found: f"{found.verbatim:.0%}",
        "recallable": lambda found: "" if found.recallable is None else f"{found.recallable:.0%}",
        "task": lambda found: "yes" if found.task else "no",
        "ms": lambda found: "" if found.p50 is None else f"{found.p50 * 1e3:,.2f}",
    }
    made = table(title, ["strategy", *columns], no_wrap=True, **TITLED)
    for row in cell.rows:
        cells = ["not measured"] if row.figures is None else [say(row.figures) for say in columns.values()]
        made.add_row(row.name, *cells, style="bold" if row.name == OURS else None)
    made.add_row("floor", "", f"{cell.floor:,.0f}", f"{cell.floor / whole:.3f}")
    return made


def failures(cell: Cell) -> Iterator[str]:
    """Say of each row without figures why it has none."""
    return (f"{row.name}: {row.failure}" for row in cell.rows if row.figures is None)


def grid_table(lines: Sequence[Line]) -> Table:
    """Return the grid: our cost as a share of the control's."""
    shares = sorted(lines[0].ratios)
    headings = ("run", *(f"{share:.0%}" for share in shares), "geometric mean", "demanded")
    rows = [
        (
            line.run,
            *(f"{line.ratios[share]:.3f}" for share in shares),
            f"{line.mean:.3f}",
            f"{MOST_LONG if line.long else MOST_SHORT:.2f}",
            "{:.1%} ({:.1%})".format(*line.texts),
        )
        for line in lines
    ]
    title = "cost of cache_first as a share of the control's"
    return table(title, (*headings, "verbatim (the control's), mean"), rows, **TITLED)


@dataclass(frozen=True, slots=True)
class Demand:
    """One thing that is demanded of `cache_first`, and where it does not hold."""

    text: str
    broken: Sequence[str]


def demands(cells: Sequence[Cell], lines: Sequence[Line]) -> Iterator[Demand]:
    """Hold the figures against what is demanded."""
    if cells:
        yield Demand(
            "no prompt over the budget that need not be", _where(cells, lambda own: own.over > own.unavoidable)
        )
        yield Demand("no new defect", _where(cells, lambda own: own.refused > 0))
        yield Demand("the first user message is in every prompt", _where(cells, lambda own: not own.task))
        yield Demand(
            "all that was taken out can be had back", _where(cells, lambda own: own.recallable not in (None, 1))
        )
        sound = "no other that is never over and has no defect"
        yield Demand(f"{sound} in any cell costs less over all", list(_cheaper_over_all(cells)))
        yield Demand(f"{sound} in a cell costs less there", [text for cell in cells for text in _cheaper(cell)])
        what = "shows at least as much of tool results as the control, on long runs"
        yield Demand(f"{what}, in each cell", list(_less_shown(cells)))
    if lines:
        over = [line for line in lines if line.mean > (MOST_LONG if line.long else MOST_SHORT)]
        text = f"costs at most {MOST_LONG} of the control on long runs and {MOST_SHORT} on short ones, over the grid"
        yield Demand(text, [f"{line.run} {line.mean:.3f}" for line in over])
        less = [line for line in lines if line.long and line.texts[0] < line.texts[1]]
        text = "shows at least as much of tool results as the control, on long runs, over the grid"
        yield Demand(text, ["{} {:.1%} and {:.1%}".format(line.run, *line.texts) for line in less])


def _where(cells: Sequence[Cell], broken: Callable[[Figures], bool]) -> list[str]:
    return [f"{cell.run} {cell.share:.0%}" for cell in cells if broken(cell.figures(OURS))]


def _cheaper_over_all(cells: Sequence[Cell]) -> Iterator[str]:
    """Strategies that are sound in every cell in which they were measured, by the geometric mean of what they cost."""
    for name in dict.fromkeys(row.name for cell in cells for row in cell.rows):
        found = [(cell, row.figures) for cell in cells for row in cell.rows if row.name == name and row.figures]
        if name in (OURS, NEVER, CONTROL) or not found or not all(figures.sound for _, figures in found):
            continue
        mean = geometric_mean([figures.cost / cell.figures(OURS).cost for cell, figures in found])
        if mean < 1:
            yield f"{name} {mean:.3f} of ours"


def _cheaper(cell: Cell) -> Iterator[str]:
    own = cell.figures(OURS)
    for row in cell.rows:
        found: Figures | None = row.figures
        if row.name in (OURS, NEVER, CONTROL) or found is None or not found.sound or found.cost >= own.cost:
            continue
        loses = "" if found.task else ", and loses the first user message"
        yield f"{cell.run} {cell.share:.0%}: {row.name} {found.cost / own.cost:.3f} of ours{loses}"


def _less_shown(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        own, other = cell.figures(OURS).verbatim, cell.figures(CONTROL).verbatim
        if cell.long and own < other:
            yield f"{cell.run} {cell.share:.0%}: {own:.1%} and {other:.1%}"
