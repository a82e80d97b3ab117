"""Forwards requests that the sidecar does not handle: bytes unchanged, in both directions."""

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
    more_headers: Callable[[], Mapping[str, str]] = dict,
) -> tuple[web.StreamResponse, int]:
    """Forward a request; return the response, already sent to the agent, and the upstream's status.

    Args:
        request: the agent's request.
        agent: who has sent it.
        provider: where it is sent.
        upstreams: connections to the providers.
        body: sent in place of the request's body; None: that is forwarded unchanged.
        without: headers that are not forwarded.
        more_headers: is called when the answer begins; returns headers to add to the provider's.
    """
    data = agent.pieces() if body is None and request.body_exists else body
    headers = forwarded(request.headers, "host", *without)
    async with upstreams.send(provider, request.method, request.rel_url, headers, data) as answer:
        back = forwarded(answer.headers, "content-length")
        back.update(more_headers())
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
    """Forward an upstream's body while it is received.

    Args:
        request: the agent's request.
        agent: who has sent it.
        answer: the upstream's response.
        response: the response to the agent, not begun.
        first: bytes of the upstream's body that were read before.
        seen: called with each piece before it is sent, as the agent may disconnect once it has it.
        whole: called before the end of a complete answer is sent to the agent.
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
        agent.cut_off()  # abort as the upstream did: the agent must not take a part for the whole
        return
    whole()
    await agent.end(response)
