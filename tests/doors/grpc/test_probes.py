"""Probes over HTTP, and who may use the unix socket."""

from __future__ import annotations

import http.client
import os
import socket
import stat
from pathlib import Path

import pytest

from prompt_sidecar.doors.grpc.lifecycle import Server
from prompt_sidecar.doors.grpc.options import ServerOptions
from prompt_sidecar.doors.grpc.probes import CONNECTIONS, Probes
from prompt_sidecar.process.starting import StartError
from tests.doors.grpc.serving import PATIENCE, runs

OPTIONS = ServerOptions(listen="127.0.0.1:0", health_listen="127.0.0.1:0", sweep_interval=3_600)


def asked(server: Server, path: str) -> int:
    """Return the status that a probe gets."""
    assert server.probes is not None
    connection = http.client.HTTPConnection("127.0.0.1", server.probes.port, timeout=PATIENCE)
    connection.request("GET", path)
    return connection.getresponse().status


def test_probes_follow_the_life_of_the_server() -> None:
    """Alive at once, started and ready once the vocabulary is loaded, alive but not ready while it drains."""
    server = Server(OPTIONS)
    paths = ("/healthz", "/startupz", "/readyz")
    while_loading: list[int] = []
    server.start(runs(), load=lambda: while_loading.extend(asked(server, path) for path in paths))
    serving = [asked(server, path) for path in paths]
    draining: list[int] = []
    close = server.probes.close if server.probes is not None else None
    assert close is not None
    assert server.probes is not None

    def closing() -> None:
        draining.extend(asked(server, path) for path in paths)
        close()

    server.probes.close = closing  # type: ignore[method-assign]
    server.stop(0)

    assert [200, 503, 503] == while_loading
    assert [200, 200, 200] == serving
    assert [200, 200, 503] == draining


def test_other_paths_are_not_found() -> None:
    """The listener has nothing else, metrics included."""
    server = Server(OPTIONS)
    server.start(runs())
    try:
        assert [404, 404, 404] == [asked(server, path) for path in ("/", "/metrics", "/healthz/more")]
    finally:
        server.stop(0)


def test_silent_connections_do_not_keep_probes_out() -> None:
    """Beyond the bound the oldest silent one gives way."""
    reached: list[str] = []
    probes = Probes("127.0.0.1:0", reached.append)
    silent = [socket.create_connection(("127.0.0.1", probes.port)) for _ in range(CONNECTIONS)]
    connection = http.client.HTTPConnection("127.0.0.1", probes.port, timeout=PATIENCE)
    connection.request("GET", "/healthz")
    status = connection.getresponse().status
    for each in silent:
        each.close()
    probes.close()

    assert 200 == status
    assert "server.probes" in reached


@pytest.mark.parametrize(("path", "status"), [("/healthz", b"200"), ("/none", b"404")])
def test_a_head_request_has_no_body(path: str, status: bytes) -> None:
    """As RFC 9110, section 9.3.2, has it: load balancers ask so."""
    probes = Probes("127.0.0.1:0", lambda _: None)
    with socket.create_connection(("127.0.0.1", probes.port), PATIENCE) as connection:
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    probes.close()
    assert status == answer.split()[1]
    assert answer.endswith(b"\r\n\r\n")


def test_an_address_in_use_is_reported() -> None:
    """Before anything is loaded, with the setting's name."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StartError, match=r"server\.health_listen"):
        Probes(f"127.0.0.1:{taken.getsockname()[1]}", lambda _: None)


@pytest.mark.parametrize("mode", ["0600", "0660", "0666"])
def test_the_socket_has_the_configured_mode(tmp_path: Path, mode: str) -> None:
    """Who may connect is the file's mode, whatever the umask is."""
    path = tmp_path / "s"
    server = Server(ServerOptions(listen="", socket=str(path), socket_mode=mode))
    found = stat.S_IMODE(path.stat().st_mode)
    server.stop(0)

    assert int(mode, 8) == found


def test_the_socket_has_the_configured_group(tmp_path: Path) -> None:
    """By number, as containers have no names for their groups."""
    group = next((each for each in os.getgroups() if each != os.getegid()), os.getegid())
    path = tmp_path / "s"
    server = Server(ServerOptions(listen="", socket=str(path), socket_mode="0660", socket_group=str(group)))
    found = path.stat().st_gid
    server.stop(0)

    assert group == found


def test_a_group_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """At the start, with the setting's name; no socket is left behind."""
    with pytest.raises(StartError, match=r"server\.socket_group"):
        Server(ServerOptions(listen="", socket=str(tmp_path / "s"), socket_group="no-such-group"))

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("group", [2**32 - 1, 2**32, 10**20])
def test_a_number_that_no_group_has_is_told(tmp_path: Path, group: int) -> None:
    """Nothing is left in the socket's folder; the number that means no group is none either."""
    with pytest.raises(StartError, match=r"server\.socket_group \d+: a group's number is at most 4294967294"):
        Server(ServerOptions(listen="", socket=str(tmp_path / "s"), socket_group=str(group)))
    assert [] == list(tmp_path.iterdir())
