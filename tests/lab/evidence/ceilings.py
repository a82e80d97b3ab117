"""Ceilings in tokens: what a recorded run costs with each, as a share of never trimming, and what its prompts show.

`--ceilings` of the program. A run is replayed with a window of a million tokens and `policy.ceiling_tokens`. Before its
messages stands a head of `--head` tokens, as agents send one: instructions and tools, which recordings lack. It is
cached after the first prompt and never trimmed. The bill is that of the prompts, without answers; cached tokens are
taken at two prices, as providers ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from statistics import fmean
from typing import Final, NamedTuple

from rich.table import Table

from tests.conformance.conversations import SYSTEM as IN_MEMBER
from tests.lab.evidence.contenders import NEVER, Contender
from tests.lab.evidence.core import weigh_text
from tests.lab.evidence.first_sight import LEVELS
from tests.lab.evidence.measuring import Material, cell_of
from tests.lab.evidence.recordings import Recording, paths, recorded
from tests.lab.harness.tables import TITLED, table
from tests.oracle.baselines import CACHE_WRITE

CEILINGS: Final = (150_000, 100_000, 60_000, 40_000)
HEAD: Final = 20_000
"""Tokens of instructions and tools: what coding agents send, roughly."""
CACHED: Final = (0.1, 0.05)
"""Prices of a cached token, in plain ones."""
WINDOW: Final = 1_000_000
OFF: Final = "off"
"""The level that takes nothing out."""
ALL_LEVELS: Final = (OFF, *LEVELS)
LEAST_SIZE: Final = 100_000
"""Tokens of a run's last prompt from which on it is long enough to be replayed, the head not counted."""
_WORDS: Final = "the agent reads what it is told and does what it was asked to do as well as it can "


class Task(NamedTuple):
    """A run at one ceiling."""

    run: str
    ceiling: int
    """Tokens; 0: never trimming."""
    head: int
    condense: str = ""
    """How much is taken out of results at first sight; empty: what is by default."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a run costs and shows at one ceiling."""

    run: str
    ceiling: int
    size: int
    """Tokens of the last prompt, head included."""
    kept: int
    """Tokens of all prompts that each prompt begins with as the one before did."""
    tokens: int
    """Of all prompts."""
    visible: float | None = None
    """Of what the actions of turns use whose history is above the ceiling; None: there is no such turn."""
    source: float | None = None
    visible_of_all: float | None = None
    """Of all turns: what no prompt had to leave out is visible."""
    source_of_all: float | None = None
    over: int = 0
    """Prompts above the ceiling."""
    invalid: int = 0
    condense: str = ""

    def bill(self, cached: float) -> float:
        """The price of all prompts in plain tokens, at a price of cached ones."""
        return cached * self.kept + CACHE_WRITE * (self.tokens - self.kept)


def long_enough(names: Sequence[str]) -> list[str]:
    """The runs that are replayed."""
    return [name for name in names if _material(name, 0).ruler.final >= LEAST_SIZE]


def with_head(run: Recording, tokens: int) -> Recording:
    """The run with so many tokens of instructions before its messages."""
    if not tokens:
        return run
    text = _WORDS * (100 * tokens // weigh_text(_WORDS * 100))
    if run.format in IN_MEMBER:
        return replace(run, system=f"{run.system}\n{text}")
    messages = [{"role": "system", "content": text}, *run.messages]
    return replace(run, messages=messages, starts=[start + 1 for start in run.starts])


def measured(task: Task) -> Row:
    """Replay a run at a ceiling."""
    material = _material(task.run, task.head)
    size = material.ruler.size(len(material.run.starts) - 1)
    if not task.ceiling:
        cell = cell_of(material, Contender(NEVER), 1.0, asked=0)
        return Row(task.run, 0, size, cell.kept, cell.tokens)
    policy: dict[str, object] = {"ceiling_tokens": task.ceiling}
    if task.condense:
        policy["condense"] = task.condense
    contender = Contender(f"ceiling {task.ceiling:,} {task.condense}".rstrip(), "cache_first", policy)
    cell = cell_of(material, contender, task.ceiling / material.ruler.final, asked=0, window=WINDOW)
    below = _below(material, task.ceiling)
    return Row(
        task.run,
        task.ceiling,
        size,
        cell.kept,
        cell.tokens,
        cell.sums.share("visible"),
        cell.sums.share("source", "sourced"),
        _with(cell.sums.visible, cell.sums.total, below[0]),
        _with(cell.sums.source, cell.sums.sourced, below[1]),
        cell.over,
        cell.invalid,
        task.condense,
    )


def _below(material: Material, ceiling: int) -> tuple[float, float]:
    """Weights of what the turns use whose history is not above the ceiling: of all, and of what has a source."""
    turns = (turn for turn in range(len(material.needs)) if material.ruler.size(turn) <= ceiling)
    needs = [need for turn in turns for need in material.needs[turn]]
    return sum(need.weight for need in needs), sum(need.weight for need in needs if need.source)


def _with(part: float, whole: float, more: float) -> float | None:
    return (part + more) / (whole + more) if whole + more else None


def ceiling_table(rows: Sequence[Row]) -> Table:
    """For each ceiling the means over runs."""
    never = {row.run: row for row in rows if not row.ceiling}
    headings = ["ceiling", "runs"]
    headings += [f"bill, cached {price:g}" for price in CACHED]
    headings += ["visible", "source", "visible of all turns", "source of all turns", "over", "invalid"]
    lines = []
    for ceiling in sorted({row.ceiling for row in rows} - {0}, reverse=True):
        found = [row for row in rows if row.ceiling == ceiling]
        bills = (fmean(row.bill(price) / never[row.run].bill(price) for row in found) for price in CACHED)
        shown = (_mean(found, name) for name in ("visible", "source", "visible_of_all", "source_of_all"))
        over, invalid = (str(sum(getattr(row, name) for row in found)) for name in ("over", "invalid"))
        lines.append((f"{ceiling:,}", str(len(found)), *map(percent_of, bills), *shown, over, invalid))
    return table("Ceilings in tokens", headings, lines, **TITLED)


def condensing_table(rows: Sequence[Row]) -> Table:
    """For each ceiling and level the bill as a share of the same without condensing, and what is visible."""
    plain = {(row.run, row.ceiling): row for row in rows if row.condense == OFF}
    headings = ["ceiling", "condense", "runs", "bill, mean", "greatest of a run", "visible", "source"]
    lines = []
    shown_levels = [level for level in ALL_LEVELS if any(row.condense == level for row in rows)]
    for ceiling, level in product(sorted({row.ceiling for row in rows}, reverse=True), shown_levels):
        found = [row for row in rows if (row.ceiling, row.condense) == (ceiling, level)]
        bills = [row.bill(CACHED[0]) / plain[row.run, ceiling].bill(CACHED[0]) for row in found]
        shown = (f"{value:.3f}" for value in (fmean(bills), max(bills)))
        lines.append((f"{ceiling:,}", level, str(len(found)), *shown, _mean(found, "visible"), _mean(found, "source")))
    return table("Condensing below a ceiling, the bill of the ceiling alone as 1", headings, lines, **TITLED)


def run_table(rows: Sequence[Row]) -> Table:
    """Each run at each ceiling."""
    headings = ["run", "size", "ceiling", "bill", "visible", "source"]
    return table("Run by run", headings, list(_runs(rows)), **TITLED)


def _runs(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    never = {row.run: row for row in rows if not row.ceiling}
    for row in sorted(rows, key=lambda row: (row.run, -row.ceiling)):
        if row.ceiling:
            share = row.bill(CACHED[0]) / never[row.run].bill(CACHED[0])
            shown = (percent_of(value) for value in (share, row.visible, row.source))
            yield row.run, f"{row.size:,}", f"{row.ceiling:,}", *shown


def _mean(rows: Sequence[Row], name: str) -> str:
    found = [value for row in rows if (value := getattr(row, name)) is not None]
    return percent_of(fmean(found)) if found else ""


def percent_of(value: float | None) -> str:
    """A share in per cent."""
    return "" if value is None else f"{100 * value:.1f}"


@lru_cache(maxsize=2)
def _material(run: str, head: int) -> Material:
    return Material(with_head(recorded(paths()[run]), head))
