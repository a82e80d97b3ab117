"""What is not the sidecar's passes as it came: bytes, headers, streams, WebSockets; and what must not pass does not."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from tests.client.histories import history
from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.agents import FORMATS, OWN, TOOL, Agent
from tests.doors.http.raw_agents import PROMPT
from tests.doors.http.serving import Proxied, opened, options, proxied
from tests.doors.http.upstream import scripted

PATHS = {"openai_chat": "chat/completions", "openai_responses": "responses", "anthropic_messages": "messages"}
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
TOOLS: dict[str, Any] = {
    "openai_chat": {"type": "function", "function": {"name": TOOL, "parameters": OWN}},
    "openai_responses": {"type": "function", "name": TOOL, "parameters": OWN, "strict": False},
    "anthropic_messages": {"name": TOOL, "input_schema": OWN},
}


def _asked(format: str, **more: Any) -> bytes:
    member = "input" if format == "openai_responses" else "messages"
    body = {"model": "scripted", member: history(format, 2), "max_tokens": 99, "tools": [TOOLS[format]], **more}
    return json.dumps(body).encode()


async def _post(url: str, body: bytes, **headers: str) -> tuple[int, bytes, Any]:
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status, await answer.read(), answer.headers


@pytest.fixture(scope="module")
def shared() -> Iterator[Proxied]:
    """A door, before which others are opened."""
    with proxied(scripted(Says("Hello."))) as here:
        yield here


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_ours_is_the_same_bytes(format: str, stream: bool) -> None:
    """Text, reasoning and the agent's calls, whole or streamed; the provider's headers too."""
    says = Says("A long text, in many pieces — with an ä.", [("call-7", TOOL, {"path": "/a/b c"})])
    with proxied(scripted(says)) as here:
        url = f"{here.url}/v1/{PATHS[format]}"
        status, body, headers = asyncio.run(_post(url, _asked(format, stream=stream)))

    assert 200 == status
    assert here.upstream.sent[0].answered == body
    assert "r1" == headers["request-id"]


def test_thinking_comes_before_what_it_led_to() -> None:
    """Held back until the turn shows something, then sent on as it came; pings keep the agent waiting meanwhile."""
    thought = {"type": "thinking", "thinking": "Which log is it?", "signature": "c2ln"}
    says = Says("This one.", [("call-7", TOOL, {})], blocks=[thought])
    with proxied(scripted(says)) as here:
        url = f"{here.url}/v1/messages"
        _, body, _ = asyncio.run(_post(url, _asked("anthropic_messages", stream=True)))

    sent = here.upstream.sent[0].answered
    assert sent.replace(PING, b"") == body.replace(PING, b"")
    assert 1 == body.count(PING)


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_of_hidden_turns_is_not_shown_and_comes_back(stream: bool) -> None:
    """The agent holds the last turn's; the model gets each of its blocks back in its place."""
    thoughts = [{"type": "thinking", "thinking": f"Thought {n}.", "signature": f"c2ln{n}"} for n in range(2)]
    own = Says("", [("own-1", "search_conversation_history", {"query": "x"})], blocks=[thoughts[0]])
    theirs = Says("", [("call-7", TOOL, {})], blocks=[thoughts[1]])
    with proxied(scripted(own, theirs, Says("Done."))) as here:
        agent = Agent("anthropic_messages", stream, here.url, [{"role": "user", "content": "Go."}])
        heard = agent.ask()
        assert "Thought 0." not in json.dumps(agent.history)
        assert "Thought 1." in json.dumps(agent.history)
        agent.answer(heard, lambda _: "log")
        agent.ask()
        assert [] == here.upstream.defects
        last = here.upstream.bodies[2]["messages"]

    held = [block for message in last if message["role"] == "assistant" for block in message["content"]]
    assert ["thinking", "tool_use", "thinking", "tool_use"] == [block["type"] for block in held]
    assert thoughts == [block for block in held if block["type"] == "thinking"]


@pytest.mark.parametrize("format", FORMATS)
def test_an_agent_that_holds_hidden_turns_itself_gets_them_once(format: str) -> None:
    """Such as one that reads its history from the provider, which had them in its prompt."""
    own = Says("", [("own-1", "search_conversation_history", {"query": "x"})])
    theirs = [Says("", [(f"call-{number}", TOOL, {})]) for number in range(2)]
    name = "input" if format == "openai_responses" else "messages"
    with proxied(scripted(theirs[0], own, theirs[1], Says("Done."), Says("Bye."))) as here:
        named = {"x-prompt-sidecar-run": "run-1"}
        agent = Agent(format, False, here.url, [{"role": "user", "content": "Go."}], headers=named)
        for _ in theirs:
            agent.answer(agent.ask(), lambda _: "log")
        agent.ask()
        before = here.upstream.bodies[3][name]
        agent.history[:] = [*before, {"role": "user", "content": "Go on."}]
        agent.ask()
        after = here.upstream.bodies[4][name]
        assert [] == here.upstream.defects

    assert json.dumps(before).count("own-1") == json.dumps(after).count("own-1") > 1


def test_other_paths_pass_in_both_directions() -> None:
    """Method, path, query, headers, status and bytes; compressed bytes stay compressed."""
    seen: dict[str, Any] = {}

    async def other(request: web.Request) -> web.StreamResponse:
        seen.update({name.lower(): value for name, value in request.headers.items()})
        seen["at"] = request.method, request.raw_path
        seen["body"] = await request.read()
        body = gzip.compress(b"batches")
        headers = {"content-encoding": "gzip", "x-own": "1", "connection": "close, x-hop", "x-hop": "1"}
        return web.Response(status=202, body=body, headers=headers)

    async def run(url: str) -> tuple[int, bytes, Any]:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.put(url, data=b"x" * 300_000, headers={"authorization": "Bearer s", "x-mine": "2"}) as answer,
        ):
            return answer.status, await answer.read(), answer.headers

    with proxied(scripted()) as here:
        here.upstream.other = other
        status, body, headers = asyncio.run(run(f"{here.url}/v1/batches/a%2Fb?after=1&x=%20"))

    assert (202, b"batches") == (status, gzip.decompress(body))
    assert ("1", False) == (headers["x-own"], "x-hop" in headers)
    assert (("PUT", "/v1/batches/a%2Fb?after=1&x=%20"), b"x" * 300_000) == (seen["at"], seen["body"])
    assert ("Bearer s", "2", f"127.0.0.1:{here.upstream.port}") == (
        seen["authorization"],
        seen["x-mine"],
        seen["host"],
    )


def test_a_request_cannot_choose_a_host() -> None:
    """Neither by its target nor by its headers."""
    seen: list[str] = []

    async def other(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.Response(text="here")

    async def run(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET http://example.invalid/v1/models HTTP/1.1\r\nHost: 10.9.8.7\r\n")
        writer.write(b"X-Forwarded-Host: example.invalid\r\nConnection: close\r\n\r\n")
        return await reader.read()

    with proxied(scripted()) as here:
        here.upstream.other = other
        answer = asyncio.run(run(here.door.port))
        one = asyncio.run(_post(f"{here.url}//example.invalid/v1/x", b""))

    assert answer.endswith(b"here")
    assert (200, b"here") == one[:2]
    assert ["/v1/models", "//example.invalid/v1/x"] == seen


def test_websockets_pass() -> None:
    """Messages of both kinds, the protocol, and the end with its code."""

    async def other(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=["realtime"])
        await socket.prepare(request)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data + "!" + request.headers["authorization"])
            else:
                await socket.send_bytes(message.data * 2)
                await socket.close(code=4001)
        return socket

    async def run(url: str) -> tuple[Any, ...]:
        headers = {"authorization": "Bearer s"}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(url, protocols=["realtime"], headers=headers) as socket,
        ):
            await socket.send_str("hello")
            text = await socket.receive_str()
            await socket.send_bytes(b"ab")
            binary = await socket.receive_bytes()
            await socket.receive()
            return socket.protocol, text, binary, socket.close_code

    with proxied(scripted()) as here:
        here.upstream.other = other
        assert ("realtime", "hello!Bearer s", b"abab", 4001) == asyncio.run(run(f"{here.url}/v1/realtime?model=x"))


def test_signed_requests_pass_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """SigV4 covers the body: nothing of it is changed."""
    bodies = []

    async def other(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.read())
        return web.Response(text="{}")

    with caplog.at_level(logging.WARNING), proxied(scripted()) as here:
        here.upstream.other = other
        for _ in range(2):
            url, body = f"{here.url}/model/m/converse", b'{"messages":[ ]}'
            asyncio.run(_post(url, body, authorization="AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=secretsign"))

    assert [b'{"messages":[ ]}'] * 2 == bodies
    assert 1 == caplog.text.count("SigV4")
    assert "secretsign" not in caplog.text


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": 7}', b'{"messages":["x"],"tools":7}', b"\xff\xfe"])
def test_what_is_not_understood_goes_on_unchanged(body: bytes) -> None:
    """The provider says what is wrong with it."""
    seen = []

    async def other(request: web.Request) -> web.StreamResponse:
        seen.append(await request.read())
        return web.json_response({"error": {"message": "what?"}}, status=400)

    with proxied(scripted()) as here:
        here.upstream.other = other
        status, answer, headers = asyncio.run(_post(f"{here.url}/odd/chat/completions", body))

    assert ([body], 400) == (seen, status)
    assert b"what?" in answer
    assert "unreadable" == headers["x-prompt-sidecar-untrimmed"]


@pytest.mark.parametrize(
    ("ends", "asked", "sent", "lines"),
    [
        ("/v1", "/v1/models", "/v1/models", 1),
        ("/v1/", "/v1/models?a=b", "/v1/models?a=b", 1),
        ("/team/v1", "/v1", "/team/v1", 1),
        ("/v2beta", "/v2beta/files", "/v2beta/files", 1),
        ("/v1", "/models", "/v1/models", 0),
        ("/v1", "/v1beta/files", "/v1/v1beta/files", 0),
        ("/v1", "/v10/models", "/v1/v10/models", 0),
        ("/v1", "/v1%2Fmodels", "/v1/v1%2Fmodels", 0),
        ("/api", "/api/models", "/api/api/models", 0),
        ("", "/v1/v1/models", "/v1/v1/models", 0),
    ],
)
def test_a_version_stands_once(  # noqa: PLR0917
    ends: str, asked: str, sent: str, lines: int, caplog: pytest.LogCaptureFixture, shared: Proxied
) -> None:
    """An upstream is often written as an SDK's base URL, with the version that agents send too; the log says so."""
    seen: list[str] = []

    async def other(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.Response(text="here")

    shared.upstream.other = other
    with opened(options(shared.upstream.url + ends), shared.core) as door:
        for _ in range(2):
            asyncio.run(_post(door.address + asked, b""))

    assert [sent, sent] == seen
    assert lines == sum("http.openai_upstream ends with" in line for line in caplog.messages)


def test_a_prompt_behind_a_doubled_version(shared: Proxied) -> None:
    """It is trimmed and answered as any other."""
    with opened(options(shared.upstream.url + "/v1"), shared.core) as door:
        status, body, headers = asyncio.run(_post(f"{door.address}/v1/chat/completions", PROMPT))

    assert (200, True) == (status, b"Hello." in body)
    assert headers["x-prompt-sidecar-run"].startswith("http-")


def test_a_prompt_without_its_provider_tells_of_its_run() -> None:
    """As the first request of an installation does that has no provider yet."""
    with proxied(scripted()) as here, opened(options("http://127.0.0.1:9"), here.core) as door:
        status, body, headers = asyncio.run(_post(f"{door.address}/v1/chat/completions", PROMPT))

    assert (502, "UPSTREAM_UNREACHABLE") == (status, json.loads(body)["error"]["code"])
    assert headers["x-prompt-sidecar-run"].startswith("http-")
    assert 0 < int(headers["x-prompt-sidecar-tokens-before"]) == int(headers["x-prompt-sidecar-tokens-after"])


def test_nobody_there() -> None:
    """An upstream that cannot be reached is an error in the provider's shape, which SDKs try again."""
    with proxied(scripted()) as here:
        here.upstream.__exit__(None, None, None)
        for path in ("messages", "chat/completions", "models"):
            status, body, _ = asyncio.run(_post(f"{here.url}/v1/{path}", b'{"messages":[]}'))
            assert 502 == status
            assert "message" in json.loads(body)["error"]
        here.upstream.__enter__()


def test_too_large_is_413() -> None:
    """In the provider's shape; nothing is sent on."""
    with proxied(scripted(), max_body_bytes=2_000) as here:
        status, body, _ = asyncio.run(_post(f"{here.url}/v1/messages", b"x" * 5_000))

    assert (413, "request_too_large") == (status, json.loads(body)["error"]["type"])


COMMENT: Final = b": a comment of some length, which is no answer to anything\n\n"


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_that_is_too_long_is_502(format: str) -> None:
    """It is not kept. A stream needs not be: from there on it passes as it comes, which has no limit."""
    seen: list[Any] = []

    async def other(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        seen.append(body)
        if body.get("stream"):
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            for _ in range(200):
                await response.write(COMMENT)
            return response
        return web.Response(body=b" " * 9_000, content_type="application/json")

    with proxied(scripted(), max_body_bytes=5_000) as here:
        here.upstream.other = other
        url = f"{here.url}/v2/{PATHS[format]}"
        small = {"model": "scripted", "input" if format == "openai_responses" else "messages": history(format, 1)[:1]}
        status, answer, _ = asyncio.run(_post(url, json.dumps(small).encode()))
        streamed = asyncio.run(_post(url, json.dumps({**small, "stream": True}).encode()))

    assert (200, COMMENT * 200) == streamed[:2]
    assert 502 == status
    assert "http.max_body_bytes" in json.loads(answer)["error"]["message"]
    assert 2 == len(seen)


@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_that_makes_no_sense_passes_unchanged(format: str) -> None:
    """Its agent may make sense of it."""
    events: tuple[Any, ...] = (
        {"choices": [{"delta": {"tool_calls": [{"index": [], "function": {"name": "x"}}]}}]},
        {"type": "response.completed", "response": {"usage": 7}},
        {"type": "content_block_start", "index": {}},
    )

    async def other(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        return response

    with proxied(scripted()) as here:
        here.upstream.other = other
        status, answer, _ = asyncio.run(_post(f"{here.url}/v2/{PATHS[format]}", _asked(format, stream=True)))

    assert (200, b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)) == (status, answer)


@pytest.mark.parametrize("patient", [True, False])
def test_a_stop_waits_for_requests_in_progress(*, patient: bool) -> None:
    """For its grace: what ends in it is answered, and what does not gets 503."""
    asked, go = threading.Event(), threading.Event()

    async def other(_: web.Request) -> web.StreamResponse:
        asked.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        return web.Response(text="late")

    with proxied(scripted()) as here, ThreadPoolExecutor(2) as threads:
        here.upstream.other = other
        answer = threads.submit(lambda: asyncio.run(_post(f"{here.url}/v1/batches", b"")))
        assert asked.wait(PATIENCE)
        stopped = threads.submit(here.door.stop, PATIENCE if patient else 0)
        if not patient:
            assert not stopped.result(PATIENCE)
        go.set()
        if patient:
            assert stopped.result(PATIENCE)
            assert b"late" == answer.result(PATIENCE)[1]
        else:
            assert 503 == answer.result(PATIENCE)[0]


def test_an_agent_that_leaves_ends_the_request_to_the_provider() -> None:
    """Its tokens are not paid for in vain."""
    left, begun = threading.Event(), threading.Event()

    async def other(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        begun.set()
        try:
            while True:
                await response.write(b": still thinking\n\n")
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.CancelledError):
            left.set()
            raise

    async def run(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.post(url, data=b'{"messages":[]}') as answer:
            await answer.content.readany()

    with proxied(scripted()) as here:
        here.upstream.other = other
        asyncio.run(run(f"{here.url}/x/chat/completions"))
        assert begun.is_set()
        assert left.wait(PATIENCE)


def test_tokens_are_counted_of_the_trimmed_prompt() -> None:
    """And nothing is recorded."""
    seen = []

    async def other(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        return web.json_response({"input_tokens": 7})

    with proxied(scripted()) as here:
        here.upstream.other = other
        body = json.dumps({"model": "scripted", "messages": history("anthropic_messages", 14)}).encode()
        _, answer, headers = asyncio.run(_post(f"{here.url}/v1/messages/count_tokens", body))
        assert 0 == len(here.core)

    assert {"input_tokens": 7} == json.loads(answer)
    assert int(headers["x-prompt-sidecar-trims"]) > 0
    assert len(json.dumps(seen[0])) < len(body) // 2
