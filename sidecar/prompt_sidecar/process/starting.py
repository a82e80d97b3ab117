"""What keeps a door from being opened."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from prompt_sidecar.values import split_address


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
