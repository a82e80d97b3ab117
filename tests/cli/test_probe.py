"""`probe` says at once why there is no answer."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.running import program, run
from tests.cli.test_process import ANY_PORT, READY
from tests.doors.grpc.test_callers import certificates

__all__ = ["certificates"]
LONG = ("--timeout", "3600")
"""Nobody may wait for it: the answer is known at once."""


def test_a_closed_port() -> None:
    """Nothing listens there, and the probe says so without waiting."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = run("probe", "--address", f"127.0.0.1:{port}", *LONG)
    assert (1, "") == (ended.returncode, ended.stdout)
    assert "connection refused: nothing listens there" in ended.stderr


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    """Neither the file nor, in its place, somebody who listens."""
    path = tmp_path / "s.sock"
    assert "there is no such socket" in run("probe", "--address", f"unix:{path}", *LONG).stderr
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert "nothing listens there" in run("probe", "--address", f"unix:{path}", *LONG).stderr


def test_a_probe_needs_no_key() -> None:
    """Its environment has the server's settings but not its secrets, such as the key that a store needs."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = run("probe", "--listen", f"127.0.0.1:{port}", "--set", "store.url=valkey://127.0.0.1:6379")
    assert (1, True) == (ended.returncode, "connection refused: nothing listens there" in ended.stderr)


@pytest.mark.parametrize("authority", [False, True])
def test_a_port_that_speaks_tls(certificates: Path, *, authority: bool) -> None:
    """A TLS port gives plain text no answer, and the probe says that it is one; also where it asks for certificates."""
    settings = {"TLS_CERTIFICATE": "server.pem", "TLS_KEY": "server.key"}
    if authority:
        settings["CLIENT_CA"] = "ca.pem"
    files = {f"SERVER__{name}": str(certificates / file) for name, file in settings.items()}
    with program(*ANY_PORT, **files) as served:
        address = served.wait_for(READY)[1]
        ended = run("probe", "--address", address, *LONG)
        assert 1 == ended.returncode
        assert "it speaks TLS there" in ended.stderr


def test_a_server_of_another_kind() -> None:
    """One that listens and says nothing is told as that when the time is over."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        ended = run("probe", "--address", f"127.0.0.1:{other.getsockname()[1]}", "--timeout", "0.3")
    assert 1 == ended.returncode
    assert "gave no answer within 0.3 s" in ended.stderr
