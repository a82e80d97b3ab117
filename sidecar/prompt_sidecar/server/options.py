"""Where and how the server listens: each option with its default and the reason for it, and addresses as text."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

_LAST_PORT = 65_535
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]/]+):(\d{1,5})")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Bytes, seconds and counts, as the docstrings say; a path or address that is empty is none."""

    listen: str = "127.0.0.1:7717"
    """TCP address; port 0: a free one. Loopback, as prompts are secrets. Not gRPC's customary 50051: it lies in Linux's
    range of outgoing ports, and another container of the same pod is likely to have taken it."""
    socket: str = ""
    """Path of a unix socket, which gets mode 0600."""
    workers: int = 8
    """Threads that run calls. One prompt keeps one core busy; the others let short calls pass a long one."""
    max_calls: int = 128
    """Calls running or waiting; past it one is refused. Bodies are read only a little ahead of the threads, so this
    bounds the wait more than the memory: 128 calls of 2 ms on one core are a quarter of a second."""
    slow_messages: int = 32
    """Calls whose message takes longer than a tenth of a second to come. Each may hold up to max_message_bytes of what
    has come so far; honest clients on loopback have none."""
    message_timeout: float = 20.0
    """Seconds in which a call's message must have come whole: 64 MiB at 30 Mbit/s are 18."""
    answer_timeout: float = 60.0
    """Seconds in which a caller must have taken its answer, which is kept in memory until then: thrice what an answer
    of 64 MiB takes at 30 Mbit/s, as the caller may be busy."""
    untaken_bytes: int = 134_217_728
    """Bytes of answers that wait to be taken: a megabyte for each of max_calls, or two of the largest that are allowed.
    Callers on loopback take theirs within milliseconds."""
    max_connections: int = 1_000
    """Connections of each listener; past it new ones are closed. Each takes a file descriptor, and some 30 kB."""
    max_streams: int = 100
    """Calls that one connection may have open; what its client begins beyond waits at the client. RFC 9113 asks for at
    least 100; fewer than max_calls, so that one connection alone cannot take all places."""
    connection_idle: float = 900.0
    """Seconds after which a connection without calls is closed; clients connect again when they need to. An agent's
    model call takes less than fifteen minutes."""
    connection_age: float = 3_600.0
    """Seconds after which a connection is replaced, with a minute for its calls to end: new certificates and
    authorities then hold for all."""
    keepalive: float = 60.0
    """Seconds without a byte after which the peer is pinged, and given keepalive_timeout to answer: one that has gone
    without a word is noticed in a minute and a half."""
    keepalive_timeout: float = 20.0
    """Seconds that a peer has to answer a ping; gRPC's default."""
    handshake_timeout: float = 10.0
    """Seconds in which a new connection must have spoken TLS and HTTP/2; gRPC gives 120."""
    channelz: bool = False
    """Whether gRPC's channelz service is on, which shows every peer's address and sockets to each caller."""
    max_message_bytes: int = 67_108_864
    """Bytes of one request or answer: 64 MiB. gRPC's own 4 MiB is less than a long prompt with images."""
    grace: float = 10.0
    """Seconds that calls in flight get to finish at a stop; well within the 30 s that Kubernetes gives."""
    sweep_interval: float = 1.0
    """Seconds between slices of housekeeping; each slice is bounded, so that no call waits for a long one."""
    tls_certificate: str = ""
    """File of the server's certificate chain, PEM; empty: no TLS."""
    tls_key: str = ""
    """File of the certificate's private key, PEM."""
    client_ca: str = ""
    """File of the authorities, PEM, that clients' certificates must come from; empty: none are asked for."""
    tokens_file: str = ""
    """File of bearer tokens, one `name:token` a line; empty: none are asked for."""


def split_address(value: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host stands in brackets.

    Raises:
        ValueError: it is not of that form, or the port is over 65,535.
    """
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found[2]) > _LAST_PORT:
        raise ValueError(value)
    return found[1].strip("[]"), int(found[2])


def is_loopback(value: str) -> bool:
    """Whether `host:port` can be reached from this machine alone. A name other than localhost counts as no."""
    host = split_address(value)[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
