"""Connections to a running server on which nothing, or half a request, is sent."""

from __future__ import annotations

import contextlib
import socket

import pytest

from tests.cli.running import PATIENCE, Program, program

SHORT = {
    "SERVER__LISTEN": "127.0.0.1:0",
    "TELEMETRY__METRICS_LISTEN": "",
    "SERVER__HANDSHAKE_TIMEOUT": "0.1s",
    "SERVER__MESSAGE_TIMEOUT": "0.1s",
}


def opened(running: Program, pattern: str) -> socket.socket:
    """A connection to the address in the line that tells where the server listens."""
    host, _, port = running.wait_for(pattern)[1].rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE)


@pytest.mark.parametrize(
    ("door", "pattern"),
    [
        ({"SERVER__LISTEN": "127.0.0.1:0"}, r"ready: listening on ([\d.:]+)"),
        ({"HTTP__LISTEN": "127.0.0.1:0"}, r"ready: .*http://([\d.:]+)"),
        ({"ENVOY__LISTEN": "127.0.0.1:0"}, r"external processor for Envoy: listening on ([\d.:]+)"),
    ],
)
def test_a_connection_that_says_nothing_ends(door: dict[str, str], pattern: str) -> None:
    """At each door, after server.handshake_timeout: else a few thousand of them take all file descriptors."""
    with program(**(SHORT | door)) as running, opened(running, pattern) as silent, contextlib.suppress(ConnectionError):
        while silent.recv(4_096):
            pass


def test_a_body_that_does_not_come() -> None:
    """After server.message_timeout the request ends."""
    patient = SHORT | {"SERVER__HANDSHAKE_TIMEOUT": "60s"}  # or a slow machine closes it before the request
    with (
        program(**patient, HTTP__LISTEN="127.0.0.1:0") as running,
        opened(running, r"ready: .*http://([\d.:]+)") as agent,
    ):
        agent.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
        assert agent.recv(4_096).startswith(b"HTTP/1.1 408 ")
