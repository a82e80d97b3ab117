"""`python -m tests.lab.bench.http_upstream`: a provider that answers at once, as fast as it can."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from aiohttp import web

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


async def _serve() -> None:
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/{path:.*}", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=512).start()
    print(f"listening on 127.0.0.1:{runner.addresses[0][1]}", file=sys.stderr, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
