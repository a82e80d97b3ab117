"""The requests that may be in progress are for all callers, and none of them can have all places."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from prompt_sidecar.doors.http.lifecycle import HttpDoor
from tests.client.provider import SHAPES, Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import proxied

PLACES = 16
SAYS = Says("hi")
BODY = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "hello"}]})


def test_one_caller_leaves_places_to_others() -> None:
    """An eighth of them; a caller's further requests are refused, and another's is answered."""
    asyncio.run(_one_and_another())


def test_callers_that_are_not_distinguished_may_have_all_places() -> None:
    """As they may be several, each of their connections counts for itself."""
    asyncio.run(_not_distinguished())


@contextlib.asynccontextmanager
async def _holding(caller_by: str) -> AsyncIterator[tuple[HttpDoor, asyncio.Event, Callable[[str], Awaitable[int]]]]:
    """A door, an event for which its provider waits, and what posts with a key and returns the status."""
    with proxied(lambda _: SAYS, max_requests=PLACES, caller_by=caller_by) as door:
        go, loop = asyncio.Event(), asyncio.get_running_loop()

        async def answer(_: web.Request) -> web.Response:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go.wait(), loop))
            return web.json_response(SHAPES["chat/completions"](SAYS, 1))

        door.upstream.other, door.upstream.only_other = answer, True
        async with (
            asyncio.timeout(PATIENCE),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):

            async def post(key: str) -> int:
                headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
                async with session.post(f"{door.url}/v1/chat/completions", data=BODY, headers=headers) as answered:
                    return answered.status

            yield door.door, go, post


async def _not_distinguished() -> None:
    async with _holding("address") as (door, go, post):
        asked = [asyncio.ensure_future(post("one")) for _ in range(PLACES)]
        while _taken(door) < PLACES:
            assert not any(each.done() for each in asked)
            await asyncio.sleep(0)
        assert 503 == await post("one")
        go.set()
        assert {200} == set(await asyncio.gather(*asked))


async def _one_and_another() -> None:
    async with _holding("credential") as (door, go, post):
        asked: set[asyncio.Future[Any]] = {asyncio.ensure_future(post("one")) for _ in range(PLACES + 4)}
        refused = 0
        while refused < 4 + PLACES // 8:
            done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert {503} == {each.result() for each in done}
            refused += len(done)
        other = asyncio.ensure_future(post("other"))
        while _taken(door) <= PLACES - PLACES // 8:
            assert not other.done(), other.result()
            await asyncio.sleep(0)
        go.set()
        assert 200 == await other
        assert {200} == set(await asyncio.gather(*asked))


def _taken(door: HttpDoor) -> int:
    """Places that are taken."""
    assert door._handler is not None  # noqa: SLF001
    return door._handler._places.total  # noqa: SLF001
