"""Probes over HTTP, which say whether the process is alive, started and ready."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.calls.probes import CONNECTIONS, Probes
from prompt_sidecar.calls.readiness import Readiness
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.doors import Doors
from prompt_sidecar.process.starting import StartError
from tests.doors.grpc.serving import PATIENCE, runs

PATHS = ("/healthz", "/startupz", "/readyz")


def asked(probes: Probes, path: str) -> int:
    """Return the status that a probe gets."""
    connection = http.client.HTTPConnection("127.0.0.1", probes.port, timeout=PATIENCE)
    connection.request("GET", path)
    return connection.getresponse().status


@contextmanager
def bound(reached: Callable[[str], None] = lambda _: None) -> Iterator[Probes]:
    """The door by itself."""
    probes = Probes("127.0.0.1:0", Readiness(), reached)
    probes.bind()
    try:
        yield probes
    finally:
        probes.stop(0)


class _Last:
    """A door that asks the probes when it drains."""

    early, addresses, notice = False, (), ""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self.found: list[int] = []

    def bind(self) -> None:
        """Nothing."""

    start = bind

    def drain(self) -> None:
        """Ask."""
        self.found = [asked(self._probes, path) for path in PATHS]

    def stop(self, grace: float) -> bool:  # noqa: ARG002 - as a `Door` has it
        """Nothing."""
        return True


def test_probes_follow_the_life_of_the_process() -> None:
    """Alive at once, started and ready once the vocabulary is loaded, alive but not ready while it drains."""
    shared = DoorServices(ServerOptions(sweep_interval=3_600))
    probes = Probes("127.0.0.1:0", shared.readiness, shared.observer.reached)
    last = _Last(probes)
    process = Doors(shared, [probes, last])
    process.bind()
    while_loading: list[int] = []
    process.start(runs(), lambda: while_loading.extend(asked(probes, path) for path in PATHS))
    serving = [asked(probes, path) for path in PATHS]
    process.stop(0)

    assert [200, 503, 503] == while_loading
    assert [200, 200, 200] == serving
    assert [200, 200, 503] == last.found


def test_other_paths_are_not_found() -> None:
    """The listener has nothing else, metrics included."""
    with bound() as probes:
        assert [404, 404, 404] == [asked(probes, path) for path in ("/", "/metrics", "/healthz/more")]


def test_silent_connections_do_not_keep_probes_out() -> None:
    """Beyond the bound the oldest silent one gives way."""
    reached: list[str] = []
    with bound(reached.append) as probes:
        silent = [socket.create_connection(("127.0.0.1", probes.port)) for _ in range(CONNECTIONS)]
        status = asked(probes, "/healthz")
        for each in silent:
            each.close()

    assert 200 == status
    assert "server.probes" in reached


@pytest.mark.parametrize(("path", "status"), [("/healthz", b"200"), ("/none", b"404")])
def test_a_head_request_has_no_body(path: str, status: bytes) -> None:
    """As RFC 9110, section 9.3.2, has it: load balancers ask so."""
    with bound() as probes, socket.create_connection(("127.0.0.1", probes.port), PATIENCE) as connection:
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert status == answer.split()[1]
    assert answer.endswith(b"\r\n\r\n")


def test_an_address_in_use_is_reported() -> None:
    """Before anything is loaded, with the setting's name."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StartError, match=r"server\.health_listen"):
        Probes(f"127.0.0.1:{taken.getsockname()[1]}", Readiness(), lambda _: None).bind()
