"""A real server and a client of it, for one test or for all tests of a file."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.client import Client
from tests.doors.grpc.serving import Serving, serving

PATIENT = 60.0
"""A deadline that no test meets on a starved machine."""


@contextmanager
def client_of(options: ServerOptions | None = None, **more: Any) -> Iterator[tuple[Client, Serving]]:
    """A client, and the server that it talks to."""
    with serving(options) as served, Client(served.address, **({"deadline": PATIENT} | more)) as client:
        yield client, served


@contextmanager
def silent() -> Iterator[str]:
    """The address of one who takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def sdk(name: str) -> Any:
    """An SDK. On a machine without it the test is skipped; in CI that is a failure."""
    if find_spec(name) is None:
        message = f"needs the package {name}, which the dependency group clients has"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return import_module(name)
