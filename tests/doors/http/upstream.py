"""A provider on loopback that answers by a script, streamed where that is asked for, and judges every request.

Each request is held against the rules by which its provider would refuse it (tests/conformance); what it would
refuse is kept in `defects`, and answered with 400. It keeps what it was sent, and the bytes that it answered with.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from tests.client.provider import SHAPES, Says
from tests.conformance.bound_thinking import BoundThinking
from tests.conformance.table import CASES
from tests.doors.http.streams import EVENTS

FORMATS: Final[Mapping[str, str]] = {
    "chat/completions": "openai_chat",
    "messages": "anthropic_messages",
    "responses": "openai_responses",
}

Model = Callable[[Any], Says]
"""Says what the model answers to a body."""


@dataclass(slots=True)
class Sent:
    """One request, and the answer's bytes."""

    path: str
    headers: Mapping[str, str]
    body: Any
    raw: bytes
    answered: bytes = b""


@dataclass(slots=True)
class Upstream:
    """See the file. A context manager."""

    model: Model
    sent: list[Sent] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    pause: float = 0.0
    """Seconds between two events of a stream."""
    port: int = 0
    other: Callable[[web.Request], Any] | None = None
    """Answers requests to any other path."""
    only_other: bool = False
    """Whether it answers those to the known paths too."""
    before: Callable[[], Any] | None = None
    """Awaited before each event of a stream."""
    thinking: BoundThinking | None = None
    """Binds the thinking of Anthropic's messages to what precedes it; None: it is not looked at."""
    _loop: Any = None
    _thread: Any = None
    _runner: Any = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()

        async def begin() -> None:
            app = web.Application(client_max_size=1 << 28)
            app.router.add_route("*", "/{path:.*}", self._handle)
            self._runner = web.AppRunner(app, access_log=None, auto_decompress=False)
            await self._runner.setup()
            site = web.TCPSite(self._runner, "127.0.0.1", self.port)
            await site.start()
            self.port = self._runner.addresses[0][1]
            ready.set()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(begin())
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def bodies(self) -> list[Any]:
        """The bodies that it was sent."""
        return [each.body for each in self.sent]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/v1/")[2]
        if name not in FORMATS or request.method != "POST" or self.only_other:
            assert self.other is not None, f"nobody was to ask for {request.path}"
            answer: web.StreamResponse = await self.other(request)
            return answer
        raw = await request.read()
        sent = Sent(request.path, dict(request.headers), json.loads(raw), raw)
        self.sent.append(sent)
        if defects := CASES[FORMATS[name]].defects(sent.body):
            self.defects += defects
            return _error(400, "; ".join(defects))
        says = self.model(sent.body)
        if says.status != 200:
            return _error(says.status, says.text)
        answer_json = SHAPES[name](says, len(self.sent))
        if self.thinking is not None:
            message = {"role": "assistant", "content": answer_json["content"]}
            reply = self.thinking.ask(raw, [json.dumps(message).encode()])
            self.defects += [str(each) for each in reply.refusals]
            if reply.refusals:
                return _error(400, "; ".join(map(str, reply.refusals)))
            answer_json["content"] = json.loads(reply.messages[0])["content"]
        if not sent.body.get("stream"):
            sent.answered = json.dumps(answer_json).encode()
            return web.Response(body=sent.answered, content_type="application/json", headers={"request-id": "r1"})
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8", "request-id": "r1"})
        await response.prepare(request)
        for event in EVENTS[name](answer_json, sent.body):
            if self.before is not None:
                await self.before()
            if self.pause:
                await asyncio.sleep(self.pause)
            sent.answered += event
            await response.write(event)
        await response.write_eof()
        return response


def _error(status: int, text: str) -> web.Response:
    return web.json_response(
        {"type": "error", "error": {"message": text, "type": "invalid_request_error", "code": None}}, status=status
    )


def scripted(*turns: Says | Model) -> Model:
    """A model that says these in order."""
    left = list(turns)

    def model(body: Any) -> Says:
        turn = left.pop(0)
        return turn(body) if callable(turn) else turn

    return model


def texts(body: Any) -> Iterable[str]:
    """All texts of a body, as JSON."""
    return [json.dumps(each) for each in body.get("messages") or body["input"]]
