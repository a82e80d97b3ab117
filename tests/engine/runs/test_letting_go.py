"""A long run's memory is freed in pieces: what is freed at once lets no other thread run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.steps import memory
from prompt_sidecar.trim.entries import Record
from tests.engine.runs.making import OPENAI_CHAT, Engine, body

PIECE = 100
MESSAGES = 5 * PIECE
ENDED = ("promises", "run-1")


def records() -> int:
    """Records of histories that this process has."""
    return sum(type(each) is Record for each in gc.get_objects())


class Least:
    """Notes how many records there are at each line of the function that lets go of them."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """For `sys.settrace`."""
        if frame.f_code is not Run.forget_memory.__code__:
            return None
        if event == "line":
            self.seen.append(records())
        return self.trace


def ends(engine: Engine) -> None:
    """The agent says so."""
    engine.runs.end(*ENDED)


def idle(engine: Engine) -> None:
    """Nobody has asked for twice the time to live."""
    engine.clock.now += 1_000_000
    engine.runs.sweep()


def caches(engine: Engine) -> None:
    """Memory is short."""
    engine.runs.table.shed(1_000_000_000)


@pytest.mark.parametrize("way", [ends, idle, caches])
def test_a_long_run_is_freed_in_pieces(way: Callable[[Engine], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """However it goes: between two lines no more than a piece of its records, and in the end all of them."""
    monkeypatch.setattr(memory, "PIECE", PIECE)
    engine, before = Engine(limit=100_000), records()
    sent = [{"role": "user", "content": f"{at % 10}"} for at in range(MESSAGES)]
    engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, sent))
    assert records() >= before + MESSAGES
    least = Least()
    traced = sys.gettrace()
    sys.settrace(least.trace)
    try:
        way(engine)
    finally:
        sys.settrace(traced)
    steps = [one - other for one, other in zip(least.seen, [*least.seen[1:], records()], strict=True)]

    assert max(steps) <= PIECE
    assert MESSAGES == sum(steps)
