"""A collector that is not there costs calls nothing, and the end of the process little."""

from __future__ import annotations

from pathlib import Path

from tests.doors.grpc.serving import request
from tests.lab.harness.processes import Programs, free_port
from tests.lab.observe import stack


def test_calls_go_on_and_the_end_is_near(tmp_path: Path) -> None:
    """Prompts are answered while nothing takes the spans, and SIGTERM ends the process all the same."""
    with Programs(tmp_path) as programs:
        sidecar = stack.sidecar(programs, "sidecar", {}, free_port())
        stub = sidecar.stub()
        fits = [stub.TrimPrompt(request(f"run-{number}")).fits for number in range(300)]
        code = sidecar.running.stop()

    assert [True] * 300 == fits
    assert 0 == code
