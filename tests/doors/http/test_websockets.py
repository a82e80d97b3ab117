"""WebSockets between hostile agents and providers: what they may send, how they end, and what is logged of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.doors.http import websockets, wires
from prompt_sidecar.doors.http.upstream import Upstreams
from prompt_sidecar.doors.http.websockets import Sockets, _Side
from prompt_sidecar.values import MIB
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.raw_agents import stack
from tests.doors.http.serving import options, proxied
from tests.doors.http.test_bodies import begun, wait_for
from tests.doors.http.test_silent_agents import Watched
from tests.doors.http.upstream import scripted

__all__ = ["stack"]
MOST: Final = 100_000
"""Bytes of a message."""
SOON: Final = 3.0
"""Seconds of silence after which a side is pinged, and in which it answers on a busy machine."""
Side = Callable[[Any], Awaitable[Any]]
"""What one side does with its WebSocket; what the agent's returns is the result."""


def between(
    stack: ExitStack, agent: Side, provider: Side, *, max_body_bytes: int = MOST, door: Any = None, **more: Any
) -> Any:
    """Connect an agent's WebSocket with a provider's; return what the agent's side returns."""
    here = door or stack.enter_context(proxied(scripted(), max_body_bytes=max_body_bytes, **more))
    over = threading.Event()

    async def opened(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        try:
            await provider(socket)
        finally:
            over.set()
        return socket

    async def connect() -> Any:
        async with (
            asyncio.timeout(PATIENCE),
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{here.url}/v1/realtime", compress=15, max_msg_size=0) as socket,
        ):
            return await agent(socket)

    here.upstream.other = opened
    result = asyncio.run(connect())
    assert over.wait(PATIENCE)
    return result


async def closing_of(socket: Any) -> tuple[int, str]:
    """With what code and reason a WebSocket is closed."""
    while (message := await socket.receive()).type is not WSMsgType.CLOSE:
        assert message.type in {WSMsgType.TEXT, WSMsgType.BINARY}, message
    return message.data, message.extra


async def waits(socket: Any) -> None:
    """Take what comes until it is over."""
    async for _ in socket:
        pass


async def takes_nothing(socket: Any, until: threading.Event) -> None:
    """Read nothing from the agent's connection, as one that has lost its power."""
    socket._writer.transport.pause_reading()  # noqa: SLF001
    await asyncio.to_thread(until.wait, PATIENCE)
    socket._writer.transport.abort()  # noqa: SLF001


def test_messages_are_not_compressed_on_the_way(stack: ExitStack) -> None:
    """A frame of a kilobyte could become a megabyte: an agent that offers compression is not given it."""

    async def agent(socket: Any) -> bool:
        await socket.close()
        return bool(socket.compress)

    assert not between(stack, agent, waits)


@pytest.mark.parametrize("pieces", [1, 300])
def test_an_agent_s_message_that_is_too_long(pieces: int, stack: ExitStack) -> None:
    """It is refused with 1009 however it is cut, the provider is told that the agent is gone, the bound is counted."""
    observer, closed = Watched(), list[tuple[int, str]]()

    async def agent(socket: Any) -> tuple[int, str]:
        writer, piece = socket._writer, bytes(MOST // pieces + 1)  # noqa: SLF001
        for at in range(pieces):
            fin = 0x80 if at == pieces - 1 else 0
            opcode = 2 if not at else 0
            head = bytes([fin | opcode, 0x80 | 127]) + len(piece).to_bytes(8, "big") + bytes(4)
            writer.transport.write(head + piece)
        return await closing_of(socket)

    async def provider(socket: Any) -> None:
        closed.append(await closing_of(socket))

    assert 1009 == between(stack, agent, provider, observer=observer)[0]
    assert [(1001, "")] == closed
    assert {"http.max_body_bytes"} == observer.bounds


def test_a_provider_s_message_that_is_too_long(stack: ExitStack) -> None:
    """The agent is told that the provider failed."""
    observer = Watched()

    async def provider(socket: Any) -> None:
        await socket.send_bytes(bytes(MOST + 1))
        await waits(socket)

    assert 1014 == between(stack, closing_of, provider, observer=observer)[0]
    assert {"http.max_body_bytes"} == observer.bounds


def test_why_a_provider_closes_goes_on(stack: ExitStack) -> None:
    """Its code and its words."""

    async def provider(socket: Any) -> None:
        await socket.close(code=3_001, message=b"session expired")

    assert (3_001, "session expired") == between(stack, closing_of, provider)


def test_a_provider_that_is_lost(stack: ExitStack) -> None:
    """The agent gets a code that may be sent, and none of a good end: it must not take a part for the whole."""

    async def provider(socket: Any) -> None:
        await socket.send_str("half")
        socket._req.transport.abort()  # noqa: SLF001

    assert 1014 == between(stack, closing_of, provider)[0]


def test_an_agent_that_is_lost(stack: ExitStack) -> None:
    """The provider is not told that all is well."""
    closed: list[tuple[int, str]] = []

    async def agent(socket: Any) -> None:
        socket._writer.transport.abort()  # noqa: SLF001

    async def provider(socket: Any) -> None:
        closed.append(await closing_of(socket))

    between(stack, agent, provider)
    assert [(1001, "")] == closed


def test_an_agent_that_takes_no_messages(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off after a time, and so is its provider, which sends without end: the place is free."""
    monkeypatch.setattr(websockets, "_CLOSE_SECONDS", 0.05)
    observer = Watched()

    async def agent(socket: Any) -> None:
        socket._writer.transport.pause_reading()  # noqa: SLF001
        await asyncio.to_thread(observer.any.wait, PATIENCE)

    async def provider(socket: Any) -> None:
        with suppress(ConnectionError):
            while True:
                await socket.send_bytes(bytes(MOST - 1))

    between(stack, agent, provider, observer=observer, server=ServerOptions(answer_timeout=0.05))
    assert {"server.answer_timeout"} == observer.bounds


def test_a_silent_agent_is_pinged(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider is told that one that does not answer is lost, while that keeps its connection."""
    monkeypatch.setattr(wires, "PING_SECONDS", SOON)
    left, closed = threading.Event(), list[tuple[int, str]]()

    async def agent(socket: Any) -> None:
        await takes_nothing(socket, left)

    async def provider(socket: Any) -> None:
        closed.append(await closing_of(socket))
        left.set()

    between(stack, agent, provider)
    assert [(1001, "")] == closed


def test_sides_that_answer_pings_may_be_silent(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as they like, both of them."""
    monkeypatch.setattr(wires, "PING_SECONDS", SOON)

    async def agent(socket: Any) -> str:
        return str((await socket.receive()).data)

    async def provider(socket: Any) -> None:
        socket._autoping = False  # noqa: SLF001 - so that it sees the pings that it answers
        for _ in range(3):
            ping = await socket.receive()
            assert ping.type is WSMsgType.PING
            await socket.pong(ping.data)
        await socket.send_str("late")
        await closing_of(socket)

    assert "late" == between(stack, agent, provider)


def test_a_silent_provider_is_pinged(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is told that one that does not answer is lost, while that keeps its connection."""
    monkeypatch.setattr(wires, "PING_SECONDS", SOON)
    monkeypatch.setattr(websockets, "_CLOSE_SECONDS", 0.05)
    left = threading.Event()

    async def agent(socket: Any) -> tuple[int, str]:
        try:
            return await closing_of(socket)
        finally:
            left.set()

    async def provider(_: Any) -> None:
        await asyncio.to_thread(left.wait, PATIENCE)

    assert 1014 == between(stack, agent, provider)[0]


def test_a_side_that_is_not_read_is_not_lost(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the agent takes nothing, the provider's answers to pings are not read: it is the agent that is lost."""
    monkeypatch.setattr(wires, "PING_SECONDS", SOON)
    monkeypatch.setattr(websockets, "_CLOSE_SECONDS", 0.05)
    left, closed = threading.Event(), list[tuple[int, str]]()

    async def agent(socket: Any) -> None:
        await takes_nothing(socket, left)

    async def send(socket: Any) -> None:
        with suppress(ConnectionError):
            while True:
                await socket.send_bytes(bytes(MOST - 1))

    async def provider(socket: Any) -> None:
        sending = asyncio.create_task(send(socket))
        closed.append(await closing_of(socket))
        left.set()
        sending.cancel()

    between(stack, agent, provider)
    assert [(1001, "")] == closed


async def _part(session: aiohttp.ClientSession, door: Any, size: int) -> Any:
    """A WebSocket on which so many bytes of a message came that has a megabyte more."""
    socket = await session.ws_connect(f"{door.url}/v1/realtime")
    head = bytes([0x82, 0xFF]) + (size + MIB).to_bytes(8, "big") + bytes(4)  # 14 bytes
    socket._writer.transport.write(head + bytes(size))  # noqa: SLF001
    return socket


def test_messages_that_do_not_end_take_no_more_than_the_bound(stack: ExitStack) -> None:
    """A further one is refused with 1013, a prompt with 503; when the agents have left, there is room again."""
    observer = Watched()
    here = stack.enter_context(proxied(scripted(), max_body_bytes=4 * MIB, body_bytes=MIB, observer=observer))

    async def opened(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await waits(socket)
        return socket

    async def refused() -> tuple[tuple[int, str], int]:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            agents = []
            for at in range(5):
                agents.append(await _part(session, here, 200_000))
                await asyncio.to_thread(wait_for, here, (at + 1) * (200_000 + 14))
            closed = await closing_of(await _part(session, here, 100_000))
            async with session.post(f"{here.url}/v1/chat/completions", data=bytes(100_000)) as answer:
                return closed, answer.status

    here.upstream.other = opened
    assert ((1013, "no room for the message (http.body_bytes); retry a little later"), 503) == asyncio.run(refused())
    assert {"http.body_bytes"} == observer.bounds
    wait_for(here, 0)


def test_a_provider_s_message_for_which_there_is_no_room(stack: ExitStack) -> None:
    """The agent is told to try again later, as for its own."""
    observer = Watched()
    here = stack.enter_context(proxied(scripted(), max_body_bytes=4 * MIB, body_bytes=MIB, observer=observer))
    stack.enter_context(begun(here, 5))

    async def provider(socket: Any) -> None:
        await socket.send_bytes(bytes(MIB))
        await waits(socket)

    assert 1013 == between(stack, closing_of, provider, door=here)[0]
    assert {"http.body_bytes"} == observer.bounds


def test_a_message_is_held_until_it_is_taken(stack: ExitStack) -> None:
    """By a provider that reads slowly, which is not in a hurry."""
    size = 32 * MIB
    here = stack.enter_context(proxied(scripted(), max_body_bytes=2 * size, body_bytes=2 * size))
    taken: list[int] = []

    async def agent(socket: Any) -> None:
        await socket.send_bytes(bytes(size))
        assert b"taken" == (await socket.receive()).data

    async def provider(socket: Any) -> None:
        socket._req.transport.pause_reading()  # noqa: SLF001
        await asyncio.to_thread(wait_for, here, size + 14)
        socket._req.transport.resume_reading()  # noqa: SLF001
        taken.append(len((await socket.receive()).data))
        await socket.send_bytes(b"taken")
        await waits(socket)

    between(stack, agent, provider, door=here)
    assert [size] == taken


def test_messages_that_have_gone_on_take_nothing(stack: ExitStack) -> None:
    """However long they are and whoever sends them: what waits in between is counted to the byte."""
    here = stack.enter_context(proxied(scripted(), max_body_bytes=MOST))
    texts = ["é" * (size // 2) for size in (0, 2, 124, 126, 65_534, 65_536, 90_000)]

    async def agent(socket: Any) -> list[Any]:
        found = []
        for text in texts:
            await socket.send_str(text)
            found.append((await socket.receive()).data)
            await socket.send_bytes(text.encode())
            found.append((await socket.receive()).data.decode())
        await asyncio.to_thread(wait_for, here, 0)
        return found

    async def provider(socket: Any) -> None:
        async for message in socket:
            await socket.send_frame(
                message.data.encode() if message.type is WSMsgType.TEXT else message.data, message.type
            )

    assert [each for text in texts for each in (text, text)] == between(stack, agent, provider, door=here)


@pytest.mark.parametrize("chosen", [True, False])
def test_an_api_key_among_the_protocols(chosen: bool, stack: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    """Browsers can send one nowhere else: whatever the provider chooses of them, none is logged."""
    here = stack.enter_context(proxied(scripted()))

    async def opened(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=["realtime"] if chosen else [])
        await socket.prepare(request)
        await socket.close()
        return socket

    async def connect() -> str | None:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
            protocols = ("realtime", "openai-insecure-api-key.sk-secret")
            async with session.ws_connect(f"{here.url}/v1/realtime", protocols=protocols) as socket:
                await waits(socket)
                return socket.protocol

    here.upstream.other = opened
    with caplog.at_level(logging.DEBUG):
        assert ("realtime" if chosen else None) == asyncio.run(connect())
    assert "sk-secret" not in caplog.text


def test_other_requests_have_their_turn_between_messages() -> None:
    """An agent may send messages without end, of a byte each."""

    async def run() -> int:
        here, there = _Endless(), _Endless()
        sockets = Sockets(Upstreams(options("http://127.0.0.1:1")), MOST, lambda: None)

        async def other() -> None:
            here.ended = True

        asked = asyncio.ensure_future(other())
        wire: Any = SimpleNamespace(went_on=lambda _: None)
        await sockets._pump(_Side(here, wire), _Side(there, wire), 1001, _at_once)  # noqa: SLF001
        await asked
        await sockets.upstreams.close()
        return there.taken

    assert 1_000 > asyncio.run(run())


async def _at_once(sending: Awaitable[None]) -> None:
    await sending


class _Endless:
    """A WebSocket that has always another message, up to many of them."""

    close_code = 1000

    def __init__(self) -> None:
        self.ended = False
        self.taken = 0
        self._left = 100_000

    async def receive(self) -> aiohttp.WSMessage:
        self._left -= 1
        if self.ended or not self._left:
            return aiohttp.WSMessage(WSMsgType.CLOSE, 1000, "")
        return aiohttp.WSMessage(WSMsgType.BINARY, b"x", None)

    async def send_frame(self, _: bytes, __: WSMsgType) -> None:
        self.taken += 1

    async def close(self, *, code: int, message: bytes) -> None:
        assert 1000 == code
        assert b"" == message
