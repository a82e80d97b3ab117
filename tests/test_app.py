"""What a process settles when it is ready: how threads take turns, and what the collector looks through."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from prompt_sidecar.app import SWITCH_SECONDS, settle_interpreter

MOST_OBJECTS = 25_000
"""That a pass may look through: some 15 ms in which no thread runs."""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


def test_passes_are_short_while_objects_are_kept() -> None:
    """A prompt of many messages makes records that stay: no pass looks through more than some thousand of them."""
    settle_interpreter()
    passes: list[int] = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            passes.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    gc.callbacks.append(look)
    try:
        kept = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(look)
    assert 300_000 == len(kept)
    assert passes
    assert max(passes) <= MOST_OBJECTS


def test_threads_take_turns_sooner() -> None:
    """The interpreter's own five milliseconds add up where a call hands over several times."""
    settle_interpreter()
    assert SWITCH_SECONDS == pytest.approx(sys.getswitchinterval())
    assert SWITCH_SECONDS < 0.005
