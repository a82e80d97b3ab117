"""What the sidecar has no business with passes through: bytes as they come, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import aiohttp
from aiohttp import web

from prompt_sidecar.doors.http.agents import RequestingAgent
from prompt_sidecar.doors.http.reading import Source, UpstreamFailed
from prompt_sidecar.doors.http.upstream import Upstreams, checked, forwarded, reason
from prompt_sidecar.providers.api import Provider


async def passed(  # noqa: PLR0917 - the request, and what of it goes on changed
    request: web.Request,
    agent: RequestingAgent,
    provider: Provider,
    upstreams: Upstreams,
    body: bytes | None = None,
    without: Sequence[str] = (),
    told: Callable[[], Mapping[str, str]] = dict,
) -> tuple[web.StreamResponse, int]:
    """Pass a request through; return the answer, which was sent, and the upstream's status.

    Args:
        request: the agent's.
        agent: who has sent it.
        provider: for which it is.
        upstreams: the providers.
        body: goes on in place of the request's; None: that goes on as it comes.
        without: headers that do not go on.
        told: is called when the answer begins; returns headers to add to the provider's.
    """
    data = agent.pieces() if body is None and request.body_exists else body
    headers = forwarded(request.headers, "host", *without)
    async with upstreams.send(provider, request.method, request.rel_url, headers, data) as answer:
        back = forwarded(answer.headers, "content-length")
        back.update(told())
        response = web.StreamResponse(status=checked(answer).status, reason=reason(answer), headers=back)
        await relay(request, agent, answer, response)
        return response, answer.status


async def relay(
    request: web.Request,
    agent: RequestingAgent,
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    *,
    first: bytes = b"",
    seen: Callable[[bytes], object] = lambda _: None,
    whole: Callable[[], object] = lambda: None,
) -> None:
    """Send an upstream's body on as it comes.

    Args:
        request: the agent's.
        agent: whose it is.
        answer: the upstream's.
        response: the agent's answer, not begun.
        first: what was read of it before.
        seen: is given each piece before it is sent, as the agent may leave with it.
        whole: is called before the agent has the end of an answer that was not cut off.
    """
    length = answer.headers.get("content-length", "")
    if length.isdecimal():
        response.content_length = int(length)
    agent.answering = True
    await response.prepare(request)
    try:
        if first:
            await agent.write(response, first)
        source = Source(answer)
        while chunk := await source.next():
            seen(chunk)
            await agent.write(response, chunk)
    except UpstreamFailed:
        agent.broken = True
        agent.cut_off()  # as the upstream did: the agent must not take a part for the whole
        return
    whole()
    await agent.end(response)
