"""What the HTTP door costs: a request through it, over the same trim in process and the same request to the upstream.

Door, upstream and this client are a process each; `python -m tests.lab.bench.http` is the upstream. The calls of a run
take turns: through the door, straight to the upstream, and the trim alone in this process. The upstream answers at
once, so all of the difference is the door's.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import aiohttp
from aiohttp import web

from prompt_sidecar.engine.runs.service import Runs
from tests.lab.bench.inprocess import never, runs
from tests.lab.bench.servers import real
from tests.lab.harness.figures import Section, milliseconds, percentile
from tests.lab.harness.prompts import Prompts, trim_call
from tests.lab.harness.servers import Server, environment

_CHUNK: Final = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":0,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":"some words "},"finish_reason":null}]}\n\n'
)
_END: Final = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":0,"model":"m","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_WHOLE: Final = (
    b'{"id":"c","object":"chat.completion","created":0,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"some words"},"finish_reason":"stop"}]}'
)
CHUNKS: Final = 20
"""Chunks of a stream."""


async def _answer(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    if b'"stream":true' not in body[:200]:
        return web.Response(body=_WHOLE, content_type="application/json")
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(CHUNKS):
        await response.write(_CHUNK)
        await asyncio.sleep(0)
    await response.write(_END)
    await response.write_eof()
    return response


async def serve(answer: Callable[[web.Request], Awaitable[web.StreamResponse]], backlog: int) -> None:
    """Answer all requests on a free port, which stderr says, until stdin ends."""
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=backlog).start()
    print(f"ready: listening on 127.0.0.1:{runner.addresses[0][1]}", file=sys.stderr, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


TOOLS: Final = (
    b'"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{}}}}],'
)
SIZES: Final = {"91 kB": (60_000, 130_000, 1.5), "1 MB": (850_000, 1_100_000, 5.0)}
"""Bytes of the bodies that count as this size, from and to, and the milliseconds that are aimed at."""
FIRST_CHUNK: Final = 1.0
"""Milliseconds by which the first chunk of a stream may be later than the whole of the trim."""
STREAMS: Final = 200


@dataclass(slots=True)
class _Times:
    """Seconds, of one way of sending the prompts of one size."""

    door: list[float] = field(default_factory=list)
    direct: list[float] = field(default_factory=list)
    trim: list[float] = field(default_factory=list)

    def over(self) -> float:
        """The median of what the door takes besides."""
        return percentile([a - b - c for a, b, c in zip(self.door, self.direct, self.trim, strict=True)], 0.5)


class Client:
    """One connection that stays open."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port))

    def post(self, body: bytes, limit: int, run: str) -> tuple[float, float]:
        """Seconds to the first byte of the answer, and to its last."""
        headers = {"content-type": "application/json", "x-prompt-sidecar-run": run}
        headers["x-prompt-sidecar-context-window"] = str(limit)
        began = perf_counter()
        self._connection.request("POST", "/v1/chat/completions", body, headers)
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read1(65_536)
        first = perf_counter() - began
        answer.read()
        return first, perf_counter() - began


def door(prompts: Prompts, limit: int, rounds: int) -> Section:
    """Send the run `rounds` times, after one round that warms up; whole and streamed in turns."""
    whole = {name: _Times() for name in SIZES}
    first = {name: _Times() for name in SIZES}
    with ExitStack() as stack:
        upstream = stack.enter_context(Server("-m", "tests.lab.bench.http", variables=environment({}))).address
        settings = {"HTTP__LISTEN": "127.0.0.1:0", "HTTP__OPENAI_UPSTREAM": f"http://{upstream}"}
        address = stack.enter_context(real(listen="", **settings)).address.removeprefix("http://")
        through, direct = Client(address), Client(upstream)
        for number in range(2 * (rounds + 1)):
            core, streamed = runs(), bool(number % 2)
            for size, body in _bodies(prompts.salted(number), stream=streamed):
                took = _once(through, direct, core, (body, limit, f"run-{number}"))
                if size and number > 1:
                    times = first[size] if streamed else whole[size]
                    for into, spent in zip((times.door, times.direct, times.trim), took[streamed], strict=True):
                        into.append(spent)
        untrimmed = asyncio.run(_crowd(f"http://{address}", [body for _, body in _bodies(prompts, stream=True)], limit))
    return _section(prompts, whole, first, untrimmed)


def _once(
    through: Client, direct: Client, core: Runs, prompt: tuple[bytes, int, str]
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Whole, and to the first byte: the door's time, the upstream's, the trim's."""
    body, limit, run = prompt
    door_first, door_whole = through.post(body, limit, run)
    direct_first, direct_whole = direct.post(body, limit, run)
    began = perf_counter()
    core.trim(trim_call(run, "openai_chat", body, limit), never)
    trim = perf_counter() - began
    return (door_whole, direct_whole, trim), (door_first, direct_first, trim)


def _bodies(prompts: Prompts, *, stream: bool) -> Iterator[tuple[str, bytes]]:
    """Each body with the name of its size, empty for others; those of no size are sent too, as they warm the run."""
    head = b'{"stream":' + (b"true" if stream else b"false") + b"," + TOOLS
    for body in prompts.bodies():
        found = [name for name, (least, most, _) in SIZES.items() if least <= len(body) <= most]
        yield (found[0] if found else ""), head + body.partition(b",")[2]


async def _crowd(url: str, bodies: list[bytes], limit: int) -> int:
    """Open all streams at once; return how many prompts were not trimmed as they should."""
    least, most, _ = SIZES["91 kB"]
    body = next((each for each in bodies if least <= len(each) <= most), bodies[-1])

    async def one(session: aiohttp.ClientSession, number: int) -> bool:
        headers = {
            "x-prompt-sidecar-run": f"crowd-{number}",
            "x-prompt-sidecar-context-window": str(max(min(limit, len(body) // 8), 1_000)),
        }
        async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
            answer_headers: Any = answer.headers
            whole = (await answer.read()).endswith(b"[DONE]\n\n")
            return whole and int(answer_headers.get("x-prompt-sidecar-trims", 0)) > 0

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        done = await asyncio.gather(*(one(session, number) for number in range(STREAMS)))
    return done.count(False)


def _section(prompts: Prompts, whole: dict[str, _Times], first: dict[str, _Times], untrimmed: int) -> Section:
    rows: list[list[str]] = []
    facts: dict[str, object] = {"streams": STREAMS, "streams_untrimmed": untrimmed}
    for what, found in (("whole answer", whole), ("first chunk", first)):
        for size, times in found.items():
            if not times.door:
                continue
            target = SIZES[size][2] + (FIRST_CHUNK if found is first else 0.0)
            medians = [percentile(each, 0.5) for each in (times.door, times.direct, times.trim)]
            over = times.over()
            rows.append([what, size, *map(milliseconds, medians), milliseconds(over), f"{target:g}"])
            facts[f"{what}, {size}"] = {"over_us": round(over * 1e6), "calls": len(times.door)}
    return Section(
        "http",
        f"The HTTP door: {prompts.name}",
        ["ms, p50", "body", "door", "direct", "trim", "door over both", "aim"],
        rows,
        facts,
        [f"{STREAMS} streams at once: {untrimmed} with a prompt that was not trimmed"],
    )


if __name__ == "__main__":
    asyncio.run(serve(_answer, 512))
