"""Agents that write their requests byte by byte, on connections of their own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import Proxied

PROMPT: Final = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "Hello."}]}).encode()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends what was begun."""
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, here: Proxied, sent: bytes = b"") -> socket.socket:
    """A connection to the door, on which this was sent."""
    made = stack.enter_context(socket.create_connection(("127.0.0.1", here.door.port), PATIENCE))
    made.sendall(sent)
    return made


def request(path: str, body: bytes, length: int | None = None, *, more: str = "") -> bytes:
    """A request that says that its body has so many bytes."""
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\n{more}content-length: {len(body) if length is None else length}\r\n\r\n"
    return head.encode() + body


def taken(agent: socket.socket) -> bytes:
    """All that comes until the door closes the connection."""
    parts = []
    try:
        while part := agent.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
