"""What was measured, for people: tables, and one picture of what a strategy costs against what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
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


WIDTH, HEIGHT = 900, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 50, 60
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f", "#bcbd22", "#e377c2")
MARGIN = 0.06
"""Of a range, added on both sides."""
STEPS = 5
SPACE = 'xmlns="http://www.w3.org/2000/svg"'


def picture(summaries: Sequence[Summary]) -> str:
    """Draw the strategies: cost to the right, visible (filled) and source (hollow) upwards, with intervals."""
    drawn = [one for one in summaries if one.cost and one.visible and one.source]
    costs = [one.cost.mean for one in drawn if one.cost]
    shown = [value for one in drawn for each in (one.visible, one.source) if each for value in (each.low, each.high)]
    across, up = _Axis(costs, LEFT, WIDTH - RIGHT), _Axis(shown, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg {SPACE} viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">What the next action used, and what the prompts cost</text>',
        *_axes(across, up),
    ]
    for place, one in enumerate(drawn):
        parts += _strategy(one, COLOURS[place % len(COLOURS)], TOP + 18 * (place + 1), across, up)
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """Places on the picture for values of a range."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        least, most = (min(values), max(values)) if values else (0.0, 1.0)
        margin = (most - least or 1.0) * MARGIN
        self.least, self.most, self.start, self.end = least - margin, most + margin, start, end

    def __call__(self, value: float) -> float:
        share = (value - self.least) / (self.most - self.least)
        return round(self.start + share * (self.end - self.start), 1)

    def steps(self) -> Iterator[float]:
        for step in range(STEPS + 1):
            yield self.least + (self.most - self.least) * step / STEPS


def _axes(across: _Axis, up: _Axis) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    yield f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="black"/>'
    for value in across.steps():
        yield f'<text x="{across(value)}" y="{bottom + 18}" text-anchor="middle">{value:.2f}</text>'
    for value in up.steps():
        yield f'<path d="M{LEFT} {up(value)}H{right}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{up(value) + 4}" text-anchor="end">{value:.0%}</text>'
    middle = (LEFT + right) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 18}" text-anchor="middle">cost, of the control\'s</text>'
    yield f'<text x="{right + 20}" y="{TOP}">filled: visible; hollow: source</text>'


def _strategy(one: Summary, colour: str, line: float, across: _Axis, up: _Axis) -> Iterator[str]:
    assert one.cost
    x = across(one.cost.mean)
    yield from _mark(x, one.visible, colour, colour, up)
    yield from _mark(x + 3, one.source, colour, "white", up)
    left = WIDTH - RIGHT + 20
    yield f'<circle cx="{left + 5}" cy="{line - 4}" r="5" fill="{colour}"/>'
    yield f'<text x="{left + 16}" y="{line}">{escape(one.contender)}</text>'


def _mark(x: float, value: Estimate | None, colour: str, fill: str, up: _Axis) -> Iterator[str]:
    if value is not None:
        yield f'<path d="M{x} {up(value.low)}V{up(value.high)}" stroke="{colour}" stroke-opacity="0.4"/>'
        yield f'<circle cx="{x}" cy="{up(value.mean)}" r="5" fill="{fill}" stroke="{colour}"/>'
