"""One picture: what a strategy costs against what it shows of the next action's evidence. Plain SVG, no library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tests.lab.evidence.summary import Estimate, Summary

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
