"""What was measured, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from rich.table import Table

from tests.lab.evidence.measuring import BAND_NAMES, Cell
from tests.lab.evidence.summary import Board, Choice, Estimate, Summary

LEGEND = (
    "Per cent of what the next actions used, the mean over runs, with its 95 % bootstrap interval. visible: the "
    "prompt has a line that holds it. source: it has one of the newest tool result or user message that holds it, "
    "outside of what the model itself wrote. lines: visible, of whole lines quoted. Of what is hidden: askable (its "
    "name is in the prompt), found by name, found by context (search, first five snippets). lost: hidden, neither "
    "askable nor found by context; in brackets without regard to names. cost: 0.1 x kept + 1.25 x rewritten tokens, "
    "of the control's; in brackets at limits below 16,000 tokens. over, invalid: prompts over a limit that could be "
    "kept, and with a new defect."
)


def board_table(summaries: Sequence[Summary]) -> Table:
    """The strategies side by side."""
    table = Table(title="Next-action evidence", title_justify="left", title_style="bold")
    for number, name in enumerate(
        (
            "strategy",
            "visible",
            "source",
            "lines",
            "askable",
            "by name",
            "by context",
            "lost",
            "cost",
            "over",
            "invalid",
            "s",
        )
    ):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=number > 0)
    for one in summaries:
        table.add_row(
            one.contender,
            ranged(one.visible),
            ranged(one.source),
            percent(one.lines),
            percent(one.askable),
            percent(one.by_name),
            percent(one.by_context),
            f"{percent(one.lost)} ({percent(one.lost_without_names)})" if one.lost else "",
            _cost(one),
            f"{one.over}",
            f"{one.invalid}",
            f"{one.seconds:.0f}",
        )
    return table


def band_table(summaries: Sequence[Summary]) -> Table:
    """Visible and source by age of the evidence."""
    table = Table(title="By age of the evidence, in iterations", title_justify="left", title_style="bold")
    table.add_column("strategy")
    for what in ("visible", "source"):
        for name in BAND_NAMES:
            table.add_column(f"{what}\n{name}", justify="right")
    for one in summaries:
        found = [one.bands[name] for name in BAND_NAMES] + [one.source_bands[name] for name in BAND_NAMES]
        table.add_row(one.contender, *("" if value is None else f"{value:.1%}" for value in found))
    return table


def gain_table(summaries: Sequence[Summary]) -> Table:
    """Against the control, run by run: pairs say more than two means whose intervals overlap."""
    table = Table(title="Against the control, on the same runs", title_justify="left", title_style="bold")
    for name in ("strategy", "visible, points", "source, points", "cost", "runs with both above"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    for one in summaries:
        cost = "" if one.cost is None else f"{one.cost.mean:.3f} [{one.cost.low:.2f} to {one.cost.high:.2f}]"
        runs = one.visible_gain.runs if one.visible_gain else 0
        table.add_row(
            one.contender, _points(one.visible_gain), _points(one.source_gain), cost, f"{one.better} of {runs}"
        )
    return table


def _points(value: Estimate | None) -> str:
    if value is None:
        return ""
    return f"{value.mean * 100:+.1f} [{value.low * 100:+.1f} to {value.high * 100:+.1f}]"


def cell_table(board: Board) -> Table:
    """Each cell on a line."""
    table = Table(title="Cells", title_justify="left", title_style="bold")
    for number, name in enumerate(
        (
            "run",
            "limit",
            "strategy",
            "turns",
            "counted",
            "visible",
            "source",
            "by name",
            "by context",
            "lost",
            "cost",
            "over",
            "invalid",
            "s",
        )
    ):
        table.add_column(name, justify="left" if number in {0, 2} else "right", no_wrap=True)
    for cell in sorted(board.cells, key=lambda cell: (cell.run, cell.share)):
        table.add_row(*_cell(board, cell))
    return table


def _cell(board: Board, cell: Cell) -> Iterator[str]:
    yield from (cell.run, f"{cell.limit:,}", cell.contender)
    if cell.failure:
        yield cell.failure
        return
    sums = cell.sums
    cost = board.cost(cell) or board.cost(cell, small=True)
    yield from (f"{cell.turns}", f"{cell.counted}")
    asked = "asked" if cell.searched else "nothing"
    for part, whole in (("visible", "total"), ("source", "sourced"), ("by_name", asked), ("by_context", asked)):
        value = sums.share(part, whole) if whole != "nothing" else None
        yield "" if value is None else f"{value:.1%}"
    lost = sums.share("lost")
    yield "" if lost is None else f"{lost:.1%}"
    yield "" if cost is None else f"{cost:.3f}"
    over = f"{cell.over}" + (f" ({cell.unavoidable})" if cell.unavoidable else "")
    yield from (over, f"{cell.invalid}", f"{cell.seconds:.1f}")


def choice_table(choices: Sequence[Choice]) -> Table:
    """Each run with what was chosen on the others."""
    table = Table(title="Each run with what was chosen on the others", title_justify="left", title_style="bold")
    for name in ("run", "chosen", "visible, points", "source, points", "cost", "over", "invalid"):
        table.add_column(name, justify="left" if name in {"run", "chosen"} else "right")
    for one in choices:
        gains = [f"{value * 100:+.1f}" if value is not None else "" for value in (one.visible_gain, one.source_gain)]
        cost = "" if one.cost is None else f"{one.cost:.3f}"
        table.add_row(one.run, one.chosen, *gains, cost, f"{one.over}", f"{one.invalid}")
    means = [
        fmean(values) if (values := [value for value in column if value is not None]) else None
        for column in zip(*((one.visible_gain, one.source_gain, one.cost) for one in choices), strict=True)
    ]
    gains = ["" if value is None else f"{value * 100:+.1f}" for value in means[:2]]
    table.add_row("mean", "", *gains, "" if means[2] is None else f"{means[2]:.3f}", "", "", style="bold")
    return table


def percent(value: Estimate | None) -> str:
    """A mean in per cent."""
    return "" if value is None else f"{value.mean * 100:.1f}"


def ranged(value: Estimate | None) -> str:
    """A mean in per cent with its interval."""
    return "" if value is None else f"{value.mean * 100:.1f} [{value.low * 100:.0f}-{value.high * 100:.0f}]"


def _cost(one: Summary) -> str:
    large = "" if one.cost is None else f"{one.cost.mean:.3f}"
    return large + ("" if one.small_cost is None else f" ({one.small_cost.mean:.2f})")
