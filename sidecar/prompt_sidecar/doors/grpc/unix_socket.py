"""Where the unix socket is to be: whether it can be made there, and what a server before has left."""

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
"""Random bytes of a socket's first name."""
MOST_GROUP = 2**32 - 2
"""The highest number of a group; the next one means that the group stays as it is."""
SOCKET_BYTES = 107
"""The longest path of a unix socket on Linux."""


def check_socket(settings: ServerOptions) -> None:
    """See that the socket can be made, unless a server listens there.

    Raises:
        StartError: its folder is missing or cannot be written to, its path or group cannot be used, or there is
            something else in its place.
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
    """See that no live server has the socket; what a dead one left may be replaced. Raises StartError."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return  # there is none, or a dead server left it; ours will take its place
        except OSError as error:
            raise StartError(f"server.socket {path} is there and cannot be tried: {error.strerror}") from None
        raise StartError(f"server.socket {path}: a server is listening there already")


def first_name(path: Path) -> Path:
    """A random name next to the path, under which the socket is bound before it takes its place."""
    return path.with_name(f".{secrets.token_hex(_NAME_BYTES)}")


def target(path: str | Path) -> str:
    """A path as gRPC is given it, which takes it for a part of a URI: `%41` would be an A in another folder's name."""
    return "unix:" + _OF_URIS.sub(lambda sign: f"%{ord(sign[0]):02X}", str(path))


def group_number(name: str) -> int | None:
    """Return the number of a group; None: none is set. Raises StartError."""
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
