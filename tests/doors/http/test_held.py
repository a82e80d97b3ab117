"""Connections that wait for the door while its process starts."""

from __future__ import annotations

import http.client
import socket
import sys
import time
from contextlib import closing

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.doors.http.lifecycle import HELD_BOUND, HttpDoor
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.process.starting import listening_socket
from prompt_sidecar.telemetry.catalog import HTTP_HELD
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.telemetry.options import TelemetryOptions
from prompt_sidecar.telemetry.pipeline import start as start_telemetry
from tests.client.provider import Says
from tests.doors.grpc.serving import core_of
from tests.doors.http.serving import KEY, options
from tests.doors.http.upstream import Upstream
from tests.telemetry.watched import scrape

REQUEST = (
    b'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 29\r\n\r\n{"model": "m", "messages":[]}'
)


class Bounds(Observer):
    """Keeps the names of the bounds that were reached."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def reached(self, bound: str) -> None:
        """Keep one."""
        self.names.append(bound)


@pytest.mark.parametrize(("most", "expected"), [(1, [HELD_BOUND]), (8, [])], ids=["full", "room"])
def test_a_request_that_arrived_before_the_door(most: int, expected: list[str]) -> None:
    """It is answered once the door serves; where no more could have waited, the bound was reached."""
    observer = Bounds()
    with Upstream(lambda _: Says("held")) as upstream:
        given = options(upstream.url, held_connections=most)
        listening = listening_socket("http.listen", given.listen, most)
        shared = DoorServices(ServerOptions(listen="", sweep_interval=3_600), observer)
        process = Doors(shared, [HttpDoor(given, shared, KEY, listening=listening)])
        with closing(socket.create_connection(listening.getsockname())) as early:
            early.sendall(REQUEST)
            process.bind()
            process.start(core_of(Runs, time.time, Limits(default_window=4_500), None, None, KEY))
            try:
                answer = http.client.HTTPResponse(early)
                answer.begin()
                assert answer.status < 500
            finally:
                process.stop(0)
    if sys.platform == "linux":
        assert expected == observer.names


def test_held_connections_are_on_the_metrics_page() -> None:
    """While a process starts its `/metrics` says how many wait and how many may; once it serves none wait."""
    running = start_telemetry(TelemetryOptions(), {}, address=("127.0.0.1", 0))
    assert running.exposition is not None
    port = running.exposition.port
    with Upstream(lambda _: Says("held")) as upstream:
        given = options(upstream.url, held_connections=8)
        listening = listening_socket("http.listen", given.listen, 8)
        shared = DoorServices(ServerOptions(listen="", sweep_interval=3_600), running.observer)
        process = Doors(shared, [HttpDoor(given, shared, KEY, listening=listening)])
        with closing(socket.create_connection(listening.getsockname())) as early:
            early.sendall(REQUEST)
            process.bind()
            starting = _held(port)
            process.start(core_of(Runs, time.time, Limits(default_window=4_500), None, None, KEY))
            try:
                answer = http.client.HTTPResponse(early)
                answer.begin()
                serving = _held(port)
            finally:
                process.stop(0)
                running.stop()
    one = int(sys.platform == "linux")
    assert {"waiting": one, "at_start": 0, "limit": 8} == starting
    assert {"waiting": 0, "at_start": one, "limit": 8} == serving


def _held(port: int) -> dict[str, float]:
    """What the page of metrics says of held connections."""
    figures = scrape(port)
    return {state: figures.of(HTTP_HELD, state=state) for state in HTTP_HELD.labels["state"]}
