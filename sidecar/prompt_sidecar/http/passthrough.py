"""What the sidecar has no business with passes through: bytes as they come, in both directions, WebSockets included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, MultiMapping

from prompt_sidecar.http.agents import Agent
from prompt_sidecar.http.reading import Source, UpstreamFailed
from prompt_sidecar.http.routes import Provider
from prompt_sidecar.http.upstream import Upstreams, checked, forwarded, reason
from prompt_sidecar.serving.provider_errors import error_body, error_headers

_OPENING: Final = (
    "host",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
)
"""Headers of a WebSocket's opening that belong to one connection."""


async def passed(
    request: web.Request, agent: Agent, provider: Provider, upstreams: Upstreams
) -> tuple[web.StreamResponse, int]:
    """Pass a request through; return the answer, which was sent, and the upstream's status."""
    if request.headers.get("upgrade", "").lower() == "websocket":
        if not web.WebSocketResponse().can_prepare(request):
            return _refusal(400, "the request opens no WebSocket (RFC 6455, 4.1)"), 0
        try:
            return await _socket(request, provider, upstreams)
        except aiohttp.WSServerHandshakeError as error:
            if error.status < 400:
                raise
            return _refusal(error.status, "the provider opens no WebSocket", error.headers), error.status
    body = agent.pieces() if request.body_exists else None
    headers = forwarded(request.headers, "host")
    async with upstreams.send(provider, request.method, request.rel_url, headers, body) as answer:
        response = web.StreamResponse(
            status=checked(answer).status, reason=reason(answer), headers=forwarded(answer.headers, "content-length")
        )
        await relay(request, agent, answer, response)
        return response, answer.status


async def relay(
    request: web.Request,
    agent: Agent,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    *,
    seen: Callable[[bytes], object] = lambda _: None,
    whole: Callable[[], object] = lambda: None,
) -> None:
    """Send an upstream's body on as it comes.

    Args:
        request: the agent's.
        agent: whose it is.
        answer: the upstream's.
        response: the agent's answer, not begun.
        seen: is given each piece before it is sent, as the agent may leave with it.
        whole: is called before the agent has the end of an answer that was not cut off.
    """
    length = answer.headers.get("content-length", "")
    if length.isdecimal():
        response.content_length = int(length)
    await response.prepare(request)
    try:
        source = Source(answer)
        while chunk := await source.next():
            seen(chunk)
            await agent.write(response, chunk)
    except UpstreamFailed:
        agent.cut_off()  # as the upstream did: the agent must not take a part for the whole
        return
    whole()
    await response.write_eof()


def _refusal(status: int, message: str, headers: MultiMapping[str] | None = None) -> web.Response:
    """An error of a WebSocket's opening, with the provider's `headers` but for those of a body, which was not read."""
    told = CIMultiDict[str]() if headers is None else forwarded(headers, "content-length", "content-encoding")
    told.update(error_headers("", status))
    return web.Response(status=status, body=error_body("", status, message, "WEBSOCKET"), headers=told)


async def _socket(request: web.Request, provider: Provider, upstreams: Upstreams) -> tuple[web.StreamResponse, int]:
    asked = request.headers.get("sec-websocket-protocol", "")
    protocols = tuple(each.strip() for each in asked.split(",") if each.strip())
    headers = forwarded(request.headers, *_OPENING)
    async with upstreams.connect(provider, request.rel_url, headers, protocols) as there:
        chosen = (there.protocol,) if there.protocol else ()
        here = web.WebSocketResponse(protocols=chosen, max_msg_size=0, autoping=True)
        await here.prepare(request)
        ways = [asyncio.create_task(_pump(here, there)), asyncio.create_task(_pump(there, here))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await there.close()
            await here.close()
    return here, 101


async def _pump(source: Any, sink: Any) -> None:
    """Send one side's messages to the other until it closes."""
    async for message in source:
        if message.type is aiohttp.WSMsgType.TEXT:
            await sink.send_str(message.data)
        elif message.type is aiohttp.WSMsgType.BINARY:
            await sink.send_bytes(message.data)
    await sink.close(code=source.close_code or aiohttp.WSCloseCode.OK)
