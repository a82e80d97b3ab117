"""How the MCP process is run: where the sidecar is, whose runs are meant, where it listens."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.client.options import DEFAULT_TARGET, Tls

DEADLINE: Final = 10.0
"""Seconds that one call of the sidecar may take. A search in a long run takes milliseconds; a host waits for a tool
longer than an agent for a prompt."""
MOST_CALLS: Final = 256
"""Requests over HTTP at once; more are refused with 503. Each holds one call of the sidecar, and a host makes few."""
MOST_BODY_BYTES: Final = 1_048_576
"""Bytes of one request over HTTP. The arguments of the sidecar's tools take less than 16 KiB."""


@dataclass(frozen=True, slots=True)
class McpOptions:
    """Everything that the process is started with."""

    target: str = DEFAULT_TARGET
    """The sidecar, as in the Python client."""
    run: str = ""
    """The run, over stdio. Over HTTP a header names it."""
    token: str = field(default="", repr=False)
    """The bearer token for the sidecar, over stdio. Over HTTP the request's own is used, and no other."""
    tls: Tls | None = None
    """TLS to the sidecar, with a certificate of the caller's or without."""
    listen: str = ""
    """`host:port` for streamable HTTP; empty: stdio."""
    hosts: tuple[str, ...] = ()
    """Names beyond loopback that requests may have in their Host header, and their Origin."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on.

        Raises:
            ValueError: it is no such address, or one beyond loopback without names that are accepted there.
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
