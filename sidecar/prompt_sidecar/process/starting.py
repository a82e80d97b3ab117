"""Taking addresses, and what keeps a door from being opened."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prompt_sidecar.facts.held_connections import HeldConnections
from prompt_sidecar.values import split_address

_UNACKED: Final = slice(24, 28)
"""The bytes of `tcpi_unacked` in Linux's `struct tcp_info`: eight of one byte each and four of four are before it."""
_SACKED: Final = slice(28, 32)
"""Those of `tcpi_sacked`, which is the next."""


class StartError(Exception):
    """A door cannot be opened; the message explains what to change."""


@contextmanager
def needing(setting: str, extra: str) -> Iterator[None]:
    """Import what a setting needs of an extra of the package. Raises StartError where it is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "prompt_sidecar").split(".")[0] == "prompt_sidecar":
            raise  # no installation would help
        raise StartError(f"{setting} is set, and the extra `{extra}` is not installed: {error}") from None


@contextmanager
def listening(setting: str, address: str) -> Iterator[None]:
    """Take an address that a setting has, inside. Raises StartError where it is not available."""
    try:
        yield
    except OSError as error:
        raise StartError(
            f"{setting} {address}: cannot listen there: {error.strerror}; free the address or set another"
        ) from None


def bound_socket(setting: str, address: str) -> socket.socket:
    """Return a socket that is bound to an address that a setting has. Raises StartError."""
    with listening(setting, address):
        family, kind, protocol, _, resolved = socket.getaddrinfo(*split_address(address), type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(resolved)
    return found


def listening_socket(setting: str, address: str, backlog: int) -> socket.socket:
    """Return a socket that takes connections from now on; the system holds them until they are accepted.

    Taken before all else is imported, it lets clients wait for a process that starts, where they would be refused.

    Args:
        setting: the name of the address's setting.
        address: host and port.
        backlog: connections that may wait.

    Raises:
        StartError: the address is not available.
    """
    found = bound_socket(setting, address)
    with listening(setting, address):
        found.listen(backlog)
    return found


def held(listener: socket.socket, most: int) -> HeldConnections:
    """Return how many connections wait at a socket to be accepted, and how many may.

    Linux gives both in `struct tcp_info`, in place of the segments in flight and of those acknowledged selectively
    (tcp_info(7), `tcpi_unacked`, `tcpi_sacked`). Beyond Linux, and where the socket is closed, none are known to wait.

    Args:
        listener: the socket, which listens.
        most: the backlog that it listens with, of which the system may allow less (net.core.somaxconn).
    """
    option = getattr(socket, "TCP_INFO", None)
    if option is None or sys.platform != "linux":
        return HeldConnections(0, most)
    try:
        found = listener.getsockopt(socket.IPPROTO_TCP, option, _SACKED.stop)
    except OSError:
        return HeldConnections(0, most)
    waiting, allowed = (int.from_bytes(found[each], sys.byteorder) for each in (_UNACKED, _SACKED))
    return HeldConnections(waiting, min(most, allowed))
