"""Times to live follow a clock that nobody can set: the wall clock's steps change nothing that is kept."""

from __future__ import annotations

import time

import pytest

from prompt_sidecar.app import build_runs
from prompt_sidecar.config.settings import Settings
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.facts.trim_calls import TrimCall
from prompt_sidecar.process.clock import steady
from tests.doors.grpc.serving import PATIENCE, counter, request, serving
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, body, history

HOURS = 7_200.0


class WallClock:
    """The machine's wall clock, set by so many seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._real = time.time

    def __call__(self) -> float:
        """Seconds since the epoch, as far as this machine knows."""
        return self._real() + self.ahead


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """The wall clock of this process, which can be set."""
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    return clock


def _prompt(runs: Runs, run_id: str = "run") -> str:
    """Send a prompt that is trimmed; the id of what went."""
    raw = body(OPENAI_CHAT, history(OPENAI_CHAT, 12))
    call = TrimCall(caller="local", run_id=run_id, format=OPENAI_CHAT, body=raw, context_window=LIMIT)
    return runs.trim(call, lambda: None).trimmed.trims[0].stash_id


@pytest.mark.parametrize("step", [HOURS, -HOURS])
def test_a_step_of_the_wall_clock_expires_nothing(wall: WallClock, step: float) -> None:
    """Two hours forward or back: the original is there, the run is known, and housekeeping takes nothing."""
    runs = build_runs(Settings(), counter())
    stash_id = _prompt(runs)
    wall.ahead = step
    runs.sweep()
    assert runs.recalling.retrieve(RetrieveCall(caller="local", run_id="run", stash_id=stash_id)).page.content
    assert 1 == runs.figures("local", "run").calls


def test_a_step_of_the_wall_clock_ends_no_call(wall: WallClock) -> None:
    """A call at work when the wall clock is set is answered: its deadline is not of that clock."""
    with serving() as served:
        served.gate.shut()
        call = served.stub.TrimPrompt.future(request(), timeout=PATIENCE)
        served.gate.wait_reached()
        wall.ahead = HOURS
        served.gate.open()
        assert call.result(PATIENCE).fits


@pytest.mark.parametrize("step", [0.0, HOURS, -HOURS])
def test_figures_tell_times_as_a_watch_has_them(wall: WallClock, step: float) -> None:
    """A run's start and last call are told in seconds since the epoch, by the wall clock as it is set now."""
    runs = build_runs(Settings(), counter())
    _prompt(runs)
    wall.ahead = step
    figures = runs.figures("local", "run")
    assert pytest.approx(time.time(), abs=60) == figures.started
    assert pytest.approx(time.time(), abs=60) == figures.last_seen
    assert figures.started <= figures.last_seen


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has a clock that goes on in suspend")
def test_the_clock_goes_on_in_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux it is the clock that counts the time that the machine slept."""
    real, before = time.clock_gettime, steady()
    # After a night's sleep this clock alone has gone on: `time.monotonic` has not.
    monkeypatch.setattr(time, "clock_gettime", lambda which: real(which) + HOURS * (which == time.CLOCK_BOOTTIME))
    assert HOURS <= steady() - before <= HOURS + PATIENCE
