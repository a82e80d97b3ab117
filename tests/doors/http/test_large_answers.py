"""Large answers of providers: read beside the event loop, and held within a bound."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from prompt_sidecar import slots
from prompt_sidecar.answers import answer_json, sse
from prompt_sidecar.answers.answer_stream import READ_AT_ONCE
from prompt_sidecar.answers.frames import frame
from prompt_sidecar.calls.call_pool import LARGE
from tests.client.calls_in_pieces import OURS
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_passing import TOOLS
from tests.doors.http.test_pieces_of_calls import call, chunk, ends
from tests.doors.http.test_silent_agents import Watched
from tests.doors.http.upstream import scripted

TEXT: Final = "x" * (4 * READ_AT_ONCE)
MESSAGE: Final = {"role": "assistant", "content": TEXT}
CHAT: Final = json.dumps({"choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]}).encode()
EVENTS: Final = b"".join([chunk({"content": TEXT}), *ends("stop")])
LINES: Final = b"data: {\n" + (b"data: " + b" " * 16 + b"\n") * 10_000 + b"data: }\n\n" + b"".join(ends("stop"))
GEMINI: Final = json.dumps([{"candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}}]}]).encode()
CONVERSE: Final = frame({"contentBlockIndex": 0, "delta": {"text": TEXT}}, "contentBlockDelta")
OPENAI: Final = "/v1/chat/completions"
STREAM: Final = "text/event-stream"


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The threads in which large texts and events are read."""
    seen: set[str] = set()

    def noted(module: Any, name: str) -> None:
        was = getattr(module, name)

        def spy(raw: bytes, *more: Any) -> Any:
            if len(raw) > READ_AT_ONCE:
                seen.add(threading.current_thread().name)
            return was(raw, *more)

        monkeypatch.setattr(module, name, spy)

    noted(answer_json, "check_decoding")
    noted(sse, "_event")
    return seen


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each text of more than a megabyte that is read, whether that counts as short work in the pool."""
    seen: list[bool] = []
    was = vars(answer_json)["check_decoding"]

    def spy(raw: bytes, *more: Any) -> None:
        if len(raw) > LARGE:
            work: Any = slots._THREAD.slots  # noqa: SLF001 - what it counts as is not told otherwise
            seen.append(work.short)
        was(raw, *more)

    monkeypatch.setattr(answer_json, "check_decoding", spy)
    return seen


@contextmanager
def answering(status: int, kind: str, *parts: bytes, **more: Any) -> Iterator[tuple[Proxied, asyncio.Event]]:
    """A door before a provider that answers each request with these parts; it waits for an event between two of them.

    The event is to be set on the provider's own loop.
    """
    goes_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(status=status, headers={"content-type": kind})
        await response.prepare(request)
        for at, part in enumerate(parts):
            if at:
                await goes_on.wait()
            await response.write(part)
        await response.write_eof()
        return response

    with proxied(scripted(), window=60_000, **more) as here:
        here.upstream.only_other, here.upstream.other = True, answer
        yield here, goes_on


def _request(path: str, *, stream: bool) -> bytes:
    body: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "Which build failed?"}]}
    body |= {"tools": [TOOLS["openai_chat"]], "stream": stream}
    if "converse" in path:
        body = {"messages": [{"role": "user", "content": [{"text": "Which build failed?"}]}]}
    if "Content" in path:
        body = {"contents": [{"role": "user", "parts": [{"text": "Which build failed?"}]}]}
    return json.dumps(body).encode()


async def _ask(here: Proxied, path: str, *, stream: bool) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as session,
        session.post(here.url + path, data=_request(path, stream=stream), headers={"authorization": "Bearer k"}) as got,
    ):
        return got.status, await got.read()


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        (OPENAI, "application/json", CHAT),
        (OPENAI, STREAM, EVENTS),
        (OPENAI, STREAM, LINES),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent", "application/json", GEMINI),
        ("/model/m/converse-stream", "application/vnd.amazon.eventstream", CONVERSE),
    ],
    ids=["whole", "event", "lines", "array", "frame"],
)
def test_large_answers_are_read_in_worker_threads(path: str, kind: str, body: bytes, readers: set[str]) -> None:
    """They reach the agent as they came, and none of them is read on the event loop, on which all requests are."""
    with answering(200, kind, body) as (here, _):
        got = asyncio.run(_ask(here, path, stream=kind == STREAM))
        _wait_for(lambda: bool(readers))
    assert (200, body) == got
    assert "http" not in readers


LONG: Final = "x" * 2 * LARGE
LONG_CHAT: Final = CHAT.replace(TEXT.encode(), LONG.encode())


@pytest.mark.parametrize(
    ("kind", "body", "headers"),
    [
        ("application/json", LONG_CHAT, {}),
        ("application/json", gzip.compress(LONG_CHAT), {"content-encoding": "gzip"}),
        (STREAM, b"".join([chunk({"content": LONG}), *ends("stop")]), {}),
    ],
    ids=["whole", "packed", "event"],
)
def test_large_answers_are_no_short_work(kind: str, body: bytes, headers: dict[str, str], short: list[bool]) -> None:
    """Small requests have large answers, and small packed ones too: three of them would hold all slots."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={"content-type": kind, **headers})

    with proxied(scripted(), window=60_000) as here:
        here.upstream.only_other, here.upstream.other = True, answer
        status, _ = asyncio.run(_ask(here, OPENAI, stream=kind == STREAM))
        assert 200 == status
        _wait_for(lambda: bool(short))
    assert {False} == set(short)


def test_a_large_error_is_not_read_on_the_event_loop(readers: set[str]) -> None:
    """A stream that a hidden turn began ends with an error of the sidecar's own words."""
    answers = [
        web.Response(body=b"".join([call("a", OURS, '{"query":"x"}'), *ends()]), headers={"content-type": STREAM}),
        web.Response(body=json.dumps({"error": {"message": TEXT}}), status=400, content_type="application/json"),
    ]

    async def answer(_: web.Request) -> web.Response:
        return answers.pop(0)

    with proxied(scripted(), window=60_000) as here:
        here.upstream.only_other, here.upstream.other = True, answer
        status, body = asyncio.run(_ask(here, OPENAI, stream=True))
    assert 200 == status
    assert json.loads(body.removeprefix(b"data: "))["error"]["message"] == "the provider answered with status 400"
    assert "http" not in readers


def test_what_is_counted_is_read_beside_the_loop_where_the_agent_has_gone(readers: set[str]) -> None:
    """Reading goes on for a moment after an agent has left, as the figures are at the end of an answer."""
    with answering(200, "application/json", CHAT[:-1], b"}") as (here, goes_on):

        async def leave() -> None:
            asking = asyncio.ensure_future(_ask(here, OPENAI, stream=False))
            await _until(lambda: _held(here) > READ_AT_ONCE)
            asking.cancel()
            await asyncio.wait({asking})

        asyncio.run(leave())
        here.upstream._loop.call_soon_threadsafe(goes_on.set)  # noqa: SLF001
        _wait_for(lambda: bool(readers))
    assert "http" not in readers


def test_an_answer_of_many_small_values_passes_unread() -> None:
    """Decoding it would take thirty times its bytes: it goes on as it came, whole or in a stream."""
    dense = b'{"choices":[' + b"[]," * 400_000 + b"[]]}"
    with answering(200, "application/json", dense) as (here, _):
        assert (200, dense) == asyncio.run(_ask(here, OPENAI, stream=False))
    event = b"data: " + dense + b"\n\n" + b"".join(ends("stop"))
    with answering(200, STREAM, event) as (here, _):
        assert (200, event) == asyncio.run(_ask(here, OPENAI, stream=True))
    assert answer_json.read(dense) is None


MOST: Final = 8_388_608


def test_whole_answers_are_held_within_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    """Those that have no room beside another pass as they come, as their provider is paid; the log says so once."""
    bounds = Watched()
    large = b'{"x":"' + b"y" * (MOST * 3 // 4)
    with answering(200, "application/json", large, b'"}', body_bytes=MOST, observer=bounds) as (here, goes_on):

        async def three() -> list[tuple[int, bytes]]:
            first = asyncio.ensure_future(_ask(here, OPENAI, stream=False))
            await _until(lambda: _held(here) > MOST // 2)
            others = [asyncio.ensure_future(_ask(here, OPENAI, stream=False)) for _ in range(2)]
            await _until(lambda: "http.body_bytes" in bounds.bounds)
            here.upstream._loop.call_soon_threadsafe(goes_on.set)  # noqa: SLF001
            return await asyncio.gather(first, *others)

        assert [(200, large + b'"}')] * 3 == asyncio.run(three())
        _wait_for(lambda: _held(here) == 0)
    assert {"http.body_bytes"} == bounds.bounds
    assert 1 == sum("answers pass unread" in line for line in caplog.messages)


@pytest.mark.parametrize("hides", [False, True])
def test_large_events_are_held_within_the_bound(hides: bool) -> None:
    """Where one has no room its stream passes as it comes, or ends with an error if something was left out of it."""
    begun = call("a", OURS, '{"query":"x"}') if hides else b""
    event = b'data: {"x":"' + b"y" * (MOST * 3 // 4)
    rest = b'"}\n\n' + b"".join(ends("stop"))
    bounds = Watched()
    with answering(200, STREAM, begun + event, rest, body_bytes=MOST, observer=bounds) as (here, goes_on):

        async def two() -> tuple[bytes, bytes]:
            first = asyncio.ensure_future(_ask(here, OPENAI, stream=True))
            await _until(lambda: _held(here) > MOST // 2)
            second = asyncio.ensure_future(_ask(here, OPENAI, stream=True))
            await _until(lambda: "http.body_bytes" in bounds.bounds)
            here.upstream._loop.call_soon_threadsafe(goes_on.set)  # noqa: SLF001
            return (await first)[1], (await second)[1]

        one, other = asyncio.run(two())
        _wait_for(lambda: _held(here) == 0)
    if hides:
        assert b"server_error" in other
    else:
        assert (event + rest, event + rest) == (one, other)


def _held(here: Proxied) -> int:
    return here.door._handler._bodies.held  # type: ignore[union-attr]  # noqa: SLF001


async def _until(reached: Callable[[], bool]) -> None:
    await asyncio.to_thread(_wait_for, reached)


def _wait_for(reached: Callable[[], bool]) -> None:
    until = monotonic() + PATIENCE
    while not reached():
        assert monotonic() < until
        threading.Event().wait(0.01)
