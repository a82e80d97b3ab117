"""The timer that tells how late it woke up."""

from __future__ import annotations

import threading

from prompt_sidecar.telemetry.lag import LagMeter
from tests.doors.grpc.serving import PATIENCE


def test_it_tells_how_late_it_was_until_it_is_ended() -> None:
    """Never less than nothing; nothing before it has begun, nothing after its end."""
    lags: list[float] = []
    heard = threading.Event()

    def late(seconds: float) -> None:
        lags.append(seconds)
        heard.set()

    meter, before = LagMeter(late), set(threading.enumerate())
    assert not lags
    meter.begin()
    (timer,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "lag")
    assert heard.wait(PATIENCE)
    meter.end()
    timer.join(PATIENCE)
    assert not timer.is_alive()
    assert min(lags) >= 0


def test_one_that_never_began_can_be_ended() -> None:
    """A start that fails ends what it has made."""
    LagMeter(lambda _: None).end()
