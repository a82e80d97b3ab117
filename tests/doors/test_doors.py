"""The doors of a process: opened in one order, drained together, and closed whatever fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.readiness import State
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.process.starting import StartError
from tests.doors.grpc.serving import runs


class RecordedDoor:
    """A door that tells what is done with it, and fails at one step."""

    notice = ""

    def __init__(
        self, name: str, steps: list[str], *, early: bool = False, fails: str = "", clean: bool = True
    ) -> None:
        self._name = name
        self._steps = steps
        self.early = early
        self._fails = fails
        self._clean = clean
        self.grace = 0.0

    @property
    def addresses(self) -> Sequence[str]:
        """One."""
        return [f"{self._name}:1"]

    def _step(self, step: str) -> None:
        self._steps.append(f"{step} {self._name}")
        if step == self._fails:
            raise StartError(self._name)

    def bind(self) -> None:
        """Tell."""
        self._step("bind")

    def start(self) -> None:
        """Tell."""
        self._step("start")

    def drain(self) -> None:
        """Tell."""
        self._step("drain")

    def stop(self, grace: float) -> bool:
        """Tell, and take a part of the grace."""
        self._step("stop")
        self.grace = grace
        return self._clean


def _process(*doors: RecordedDoor) -> Doors:
    return Doors(DoorServices(ServerOptions(listen="", sweep_interval=3_600)), doors)


def test_doors_open_and_close_in_one_order() -> None:
    """All are bound first; early ones start before what calls need is loaded; all drain before one is waited for."""
    steps: list[str] = []
    process = _process(RecordedDoor("late", steps), RecordedDoor("early", steps, early=True))
    states: list[State] = []
    process.shared.readiness.changed.append(states.append)
    process.bind()
    process.start(runs(), lambda: steps.append("load"), lambda: None)
    assert process.stop(0)

    assert [State.SERVING, State.DRAINING] == states
    opened = ["bind late", "bind early", "start early", "load", "start late"]
    assert [*opened, "drain late", "drain early", "stop late", "stop early"] == steps
    assert ("late:1", "early:1") == process.addresses


def test_what_one_door_cuts_off_is_reported() -> None:
    """A stop is not clean where calls through any door were cut off; the others are closed all the same."""
    steps: list[str] = []
    process = _process(RecordedDoor("a", steps, clean=False), RecordedDoor("b", steps))
    process.bind()
    process.start(runs())
    assert not process.stop(0)
    assert "stop b" == steps[-1]


def test_doors_have_the_grace_together() -> None:
    """What is left of it by the first one's end is the next one's."""
    steps: list[str] = []
    first, second = RecordedDoor("a", steps), RecordedDoor("b", steps)
    process = _process(first, second)
    process.bind()
    process.start(runs())
    process.stop(100.0)
    assert 0 < second.grace <= first.grace <= 100.0


@pytest.mark.parametrize("step", ["bind", "start"])
def test_a_step_that_fails_closes_all_doors(step: str) -> None:
    """The error is the one that is told."""
    steps: list[str] = []
    process = _process(
        RecordedDoor("good", steps), RecordedDoor("bad", steps, fails=step), RecordedDoor("never", steps)
    )

    def opened() -> None:
        process.bind()
        process.start(runs())

    with pytest.raises(StartError, match="bad"):
        opened()
    assert [f"stop {name}" for name in ("good", "bad", "never")] == steps[-3:]
    assert f"{step} never" not in steps
