"""Whether one side of a WebSocket shows life, and what is counted of what it sends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from prompt_sidecar.doors.http import wires
from prompt_sidecar.doors.http.wires import Wire
from prompt_sidecar.errors import TooLarge


class _Connection(asyncio.Transport):
    """A connection that says of itself what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent = 0
        self.reads = True
        self.cut = False
        self.taken = b""
        self.protocol: Any = self

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return self.cut

    def abort(self) -> None:
        self.cut = True

    def data_received(self, data: bytes) -> None:
        """As its first protocol."""
        self.taken += data


class _Held:
    """Bytes that are held, of which there may be a hundred."""

    def __init__(self) -> None:
        self.size = 0
        self.full = 0

    def wire(self, connection: _Connection) -> Wire:
        return Wire(connection, self._hold, self._let_go, self._reached, masked=False)

    def _hold(self, more: int) -> None:
        if self.size + more > 100:
            raise TooLarge("full")
        self.size += more

    def _let_go(self, less: int) -> None:
        self.size -= less

    def _reached(self) -> None:
        self.full += 1


def test_what_has_no_room_is_dropped() -> None:
    """And all behind it, once it was said that there is no room; what is left is given back in the end."""
    connection, held = _Connection(), _Held()
    wire = held.wire(connection)
    for piece in (b"a" * 60, b"b" * 60, b"c"):
        wire.data_received(piece)
    assert (b"a" * 60, 60, 1) == (connection.taken, held.size, held.full)
    wire.went_on(8)
    assert 50 == held.size
    wire.leave()
    assert (0, True) == (held.size, connection.protocol is connection)


def test_no_more_is_given_back_than_was_held() -> None:
    """Something may have come before the wire was there."""
    held = _Held()
    wire = held.wire(_Connection())
    wire.data_received(b"a" * 60)
    wire.went_on(70_000)
    assert 0 == held.size


@pytest.mark.parametrize(
    ("rounds", "pings", "cut"),
    [
        ("silent silent", 1, True),
        ("silent heard silent silent", 2, True),
        ("silent heard silent heard", 2, False),
        ("silent unread unread unread", 1, False),  # the other side is slow
        ("takes takes takes takes takes", 0, False),
        ("takes stuck", 0, False),
        ("takes stuck stuck", 0, True),
        ("takes stuck takes stuck takes", 0, False),
    ],
)
def test_what_is_life(rounds: str, pings: int, cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A side that sends or takes something, or is not read, is not lost; one with something to take needs no ping."""
    connection, sent = _Connection(), list[str]()
    left = iter(rounds.split())
    wire = _Held().wire(connection)

    async def ping() -> None:
        sent.append("ping")

    async def after(_: float) -> None:
        kind = next(left, "over")
        if kind == "over":
            raise asyncio.CancelledError
        if kind == "heard":
            wire.data_received(b"a")
        connection.reads = kind != "unread"
        if kind == "takes":
            connection.unsent = (connection.unsent or 1_000) - 10

    async def watched() -> None:
        await wire.watch(ping)

    monkeypatch.setattr(wires.asyncio, "sleep", after)  # type: ignore[attr-defined]
    with suppress(asyncio.CancelledError):
        asyncio.run(watched())
    assert (pings, cut) == (len(sent), connection.cut)
