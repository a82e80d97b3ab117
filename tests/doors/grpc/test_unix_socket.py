"""Who may use the unix socket: its file's mode and group."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.process.starting import StartError
from tests.doors.grpc.serving import Server


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
def test_a_number_that_no_group_has_is_reported(tmp_path: Path, group: int) -> None:
    """Nothing is left in the socket's folder; the number that means no group is none either."""
    with pytest.raises(StartError, match=r"server\.socket_group \d+: a group's number is at most 4294967294"):
        Server(ServerOptions(listen="", socket=str(tmp_path / "s"), socket_group=str(group)))
    assert [] == list(tmp_path.iterdir())
