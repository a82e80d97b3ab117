"""Checks the place of the unix socket: whether it can be created there, and whether a stale one is left."""

from __future__ import annotations

import grp
import os
import re
import secrets
import socket
import stat
from pathlib import Path

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.process.starting import StartError

_OF_URIS = re.compile(r"[%?#]")
_NAME_BYTES = 4
"""Random bytes of a socket's temporary name."""
MOST_GROUP = 2**32 - 2
"""The highest group number; the next one means that the group is not changed."""
SOCKET_BYTES = 107
"""The longest path of a unix socket on Linux."""


def check_socket(settings: ServerOptions) -> None:
    """Check that the socket can be created, unless a server listens there.

    Raises:
        StartError: its folder is missing or cannot be written to, its path or group cannot be used, or another kind
            of file is in its place.
    """
    path = Path(settings.socket)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISSOCK(mode):
            raise StartError(f"server.socket {path} is there and is not a socket; it is not replaced")
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StartError(f"server.socket {path}: there is no folder {path.parent}; make it first") from None
    except OSError as error:
        raise StartError(f"server.socket {path} cannot be looked at: {error.strerror}") from None
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StartError(f"server.socket {path}: the sidecar may not write to the folder {path.parent}")
    if len(os.fsencode(first_name(path))) > SOCKET_BYTES:
        raise StartError(f"server.socket {path}: its folder's path is too long for a socket; use a shorter one")
    group_number(settings.socket_group)


def see_that_nobody_listens(path: Path) -> None:
    """Check that no live server has the socket; that of a dead one may be replaced. Raises StartError."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return  # missing, or left by a dead server; ours will replace it
        except OSError as error:
            raise StartError(f"server.socket {path} is there and cannot be tried: {error.strerror}") from None
        raise StartError(f"server.socket {path}: a server is listening there already")


def first_name(path: Path) -> Path:
    """Return a random name next to the path, under which the socket is bound before it is renamed."""
    return path.with_name(f".{secrets.token_hex(_NAME_BYTES)}")


def target(path: str | Path) -> str:
    """Return a path as gRPC's target, which is read as a part of a URI: `%41` would be an A in another name."""
    return "unix:" + _OF_URIS.sub(lambda sign: f"%{ord(sign[0]):02X}", str(path))


def group_number(name: str) -> int | None:
    """Return the number of a group; None if none is set. Raises StartError."""
    if not name:
        return None
    if name.isascii() and name.isdigit():
        if int(name) > MOST_GROUP:
            raise StartError(f"server.socket_group {name}: a group's number is at most {MOST_GROUP}")
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise StartError(f"server.socket_group {name}: this system has no such group; its number will do") from None
