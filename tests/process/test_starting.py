"""Addresses that are taken before anything can be served."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack

import pytest

from prompt_sidecar.process.starting import StartError, listening_socket, waiting


def test_connections_wait() -> None:
    """They are taken at once, their first bytes too, and counted until somebody accepts them."""
    with ExitStack() as stack:
        listener = stack.enter_context(listening_socket("http.listen", "127.0.0.1:0", 8))
        assert 0 == waiting(listener)
        for _ in range(3):
            client = stack.enter_context(socket.create_connection(listener.getsockname()))
            client.sendall(b"GET / HTTP/1.1\r\n")
        if sys.platform == "linux":
            assert 3 == waiting(listener)
        accepted, _ = listener.accept()
        assert b"GET / HTTP/1.1\r\n" == stack.enter_context(accepted).recv(100)


def test_an_address_that_is_taken() -> None:
    """The error names the setting, the address and what to do."""
    with listening_socket("http.listen", "127.0.0.1:0", 8) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(StartError, match=rf"http\.listen {address}: cannot listen there: .*; free the address"):
            listening_socket("http.listen", address, 8)
