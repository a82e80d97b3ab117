"""What the provider counts is reported also where the agent closes its connection before the answer's last byte."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from tests.client.provider import SHAPES, Says
from tests.doors.http.agents import FORMATS
from tests.doors.http.path_models import WAYS, pieces
from tests.doors.http.serving import proxied
from tests.doors.http.streams import EVENTS
from tests.doors.http.test_billed import Reports
from tests.doors.http.test_passing import PATHS, TOOLS
from tests.doors.http.upstream import scripted
from tests.waiting import PATIENCE

SAYS: Final = Says("A build of some length failed.", [("c1", "read_log", {"number": 1})])
ENDS: Final = {
    "openai_chat": (b'"finish_reason":"tool_calls"', b"[DONE]"),
    "anthropic_messages": (b'"message_delta"', b'"message_stop"'),
    "openai_responses": (b'"response.output_item.done"', b'"response.completed"'),
    "gemini_contents": (b'"functionCall"', b'"finishReason"'),
    "bedrock_converse": (b"contentBlockStop", b"messageStop"),
}
"""In an event from which on an agent may need nothing more: the first one, and the last one."""
INPUT: Final = {"anthropic_messages": 210, "bedrock_converse": 210}
"""Where the provider does not count cached tokens among those of the input; else 1,234."""


def _events(format: str) -> list[bytes]:
    if format in PATHS:
        answer = SHAPES[PATHS[format]](SAYS, 1)
        return list(EVENTS[PATHS[format]](answer, {"stream_options": {"include_usage": True}}))
    return pieces(WAYS["gemini-sse" if format == "gemini_contents" else "bedrock-stream"], SAYS)


def _url(format: str) -> str:
    if format in PATHS:
        return f"/v2/{PATHS[format]}"
    return WAYS["gemini-sse" if format == "gemini_contents" else "bedrock-stream"].path


def _body(format: str) -> bytes:
    body: dict[str, Any] = {"model": "scripted", "stream": True, "stream_options": {"include_usage": True}}
    if format == "gemini_contents":
        body = {"contents": [{"role": "user", "parts": [{"text": "Which build failed?"}]}]}
    elif format == "bedrock_converse":
        body = {"messages": [{"role": "user", "content": [{"text": "Which build failed?"}]}]}
    else:
        body["tools"] = [TOOLS[format]]
        member = "input" if format == "openai_responses" else "messages"
        body[member] = [{"role": "user", "content": "Which build failed?"}]
    return json.dumps(body).encode()


async def _leaves(url: str, body: bytes, at: bytes) -> None:
    """Ask, and close the connection when these bytes have come."""
    got = b""
    async with aiohttp.ClientSession() as session:
        answer = await session.post(url, data=body, headers={"authorization": "Bearer k"})
        while at not in got and (chunk := await answer.content.readany()):
            got += chunk
        assert at in got
        answer.close()


@pytest.mark.parametrize("format", [*FORMATS, "gemini_contents", "bedrock_converse"])
@pytest.mark.parametrize("end", [0, 1], ids=["at the reason to finish", "at the last event"])
def test_the_bill_of_an_agent_that_leaves_early(format: str, end: int) -> None:
    """The provider sends what is left once the agent has gone, and does not close the stream for a while."""
    at, gone, reports = ENDS[format][end], threading.Event(), Reports()
    events = _events(format)
    last = next(index for index in range(len(events) - 1, -1, -1) if at in events[index])

    async def other(request: web.Request) -> web.StreamResponse:
        await request.read()
        kind = "application/vnd.amazon.eventstream" if format == "bedrock_converse" else "text/event-stream"
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        for event in events[: last + 1]:
            await response.write(event)
        await asyncio.to_thread(gone.wait, PATIENCE)
        for event in events[last + 1 :]:
            await response.write(event)
        await asyncio.to_thread(reported.wait, PATIENCE)
        return response

    reported = threading.Event()
    with proxied(scripted(), observer=reports, window=60_000) as here:
        here.upstream.other = other

        async def run() -> None:
            await _leaves(here.url + _url(format), _body(format), at)
            gone.set()

        try:
            asyncio.run(run())
            reports.wait(1)
        finally:
            gone.set()
            reported.set()

    assert (INPUT.get(format, 1_234), 56) == (reports.calls[0].input_tokens, reports.calls[0].output_tokens)
    assert 1 == len(reports.calls)


def test_an_agent_that_leaves_in_the_middle() -> None:
    """What was counted by then is reported, and the request to the provider ends."""
    left, reports = threading.Event(), Reports()
    events = _events("anthropic_messages")

    async def other(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for event in events[:5]:
                await response.write(event)
            while True:
                await response.write(b": goes on\n\n")
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.CancelledError):
            left.set()
            raise

    with proxied(scripted(), observer=reports, window=60_000) as here:
        here.upstream.other = other
        asyncio.run(_leaves(here.url + "/v2/messages", _body("anthropic_messages"), b"A build"))
        reports.wait(1)
        assert left.wait(60)

    assert (210, 1) == (reports.calls[0].input_tokens, reports.calls[0].output_tokens)


@pytest.mark.parametrize("format", FORMATS)
def test_an_agent_that_leaves_before_a_whole_answer(format: str) -> None:
    """It comes a moment later, and is on the bill."""
    reports, asked, go = Reports(), threading.Event(), threading.Event()

    async def other(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        raw = json.dumps(SHAPES[PATHS[format]](SAYS, 1)).encode()
        await response.write(raw[:20])
        asked.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        await response.write(raw[20:])
        return response

    async def run(url: str, body: bytes) -> None:
        async with aiohttp.ClientSession() as session:
            task = asyncio.ensure_future(session.post(url, data=body))
            assert await asyncio.to_thread(asked.wait, PATIENCE)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with proxied(scripted(), observer=reports, window=60_000) as here:
        here.upstream.other = other
        body = json.loads(_body(format))
        del body["stream"], body["stream_options"]
        asyncio.run(run(here.url + _url(format), json.dumps(body).encode()))
        go.set()
        reports.wait(1)

    assert (INPUT.get(format, 1_234), 56) == (reports.calls[0].input_tokens, reports.calls[0].output_tokens)
