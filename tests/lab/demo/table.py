"""The live table: one row for each iteration; plain lines where stdout is no terminal. Clear at 80 columns."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from prompt_sidecar.v1 import trim_pb2
from tests.lab.demo.agent import Exchange
from tests.lab.demo.investigation import Turn
from tests.lab.demo.tools import summary

_FRAME_LINES = 8
"""Lines of the screen that title, head, caption and prompt take."""
_LEAST_ROWS = 5
_STEP_WIDTH = 25
_COLUMNS = (("#", 3), ("step", _STEP_WIDTH), ("before", 7), ("after", 6), ("limit", 6), ("kept", 4))
_TRIMMED = (("*", 1), ("elid", 4), ("clip", 4), ("drop", 4), ("ms", 5))
CAPTION = """\
before, after: tokens; kept: share of the last prompt that this one begins with
elid, clip, drop: items elided, clipped, dropped at this call; * batch point"""


@dataclass(frozen=True, slots=True)
class Row:
    """One iteration as it is shown."""

    iteration: int
    step: str
    before: int
    """Tokens of the prompt as it was sent."""
    after: int
    limit: int
    kept: float | None
    """Share of the prompt returned before that this one begins with; None for the first."""
    batch_point: bool
    elided: int
    clipped: int
    dropped: int
    milliseconds: float

    def cells(self) -> tuple[str, ...]:
        """The cells, in the order of the columns."""
        step = self.step if len(self.step) <= _STEP_WIDTH else self.step[: _STEP_WIDTH - 1] + "…"
        kept = "" if self.kept is None else f"{self.kept:.0%}"
        trimmed = (str(number) if number else "" for number in (self.elided, self.clipped, self.dropped))
        return (
            str(self.iteration),
            step,
            f"{self.before:,}",
            f"{self.after:,}",
            f"{self.limit:,}",
            kept,
            "*" if self.batch_point else "",
            *trimmed,
            f"{self.milliseconds:.1f}",
        )


class Screen(Protocol):
    """Where rows are shown while the run goes on."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""

    def show(self, row: Row) -> None:
        """Show one more row."""


class Lines:
    """Plain lines, for pipes and logs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        self._print(CAPTION)
        self._print(line([name for name, _ in _COLUMNS + _TRIMMED]))
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to do."""

    def show(self, row: Row) -> None:
        """Print a row."""
        self._print(line(row.cells()))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveTable:
    """A table that follows the run, as much of it as the screen holds; at the end the whole is left there."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: list[Row] = []
        self._live = Live(console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._console.print(_table(self._rows))

    def show(self, row: Row) -> None:
        """Add a row."""
        self._rows.append(row)
        held = max(_LEAST_ROWS, self._console.height - _FRAME_LINES)
        self._live.update(_table(self._rows[-held:]), refresh=True)


def screen(console: Console) -> Screen:
    """A live table on a terminal, else plain lines."""
    return LiveTable(console) if sys.stdout.isatty() and not console.is_dumb_terminal else Lines(console)


def line(cells: Sequence[str]) -> str:
    """A row of plain text, at most 80 characters."""
    return " ".join(
        cell.ljust(width) if name == "step" else cell.rjust(width)
        for cell, (name, width) in zip(cells, _COLUMNS + _TRIMMED, strict=True)
    )


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), caption=CAPTION, caption_justify="left", header_style="bold")
    for name, width in _COLUMNS + _TRIMMED:
        table.add_column(name, width=width, no_wrap=True, justify="left" if name == "step" else "right")
    for row in rows:
        style = "bold yellow" if row.batch_point else ""
        table.add_row(*(Text(cell) for cell in row.cells()), style=style)
    return table


def row(exchange: Exchange, before: Exchange | None, iteration: int) -> Row:
    """What an iteration's prompt was, what was newly trimmed in it, and what the model then did."""
    answer = exchange.answer
    known = set() if before is None else {_trimmed(trim) for trim in before.answer.trims}
    new = Counter(trim.action for trim in answer.trims if _trimmed(trim) not in known)
    return Row(
        iteration=iteration,
        step=step(exchange.turn),
        before=answer.tokens.before,
        after=answer.tokens.after,
        limit=answer.tokens.limit,
        kept=None if before is None else answer.cache.kept_prefix_tokens / before.answer.tokens.after,
        batch_point=answer.cache.batch_point,
        elided=new[trim_pb2.TRIM_ACTION_ELIDED],
        clipped=new[trim_pb2.TRIM_ACTION_CLIPPED],
        dropped=new[trim_pb2.TRIM_ACTION_DROPPED],
        milliseconds=exchange.seconds * 1_000,
    )


def step(turn: Turn) -> str:
    """A turn in a few words: its first call, and how many more."""
    if not turn.calls:
        return "answer the user"
    first = turn.calls[0].label or summary(turn.calls[0].name, turn.calls[0].arguments)
    return f"{first} +{len(turn.calls) - 1}" if len(turn.calls) > 1 else first


def _trimmed(trim: trim_pb2.Trim) -> tuple[int, int, int, int]:
    return trim.message_index, trim.item_index, trim.action, trim.tokens_saved
