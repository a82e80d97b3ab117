"""A stop of the HTTP door.

New requests are refused with a time, answers in progress have a grace of their own, and a stream that it is too short
for ends with its provider's error event.
"""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import Proxied, proxied

SSE = {
    "chat/completions": {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Go."}]},
    "messages": {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Go."}]},
    "responses": {"model": "m", "stream": True, "input": "Go."},
}
"""Requests for streams, by the end of their path."""


async def sent(here: Proxied, path: str, body: Any) -> tuple[int, bytes, dict[str, str]]:
    """Send a request; return the status, the whole body, and headers in lower case."""
    async with aiohttp.ClientSession() as session, session.post(f"{here.url}/v1/{path}", json=body) as answer:
        return answer.status, await answer.read(), {name.lower(): value for name, value in answer.headers.items()}


class Held:
    """An upstream that stops after its first event until it is let go."""

    def __init__(self, here: Proxied) -> None:
        self.begun, self.go, self._events = threading.Event(), threading.Event(), 0
        here.upstream.before = self._before

    async def _before(self) -> None:
        self._events += 1
        if self._events == 2:
            self.begun.set()
            await asyncio.to_thread(self.go.wait, PATIENCE)

    def let_go(self) -> None:
        """Go on."""
        self.go.set()


@pytest.mark.parametrize("path", SSE)
def test_a_stream_that_is_cut_ends_with_an_error_event(path: str) -> None:
    """In its provider's shape, and as a whole answer of HTTP: no agent takes the part for the whole."""
    with proxied(lambda _: Says("Done and done."), stream_grace=0.0) as here, ThreadPoolExecutor(1) as threads:
        held = Held(here)
        answer = threads.submit(lambda: asyncio.run(sent(here, path, SSE[path])))
        assert held.begun.wait(PATIENCE)
        here.door.drain()
        assert not here.door.stop(0.01)
        status, body, _ = answer.result(PATIENCE)
        held.let_go()

    last = json.loads(body.decode().strip().rpartition("data: ")[2])
    assert 200 == status
    assert "this sidecar is stopping" in json.dumps(last)
    assert b"[DONE]" not in body


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_has_the_longer_grace(*, stream: bool) -> None:
    """It ends as the provider ends it, long after the grace of other calls."""
    go = threading.Event()
    with proxied(lambda _: Says("Done."), stream_grace=PATIENCE) as here, ThreadPoolExecutor(2) as threads:
        held = Held(here)
        body = SSE["chat/completions"] | {"stream": True}
        if not stream:
            body, held.begun = body | {"stream": False}, go

            async def other(_: web.Request) -> web.StreamResponse:
                go.set()
                await asyncio.to_thread(held.go.wait, PATIENCE)
                return web.json_response({"choices": []})

            here.upstream.only_other, here.upstream.other = True, other
        answer = threads.submit(lambda: asyncio.run(sent(here, "chat/completions", body)))
        assert held.begun.wait(PATIENCE)
        here.door.drain()
        stopped = threads.submit(here.door.stop, 0.01)
        held.let_go()
        assert stopped.result(PATIENCE)
        status, got, _ = answer.result(PATIENCE)

    assert 200 == status
    assert (b"[DONE]" in got) is stream


def test_new_requests_are_refused_with_a_time() -> None:
    """Which SDKs wait for before they try again."""
    with proxied(lambda _: Says("Done.")) as here:
        here.door.drain()
        status, body, headers = asyncio.run(sent(here, "messages", SSE["messages"]))

    assert (503, "1", "true") == (status, headers["retry-after"], headers["x-prompt-sidecar-stopping"])
    assert "stopping" in json.loads(body)["error"]["message"]
    assert not here.upstream.sent


def test_what_has_no_answer_yet_gets_503() -> None:
    """Its agent sends it again, to a sidecar that is there."""
    begun, go = threading.Event(), threading.Event()

    async def other(_: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        return web.json_response({})

    with proxied(lambda _: Says("Done."), stream_grace=0.0) as here, ThreadPoolExecutor(1) as threads:
        here.upstream.only_other, here.upstream.other = True, other
        answer = threads.submit(lambda: asyncio.run(sent(here, "chat/completions", SSE["chat/completions"])))
        assert begun.wait(PATIENCE)
        here.door.drain()
        assert not here.door.stop(0.01)
        status, body, headers = answer.result(PATIENCE)
        go.set()

    assert (503, "1", "STOPPING") == (status, headers["retry-after"], json.loads(body)["error"]["code"])
    assert "x-prompt-sidecar-stopping" not in headers  # the provider has it
