"""No provider that checks reasoning refuses what a sidecar's agents send, however they go about it.

`python -m tests.lab.conformance.reasoning` tries the same on all recorded runs, presets and limits.
"""

from __future__ import annotations

import pytest

from tests.conformance.conversations import recorded_paths
from tests.conformance.recorded import presets
from tests.conformance.replaying import JUDGES, Result, Task, names, replayed
from tests.conformance.wired_agents import STYLES, WIRED
from tests.oracle import data

FAST = [style for style in STYLES if style not in WIRED]
by_judge = pytest.mark.parametrize("judge", JUDGES)
by_style = pytest.mark.parametrize("style", FAST)
PRESETS = presets()
IN_PAIRS = [
    (judge, style, PRESETS[(row + column + more) % len(PRESETS)])
    for row, judge in enumerate(JUDGES)
    for column, style in enumerate(FAST)
    for more in (0, 2)
]
"""Each judge with each style, under two of the presets, so that each preset has met each judge and each style."""


def accepted(result: Result) -> None:
    """Nothing was refused."""
    assert (0, (), result.turns) == (result.refused, result.first, result.turns)


@pytest.mark.parametrize(("judge", "style", "preset"), IN_PAIRS)
def test_made_runs(judge: str, style: str, preset: str) -> None:
    """Every agent, every preset, at a limit that forces many cuts; where thinking is bound, at one that forces few."""
    for share in (0.2, 0.5) if judge == "bound" else (0.2,):
        accepted(replayed(Task(judge, "made", preset, share, style)))


@pytest.mark.parametrize("seed", range(2, 5))
def test_more_made_runs(seed: int) -> None:
    """Other runs, where thinking is bound."""
    for style in ("whole", "adopted", "restarted"):
        accepted(replayed(Task("bound", f"made-{seed}", "cache_first", 0.3, style)))


@pytest.mark.parametrize("judge", ["bound", "older"])
@by_style
def test_runs_with_system_messages(judge: str, style: str) -> None:
    """Agents that put system messages into the history, with tools that come and go."""
    accepted(replayed(Task(judge, "made+instructed", "cache_first", 0.3, style)))
    if style == "whole":
        accepted(replayed(Task(judge, "made+instructed", "lean", 0.3, style)))


@pytest.mark.parametrize("style", ["client", "client-native", "client-late"])
@pytest.mark.parametrize("judge", ["bound", "older"])
def test_the_client_with_its_sidecar_down_in_between(judge: str, style: str) -> None:
    """What the client sends when nobody trims it is valid, and so is what is sent when the sidecar is back."""
    accepted(replayed(Task(judge, "made", "cache_first", 0.3, style)))


def test_a_sidecar_that_is_killed() -> None:
    """SIGKILL at several turns, a real process each time."""
    accepted(replayed(Task("bound", "made", "cache_first", 0.3, "killed")))


def test_thinking_before_the_first_edit_stays() -> None:
    """Not all thinking leaves at a cut, nor any before it: what is valid is worth its tokens."""
    uncut = replayed(Task("bound", "made", "cache_first", 2.0, "whole"))
    assert (0, 1.0) == (uncut.refused, uncut.carried)
    cut = replayed(Task("bound", "made", "cache_first", 0.5, "whole"))
    assert 0.1 < cut.carried < 1.0


@by_judge
def test_recorded_runs(judge: str) -> None:
    """A recorded run of the format, at 30 % of its size; the smallest limit at which most presets cut in batches."""
    if not recorded_paths():
        pytest.skip(f"no recorded runs: {data.ENVIRONMENT} names the folder that holds them")
    name = names(JUDGES[judge])[0]
    for style in ("whole", "adopted-plain"):
        accepted(replayed(Task(judge, name, "cache_first", 0.3, style)))
