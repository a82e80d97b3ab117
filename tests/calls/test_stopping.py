"""A stop waits for work that no caller waits for, such as the report of what the last answers cost."""

from __future__ import annotations

import threading

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.turns import Owner
from tests.waiting import PATIENCE

OWNER = Owner("caller", "peer")


@pytest.mark.parametrize("grace", [0, PATIENCE])
def test_a_stop_waits_for_queued_work_as_long_as_its_grace_lasts(grace: float) -> None:
    """Without any left, what has not begun is left out."""
    shared = DoorServices(ServerOptions(listen="", sweep_interval=3_600, workers=2, running_calls=1))
    begun, goes_on, done = threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        goes_on.wait(PATIENCE)
        done.append("first")

    futures = [shared.workers.submit_for(OWNER, 1, first)]
    futures += [shared.workers.submit_for(OWNER, 1, done.append, name) for name in ("second", "third")]
    assert begun.wait(PATIENCE)
    shared.drain()
    later = threading.Timer(0.2, goes_on.set)
    later.start()
    shared.stop(grace)
    later.join()
    futures[0].result(PATIENCE)
    assert done == (["first", "second", "third"] if grace else ["first"])
