"""Binding addresses, and errors that prevent a door from opening."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prompt_sidecar.facts.held_connections import HeldConnections
from prompt_sidecar.values import split_address

_UNACKED: Final = slice(24, 28)
"""Offset of `tcpi_unacked` in Linux's `struct tcp_info`: eight fields of one byte and four of four bytes precede it."""
_SACKED: Final = slice(28, 32)
"""Offset of `tcpi_sacked`, the next field."""


class StartError(Exception):
    """A door cannot be opened; the message explains what to change."""


@contextmanager
def needing(setting: str, extra: str) -> Iterator[None]:
    """Import what a setting needs from an extra, in this context. Raises StartError if it is not installed."""
    try:
        yield
    except ImportError as error:
        if (error.name or "prompt_sidecar").split(".")[0] == "prompt_sidecar":
            raise  # an installation would not help
        raise StartError(f"{setting} is set, and the extra `{extra}` is not installed: {error}") from None


@contextmanager
def listening(setting: str, address: str) -> Iterator[None]:
    """Bind a setting's address in this context. Raises StartError if it is not available."""
    try:
        yield
    except OSError as error:
        raise StartError(
            f"{setting} {address}: cannot listen there: {error.strerror}; free the address or set another"
        ) from None


def bound_socket(setting: str, address: str) -> socket.socket:
    """Return a socket that is bound to a setting's address. Raises StartError."""
    with listening(setting, address):
        family, kind, protocol, _, resolved = socket.getaddrinfo(*split_address(address), type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(resolved)
    return found


def listening_socket(setting: str, address: str, backlog: int) -> socket.socket:
    """Return a socket that listens from now on; the system queues connections until they are accepted.

    Opened before all other imports, it lets clients wait for a starting process instead of being refused.

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
    """Return how many connections wait at a socket to be accepted, and the maximum.

    For a listening socket Linux reports both in `struct tcp_info`, in the fields for segments in flight and selectively
    acknowledged ones (tcp_info(7), `tcpi_unacked`, `tcpi_sacked`). On other systems, and for a closed socket, the
    number is 0.

    Args:
        listener: the listening socket.
        most: its backlog; the system may allow less (net.core.somaxconn).
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
