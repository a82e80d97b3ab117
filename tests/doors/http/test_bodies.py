"""What the bodies of requests take is bounded, and no caller can have all of it."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import monotonic
from types import MappingProxyType

import aiohttp
import pytest

from prompt_sidecar.calls.memory import ANSWER_COPIES, REQUEST_COPIES, MemoryGate
from prompt_sidecar.calls.turns import Owner
from prompt_sidecar.doors.http.bodies import SMALL, USUAL, Bodies
from prompt_sidecar.errors import TooLarge
from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import Proxied, proxied

MOST = 1_048_576
PART = 200_000
"""Bytes of a body that does not end."""
A, B = Owner("a", "1"), Owner("b", "2")


def _bodies(room: int = 1_000 * MOST) -> tuple[Bodies, list[str]]:
    reached: list[str] = []
    return Bodies(MOST, MemoryGate(room, lambda: (0, 0)), reached.append), reached


def test_what_is_held_is_bounded_and_comes_back() -> None:
    """A further body is refused where all take as much as they may; when one is over there is room again."""
    bodies, reached = _bodies()
    with bodies.of(A) as first, bodies.of(B) as second:
        first.take(MOST // 2)
        with pytest.raises(TooLarge, match="retry a little later"):
            second.take(MOST // 2 + 1)
        second.take(MOST // 4)
        assert 3 * MOST // 4 == bodies.held
    assert 0 == bodies.held
    assert ["http.body_bytes"] == reached


def test_one_caller_leaves_some_to_others() -> None:
    """On however many connections it sends; another caller's body has room."""
    bodies, _ = _bodies()
    with ExitStack() as stack:
        for at in range(7):
            stack.enter_context(bodies.of(Owner("a", str(at)))).take(MOST // 8)
        another = stack.enter_context(bodies.of(Owner("a", "another")))
        with pytest.raises(TooLarge):
            another.take(MOST // 8)
        with pytest.raises(TooLarge):
            another.take(SMALL + 1)
        stack.enter_context(bodies.of(B)).take(SMALL + 1)


def test_a_body_alone_and_small_ones_always_have_room() -> None:
    """A single body may be larger than the bound, and small ones beside it are read all the same."""
    bodies, _ = _bodies()
    with bodies.of(A) as large, bodies.of(B) as small:
        for _ in range(4):
            large.take(MOST)
        small.take(SMALL)
        with pytest.raises(TooLarge):
            small.take(1)


def test_a_usual_answer_always_has_room() -> None:
    """Its provider is paid; what comes meanwhile finds less room."""
    bodies, reached = _bodies()
    with bodies.of(A) as body, bodies.of(A, USUAL) as answer, bodies.of(B) as another:
        body.take(7 * MOST // 8)
        answer.take(USUAL)
        assert [] == reached
        with pytest.raises(TooLarge):
            answer.take(1)
        with pytest.raises(TooLarge):
            another.take(SMALL + 1)


def test_a_body_that_becomes_no_larger_is_not_refused() -> None:
    """One that was read stays, whatever came since: what is packed in an unknown way is not unpacked."""
    bodies, reached = _bodies()
    with bodies.of(A) as large, bodies.of(B) as small:
        large.take(7 * MOST // 8)
        small.take(SMALL)
        large.take(0)
    assert [] == reached


def test_without_memory_a_body_is_refused() -> None:
    """Where what is made of it would have no room, with the bound that says so."""
    bodies, reached = _bodies(room=REQUEST_COPIES * MOST)
    with bodies.of(A) as body:
        body.take(MOST // 2)
        with pytest.raises(TooLarge):
            body.take(MOST)
    assert ["limits.process_bytes"] == reached


def test_what_is_made_of_bodies_is_reserved_before_it_is_there() -> None:
    """Two that would each fit do not fit together; once nothing more is made of one, the other one fits."""
    room = ANSWER_COPIES * MOST * 3 // 2
    memory = MemoryGate(room, lambda: (0, 0))
    bodies = Bodies(10 * MOST, memory, lambda _: None)
    with bodies.of(A, SMALL, ANSWER_COPIES) as one, bodies.of(B, SMALL, ANSWER_COPIES) as other:
        one.take(MOST)
        assert room - ANSWER_COPIES * MOST == memory.room()
        with pytest.raises(TooLarge):
            other.take(MOST)
        one.settle()
        other.take(MOST)
        other.give(MOST)
        assert (room, MOST) == (memory.room(), bodies.held)
    assert (room, 0) == (memory.room(), bodies.held)


def test_small_bodies_need_no_memory_of_their_own() -> None:
    """As many as there are places take less than one of the largest, so they have room whatever is left."""
    bodies, reached = _bodies(room=1)
    with bodies.of(A) as body:
        body.take(SMALL)
    assert [] == reached


def held(door: Proxied) -> int:
    """Bytes of bodies that a door holds."""
    return door.door._handler._bodies.held  # type: ignore[union-attr]  # noqa: SLF001


def wait_for(door: Proxied, size: int) -> None:
    """Wait until so many are held."""
    until = monotonic() + PATIENCE
    while held(door) != size:
        assert monotonic() < until, f"{held(door)} bytes are held, not {size}"
        threading.Event().wait(0.01)


@contextmanager
def begun(door: Proxied, connections: int) -> Iterator[None]:
    """Connections that have each sent `PART` bytes of a body with ten more, which are held."""
    with ExitStack() as stack:
        for _ in range(connections):
            agent = stack.enter_context(socket.create_connection(("127.0.0.1", door.door.port), PATIENCE))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {PART + 10}\r\n\r\n"
            agent.sendall(head.encode() + b" " * PART)
        wait_for(door, connections * PART)
        yield
    wait_for(door, 0)


def _answer(door: Proxied, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> tuple[int, str]:
    async def post() -> tuple[int, str]:
        async with (
            asyncio.timeout(PATIENCE),
            aiohttp.ClientSession() as session,
            session.post(f"{door.url}/v1/chat/completions", data=body, headers=headers) as answered,
        ):
            return answered.status, await answered.text()

    return asyncio.run(post())


def test_bodies_that_do_not_end_take_no_more_than_the_bound() -> None:
    """A further agent's prompt is refused with 503, a small one is served, and any once those have gone."""
    small, large = (json.dumps(_prompt("hello " * times)).encode() for times in (1, 40_000))
    with proxied(lambda _: Says("hi"), body_bytes=MOST) as door:
        with begun(door, 5):
            status, text = _answer(door, large)
            assert (503, True) == (status, "http.body_bytes" in text)
            assert 200 == _answer(door, small)[0]
        assert 200 == _answer(door, large)[0]


def test_what_a_packed_body_becomes_is_counted() -> None:
    """Gzip makes a thousand times as much of a few bytes."""
    body = json.dumps(_prompt("hello " * (MOST // 3))).encode()
    with proxied(lambda _: Says("hi"), body_bytes=MOST) as door, begun(door, 1):
        status, text = _answer(door, gzip.compress(body), {"content-encoding": "gzip"})
        assert (503, True) == (status, "http.body_bytes" in text)


def _prompt(text: str) -> object:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}]}
