"""A call whose answer is cut off by a proxy, as its sidecar was killed while it sent the answer, is made once more."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from prompt_sidecar.client import AsyncClient, Client, Trimmed, Unreachable
from tests.client.histories import history
from tests.client.serving import PATIENT
from tests.doors.grpc.serving import serving

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS = 1
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
BEGINNING = b"\0\0\x13\1\4\0\0\0\1\x88\x5f\x10application/grpc"
"""An answer's headers, on the first stream: status 200 and the content type."""
RESET = b"\0\0\4\3\0\0\0\0\1\0\0\0\2"
"""RST_STREAM with INTERNAL_ERROR, as Envoy sends it."""
NO_MORE = b"\0\0\x08\7\0\0\0\0\0\0\0\0\1\0\0\0\0"
"""GOAWAY without an error: what follows takes another connection."""
MESSAGES = history("openai_chat", 3)


def _read(connection: socket.socket, number: int) -> bytes:
    data = b""
    while len(data) < number:
        more = connection.recv(number - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def _cut_off(connection: socket.socket) -> None:
    """Begin the answer of the first call, and reset it."""
    _read(connection, len(PREFACE))
    connection.sendall(SETTINGS)
    kind = None
    while kind != HEADERS:
        head = _read(connection, 9)
        kind = head[3]
        _read(connection, int.from_bytes(head[:3], "big"))
    connection.sendall(BEGINNING + RESET + NO_MORE)
    with contextlib.suppress(OSError):
        while connection.recv(65_536):
            pass


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _relay(connection: socket.socket, onward: socket.socket) -> None:
    for pair in ((connection, onward), (onward, connection)):
        threading.Thread(target=_pump, args=pair, daemon=True).start()


@contextmanager
def proxy(address: str, times: int) -> Iterator[str]:
    """The address of a proxy: the answers of the first so many connections are cut off, others are the sidecar's."""
    host, _, port = address.rpartition(":")
    opened: list[socket.socket] = []

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            for number in itertools.count():
                connection = listener.accept()[0]
                opened.append(connection)
                if number < times:
                    threading.Thread(target=_cut_off, args=(connection,), daemon=True).start()
                else:
                    opened.append(socket.create_connection((host, int(port))))
                    _relay(connection, opened[-1])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in opened:
                each.close()


def trimmed(target: str, *, asynchronous: bool) -> Trimmed[list[dict[str, object]]]:
    """What a client that fails closed gets."""

    async def wait() -> Trimmed[list[dict[str, object]]]:
        async with AsyncClient(target, deadline=PATIENT, fail_open=False) as client:
            return await client.trim("r", MESSAGES)

    if asynchronous:
        return asyncio.run(wait())
    with Client(target, deadline=PATIENT, fail_open=False) as client:
        return client.trim("r", MESSAGES)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_it_is_made_once_more(asynchronous: bool) -> None:
    """The agent notices nothing."""
    with serving() as served, proxy(served.address, 1) as target:
        assert trimmed(target, asynchronous=asynchronous).trimmed


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_twice_is_a_sidecar_that_cannot_be_reached(asynchronous: bool) -> None:
    """So that clients that fail open do, and the circuit breaker counts it."""
    with serving() as served, proxy(served.address, 2) as target, pytest.raises(Unreachable) as caught:
        trimmed(target, asynchronous=asynchronous)
    assert "UNAVAILABLE: the connection to the sidecar ended within its answer" == str(caught.value)
