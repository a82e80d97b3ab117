"""The options of the MCP process: the sidecar's address, the run, the listening address."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.client.options import DEFAULT_TARGET, Tls

DEADLINE: Final = 10.0
"""Time limit of one call of the sidecar, in seconds. A search in a long run takes milliseconds; a host waits longer for
a tool than an agent for a prompt."""
MOST_CALLS: Final = 256
"""Simultaneous requests over HTTP; more are refused with 503. Each makes one call of the sidecar, and a host makes
few."""
MOST_BODY_BYTES: Final = 1_048_576
"""Largest request over HTTP. The arguments of the sidecar's tools take less than 16 KiB."""


@dataclass(frozen=True, slots=True)
class McpOptions:
    """All options of the process."""

    target: str = DEFAULT_TARGET
    """The sidecar's address, as in the Python client."""
    run: str = ""
    """The run, over stdio. Over HTTP a header names it."""
    token: str = field(default="", repr=False)
    """The bearer token for the sidecar, over stdio. Over HTTP only the request's own token is used."""
    tls: Tls | None = None
    """TLS to the sidecar, with or without a certificate of the caller's."""
    listen: str = ""
    """`host:port` for streamable HTTP; empty for stdio."""
    hosts: tuple[str, ...] = ()
    """Names beyond loopback that requests may have in their Host and Origin headers."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on.

        Raises:
            ValueError: the address is malformed, or beyond loopback without accepted names (`hosts`).
        """
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"--listen {self.listen}: write HOST:PORT, such as 127.0.0.1:7790")
        host = host.strip("[]")
        if not _is_loopback(host) and not self.hosts:
            raise ValueError(
                f"--listen {self.listen} can be reached from other machines: name what they call it with --allow-host"
            )
        return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
