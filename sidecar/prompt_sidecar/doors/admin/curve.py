"""A run's curve: the size of each prompt as sent and as returned, against the limit, as paths of an SVG.

The drawing is stretched to the width of the page, so it contains no text: labels are next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.facts.journals import PromptEntry, RecallEntry
from prompt_sidecar.facts.trim_calls import CacheBreak

WIDTH: Final = 1_000
HEIGHT: Final = 300
_AIR: Final = 1.05
"""Space above the highest point, as a factor."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Values of the attribute `d` of paths; empty if there is nothing to draw."""

    sent: str
    returned: str
    limit: str
    cuts: str
    """A line for each prompt at which the sidecar trimmed a batch."""
    changes: str
    """A line for each prompt at which the agent changed earlier messages."""
    recalls: str
    unfit: str
    """A dot for each prompt that did not fit."""
    most: int
    """Tokens at the upper edge of the drawing."""
    first: int
    """Iteration at the left edge of the drawing."""
    last: int


def curve(prompts: Sequence[PromptEntry], recalls: Sequence[RecallEntry]) -> Curve | None:
    """Return the curve of at least two prompts; None for fewer."""
    if len(prompts) < 2:
        return None
    highest = max(max(each.before, each.after, each.limit) for each in prompts)
    most = max(round(highest * _AIR), 1)
    step = WIDTH / (len(prompts) - 1)

    def line(of: Callable[[PromptEntry], int]) -> str:
        points = (f"{at * step:.1f} {_height(of(each), most)}" for at, each in enumerate(prompts))
        return "M" + "L".join(points)

    def marks(of: CacheBreak) -> str:
        return "".join(f"M{at * step:.1f} 0V{HEIGHT}" for at, each in enumerate(prompts) if each.cache_break is of)

    places = {each.iteration: at for at, each in enumerate(prompts)}
    dots = (places[each.iteration] * step for each in recalls if each.iteration in places)
    return Curve(
        sent=line(lambda each: each.before),
        returned=line(lambda each: each.after),
        limit=line(lambda each: each.limit),
        cuts=marks(CacheBreak.BATCH_POINT),
        changes=marks(CacheBreak.AGENT),
        recalls="".join(f"M{x:.1f} {HEIGHT - 12}h.01" for x in sorted(set(dots))),
        unfit="".join(
            f"M{at * step:.1f} {_height(each.after, most)}h.01" for at, each in enumerate(prompts) if not each.fits
        ),
        most=most,
        first=prompts[0].iteration,
        last=prompts[-1].iteration,
    )


def _height(tokens: int, most: int) -> str:
    return f"{HEIGHT - HEIGHT * tokens / most:.1f}"
