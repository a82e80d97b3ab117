"""Agents that connect and ask nothing, begin a request and do not end it, or take no more of their answer."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import pytest
from aiohttp import web

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.raw_agents import PROMPT, connected, request, stack, taken
from tests.doors.http.serving import Proxied, proxied

__all__ = ["stack"]
LONG: Final = 1e6
"""Seconds that no test waits."""
SHORT: Final = 0.05
PATHS: Final = ("/v1/chat/completions", "/v1/compress", "/v1/files")
"""Trimmed, a gateway's, and passed through."""


@dataclass(slots=True)
class Watched(Observer):
    """Keeps the names of bounds that were reached."""

    bounds: set[str] = field(default_factory=set)
    any: threading.Event = field(default_factory=threading.Event)

    def reached(self, bound: str) -> None:
        """Keep it."""
        self.bounds.add(bound)
        self.any.set()


def served(stack: ExitStack, here: Proxied) -> bool:
    """Whether an agent gets its answer."""
    agent = connected(stack, here, request("/v1/chat/completions", PROMPT, more="connection: close\r\n"))
    return taken(agent).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_does_not_come(path: str, stack: ExitStack) -> None:
    """The request ends with 408, which SDKs try again, and its place is free; the bound is told."""
    observer, server = Watched(), ServerOptions(message_timeout=SHORT)
    here = stack.enter_context(proxied(lambda _: Says("Hello."), observer=observer, server=server, max_requests=1))
    here.upstream.other = _reads
    agent = connected(stack, here, request(path, b"{", 100))

    assert agent.recv(65_536).startswith(b"HTTP/1.1 408 ")
    assert {"server.message_timeout"} == observer.bounds
    assert served(stack, here)


async def _reads(asked: web.Request) -> web.Response:
    return web.Response(body=await asked.read())


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n"])
def test_connections_that_send_no_request(sent: bytes, stack: ExitStack) -> None:
    """They end after a time."""
    observer, server = Watched(), ServerOptions(handshake_timeout=SHORT)
    here = stack.enter_context(proxied(lambda _: Says("Hello."), observer=observer, server=server))

    assert b"" == taken(connected(stack, here, sent))
    assert {"server.handshake_timeout"} == observer.bounds


def test_silent_connections_make_room(stack: ExitStack) -> None:
    """Beyond the bound the oldest that has not asked goes, then the one idle for longest; an agent gets through."""
    observer, server = Watched(), ServerOptions(max_connections=3, handshake_timeout=LONG)
    here = stack.enter_context(proxied(lambda _: Says("Hello."), observer=observer, server=server))
    idle = [connected(stack, here, request("/v1/chat/completions", PROMPT)) for _ in range(2)]
    for each in idle:
        assert each.recv(65_536).startswith(b"HTTP/1.1 200 ")
    silent = [connected(stack, here) for _ in range(5)]

    assert [b""] * 4 == [taken(each) for each in silent[:4]]
    assert served(stack, here)
    assert b"" == taken(silent[4])
    assert {"server.max_connections"} == observer.bounds


def test_requests_in_progress_make_no_room(stack: ExitStack) -> None:
    """Where all connections have one, the new connection is closed."""
    asked, answers = threading.Semaphore(0), threading.Event()

    def model(_: object) -> Says:
        asked.release()
        return Says("Hello.")

    async def wait() -> None:
        await asyncio.to_thread(answers.wait, PATIENCE)

    here = stack.enter_context(proxied(model, server=ServerOptions(max_connections=2, handshake_timeout=LONG)))
    stack.callback(answers.set)
    here.upstream.before = wait
    streamed = json.dumps(json.loads(PROMPT) | {"stream": True}).encode()
    agents = [connected(stack, here, request("/v1/chat/completions", streamed)) for _ in range(2)]
    for _ in agents:
        assert asked.acquire(timeout=PATIENCE)

    assert b"" == taken(connected(stack, here))
    answers.set()
    for agent in agents:
        assert b"HTTP/1.1 200 " == agent.recv(13)


def test_a_gateways_answer_that_is_not_taken(stack: ExitStack) -> None:
    """The same."""
    observer, limits = Watched(), ServerOptions(answer_timeout=SHORT)
    here = stack.enter_context(
        proxied(lambda _: Says("Hello."), observer=observer, server=limits, max_requests=1, max_body_bytes=1 << 26)
    )
    text = "x" * 24_000_000  # more than the kernel keeps for a connection
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}], "token_budget": 100_000_000}
    agent = connected(stack, here, request("/v1/compress", json.dumps(body).encode()))
    assert observer.any.wait(PATIENCE)
    assert len(taken(agent)) < len(text)
    assert {"server.answer_timeout"} == observer.bounds
    assert served(stack, here)


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
def test_an_answer_that_is_not_taken(path: str, kind: str, stack: ExitStack) -> None:
    """Its connection is cut off, and its place is free: streams, whole answers, and what passes through."""
    observer, server = Watched(), ServerOptions(answer_timeout=SHORT)
    here = stack.enter_context(proxied(lambda _: Says("Hello."), observer=observer, server=server, max_requests=1))
    here.upstream.only_other = True
    event = b"data: " + b"x" * 65_536 + b"\n\n"
    whole = b'{"x":"' + b"x" * 48_000_000 + b'"}'  # more than the kernel keeps for a connection

    async def answer(asked: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(asked)
        if kind == "application/json":
            await response.write(whole)
        else:
            while True:
                await response.write(event)
        return response

    here.upstream.other = answer
    agent = connected(stack, here, request(path, PROMPT))
    assert observer.any.wait(PATIENCE)
    assert len(taken(agent)) < len(whole)
    assert {"server.answer_timeout"} == observer.bounds


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
def test_small_answers_that_are_not_taken(path: str, stack: ExitStack) -> None:
    """Each would fit into what is left to a connection, but an agent that asks on and takes none is cut off, too."""
    observer, server = Watched(), ServerOptions(answer_timeout=SHORT)
    here = stack.enter_context(proxied(lambda _: Says("Hello."), observer=observer, server=server, max_requests=1))
    here.upstream.only_other = True
    whole = b'{"x":"' + b"x" * 60_000 + b'"}'

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=whole, content_type="application/json")

    here.upstream.other = answer
    connected(stack, here, request(path, PROMPT) * 800)  # more than the kernel keeps for a connection
    assert observer.any.wait(PATIENCE)
    assert {"server.answer_timeout"} == observer.bounds
    assert served(stack, here)


def test_an_upload_that_its_provider_does_not_take(stack: ExitStack) -> None:
    """Meanwhile nothing is read of the agent, not even that it has gone: after a time its connection is cut off."""
    observer, server = Watched(), ServerOptions(answer_timeout=SHORT)
    here = stack.enter_context(proxied(lambda _: Says("Hello."), observer=observer, server=server, max_requests=1))
    over = threading.Event()
    stack.callback(over.set)

    async def answer(_: web.Request) -> web.Response:
        await asyncio.to_thread(over.wait, PATIENCE)
        return web.Response()

    here.upstream.other = answer
    size = 48_000_000  # more than the kernel keeps for two connections
    agent = connected(stack, here, request("/v1/files", b"x", size))
    sending = threading.Thread(target=lambda: _sent(agent, b"x" * (size - 1)), daemon=True)
    sending.start()
    assert observer.any.wait(PATIENCE)
    sending.join(PATIENCE)
    assert not sending.is_alive()
    assert {"server.answer_timeout"} == observer.bounds
    over.set()
    until = monotonic() + PATIENCE
    while not served(stack, here):  # its place is free a moment after its connection has ended
        assert monotonic() < until


def _sent(agent: socket.socket, raw: bytes) -> None:
    with suppress(OSError):
        agent.sendall(raw)
