"""What was measured, for people: tables, and one picture of what a strategy costs against what it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from statistics import fmean

from rich.table import Table

from tests.lab.evidence.measuring import BAND_NAMES, Cell
from tests.lab.evidence.summary import Board, Choice, Estimate, Group, Summary
from tests.lab.harness.tables import TITLED, table, table_of

LEGEND = (
    "Per cent of what the next actions used, the mean over runs, with its 95 % bootstrap interval. visible: the "
    "prompt has a line that holds it. source: it has one of the newest tool result or user message that holds it, "
    "outside of what the model itself wrote. read back: both, with lines that can be derived from a condensed result. "
    "lines: visible, of whole lines quoted. Of what is hidden, each cell "
    "weighed by how much it hides: askable (its name is in the prompt), found by name, found by context (search, first "
    "five snippets). lost: hidden, neither "
    "askable nor found by context; in brackets without regard to names. cost: 0.1 x kept + 1.25 x rewritten tokens, "
    "of the control's; in brackets at limits below 16,000 tokens. over, invalid: prompts over a limit that could be "
    "kept, and with a new defect."
)


def board_table(summaries: Sequence[Summary]) -> Table:
    """The strategies side by side."""
    columns: dict[str, Callable[[Summary], str]] = {
        "strategy": lambda one: one.contender,
        "visible": lambda one: ranged(one.visible),
        "source": lambda one: ranged(one.source),
        "read back": _read_back,
        "lines": lambda one: percent(one.lines),
        "askable": lambda one: percent(one.askable),
        "by name": lambda one: percent(one.by_name),
        "by context": lambda one: percent(one.by_context),
        "lost": lambda one: f"{percent(one.lost)} ({percent(one.lost_without_names)})" if one.lost else "",
        "cost": _cost,
        "over": lambda one: f"{one.over}",
        "invalid": lambda one: f"{one.invalid}",
        "s": lambda one: f"{one.seconds:.0f}",
    }
    return table_of("Next-action evidence", columns, summaries, no_wrap=True, **TITLED)


def band_table(summaries: Sequence[Summary]) -> Table:
    """Visible and source by age of the evidence."""
    headings = ["strategy", *(f"{what}\n{name}" for what in ("visible", "source") for name in BAND_NAMES)]
    rows = [
        (one.contender, *(_share(bands[name]) for bands in (one.bands, one.source_bands) for name in BAND_NAMES))
        for one in summaries
    ]
    return table("By age of the evidence, in iterations", headings, rows, **TITLED)


def group_table(groups: Sequence[Group]) -> Table:
    """By kind of agent and limit."""
    columns: dict[str, Callable[[Group], str]] = {
        "strategy": lambda one: one.contender,
        "agent": lambda one: one.agent or "all",
        "limit": lambda one: f"{one.share:.0%}",
        "runs": lambda one: f"{one.runs}",
        "visible": lambda one: percent(one.visible),
        "source": lambda one: percent(one.source),
        "read back": _read_back,
        "hidden": lambda one: percent(one.hidden),
        "by name": lambda one: percent(one.by_name),
        "by context": lambda one: percent(one.by_context),
        "lost": lambda one: percent(one.lost),
        "cost": lambda one: "" if one.cost is None else f"{one.cost.mean:.3f}",
    }
    return table_of("By kind of agent and limit", columns, groups, no_wrap=True, **TITLED)


def gain_table(summaries: Sequence[Summary]) -> Table:
    """Against the control, run by run: pairs say more than two means whose intervals overlap."""
    columns: dict[str, Callable[[Summary], str]] = {
        "strategy": lambda one: one.contender,
        "visible, points": lambda one: _points(one.visible_gain),
        "source, points": lambda one: _points(one.source_gain),
        "cost": lambda one: f"{one.cost.mean:.3f} [{one.cost.low:.2f} to {one.cost.high:.2f}]" if one.cost else "",
        "runs with both above": lambda one: f"{one.better} of {one.visible_gain.runs if one.visible_gain else 0}",
    }
    return table_of("Against the control, on the same runs", columns, summaries, **TITLED)


def _points(value: Estimate | None) -> str:
    if value is None:
        return ""
    return f"{value.mean * 100:+.1f} [{value.low * 100:+.1f} to {value.high * 100:+.1f}]"


def cell_table(board: Board) -> Table:
    """Each cell on a line."""
    headings = ["run", "limit", "strategy", "turns", "counted", "visible", "source"]
    headings += ["by name", "by context", "lost", "cost", "over", "invalid", "s"]
    cells = sorted(board.cells, key=lambda cell: (cell.run, cell.share))
    return table("Cells", headings, (tuple(_cell(board, cell)) for cell in cells), left=(0, 2), no_wrap=True, **TITLED)


def _cell(board: Board, cell: Cell) -> Iterator[str]:
    yield from (cell.run, f"{cell.limit:,}", cell.contender)
    if cell.failure:
        yield cell.failure
        return
    sums = cell.sums
    cost = board.cost(cell) or board.cost(cell, small=True)
    yield from (f"{cell.turns}", f"{cell.counted}", _share(sums.share("visible")))
    yield _share(sums.share("source", "sourced"))
    yield from (_share(sums.share(part, "asked") if cell.searched else None) for part in ("by_name", "by_context"))
    yield _share(sums.share("lost"))
    yield "" if cost is None else f"{cost:.3f}"
    over = f"{cell.over}" + (f" ({cell.unavoidable})" if cell.unavoidable else "")
    yield from (over, f"{cell.invalid}", f"{cell.seconds:.1f}")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def choice_table(choices: Sequence[Choice]) -> Table:
    """Each run with what was chosen on the others, and the means."""
    headings = ("run", "chosen", "visible, points", "source, points", "cost", "over", "invalid")
    made = table("Each run with what was chosen on the others", headings, (), left=(0, 1), **TITLED)
    for one in choices:
        gains = _gains(one.visible_gain, one.source_gain, one.cost)
        made.add_row(one.run, one.chosen, *gains, f"{one.over}", f"{one.invalid}")
    means = [
        fmean(values) if (values := [value for value in column if value is not None]) else None
        for column in zip(*((one.visible_gain, one.source_gain, one.cost) for one in choices), strict=True)
    ]
    made.add_row("mean", "", *_gains(*means), "", "", style="bold")
    return made


def _gains(visible: float | None, source: float | None, cost: float | None) -> Iterator[str]:
    yield from ("" if value is None else f"{value * 100:+.1f}" for value in (visible, source))
    yield "" if cost is None else f"{cost:.3f}"


def percent(value: Estimate | None) -> str:
    """A mean in per cent."""
    return "" if value is None else f"{value.mean * 100:.1f}"


def _read_back(one: Summary | Group) -> str:
    return f"{percent(one.read)}/{percent(one.source_read)}" if one.read else ""


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
