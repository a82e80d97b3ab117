"""Addresses that are taken before anything can be served."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from prompt_sidecar.facts.held_connections import HeldConnections
from prompt_sidecar.process.starting import StartError, held, listening_socket


def test_connections_wait() -> None:
    """They are taken at once, their first bytes too, and counted until somebody accepts them."""
    with ExitStack() as stack:
        listener = stack.enter_context(listening_socket("http.listen", "127.0.0.1:0", 8))
        assert HeldConnections(0, 8) == held(listener, 8)
        for _ in range(3):
            client = stack.enter_context(socket.create_connection(listener.getsockname()))
            client.sendall(b"GET / HTTP/1.1\r\n")
        if sys.platform == "linux":
            assert HeldConnections(3, 8) == held(listener, 8)
        accepted, _ = listener.accept()
        assert b"GET / HTTP/1.1\r\n" == stack.enter_context(accepted).recv(100)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is read from Linux")
def test_the_system_may_allow_fewer() -> None:
    """The limit is what the system allows where that is less than the setting."""
    most = int(Path("/proc/sys/net/core/somaxconn").read_text(encoding="ascii"))
    with listening_socket("http.listen", "127.0.0.1:0", 65_535) as listener:
        assert HeldConnections(0, min(most, 65_535)) == held(listener, 65_535)


def test_it_is_imported_at_once() -> None:
    """Little is imported before an address is taken, as an agent is refused until then."""
    code = "import sys, prompt_sidecar.process.starting; print(*(n for n in sys.modules if 'prompt_sidecar.' in n))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {"errors", "values", "facts", "facts.held_connections", "process", "process.starting"}
    assert set() == {name.removeprefix("prompt_sidecar.") for name in done.stdout.split()} - ours


def test_an_address_that_is_taken() -> None:
    """The error names the setting, the address and what to do."""
    with listening_socket("http.listen", "127.0.0.1:0", 8) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(StartError, match=rf"http\.listen {address}: cannot listen there: .*; free the address"):
            listening_socket("http.listen", address, 8)
