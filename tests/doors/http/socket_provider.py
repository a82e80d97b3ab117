"""OpenAI's Responses API over a WebSocket, behind the scripted upstream: what it keeps, and what it refuses.

Each request is held against the rules of one over HTTP, together with all that it goes on from: of each stream the
newest response is kept, and no other. `asked` has each request as it came, and with its whole input.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import WSMsgType, web

from tests.client.provider import SHAPES, Says
from tests.conformance.table import CASES
from tests.doors.http.streams import EVENTS
from tests.doors.http.upstream import Model, Sent, Upstream

_OF_SOCKETS: Final = ("type", "stream_id", "generate", "previous_response_id")


@dataclass(slots=True)
class Asked:
    """One request."""

    message: Any
    """As it came."""
    whole: Any
    """With all that it goes on from."""


@dataclass(slots=True)
class SocketProvider:
    """See the file. `opened` answers what opens a WebSocket."""

    model: Model
    upstream: Upstream | None = None
    """Keeps each request that asks for an answer as one over HTTP, and what is wrong with it."""
    asked: list[Asked] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    """All messages, as they came."""
    defects: list[str] = field(default_factory=list)
    closed: list[int | None] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    refuses: dict[int, Any] = field(default_factory=dict)
    """Errors in place of answers, by the number of the request, from 1 on."""
    forgets: set[int] = field(default_factory=set)
    """Numbers of the requests before which it forgets what it keeps."""
    cut_off: set[int] = field(default_factory=set)
    """Numbers of the requests whose answers are incomplete."""
    before: Callable[[Any], Any] | None = None
    """Awaited with the WebSocket before each event."""
    other: list[Any] = field(default_factory=list)
    """Messages that ask for no response."""

    async def opened(self, request: web.Request) -> web.WebSocketResponse:
        """Serve a WebSocket."""
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        socket = web.WebSocketResponse(max_msg_size=0, compress=True)
        socket.headers["x-codex-turn-state"] = "sticky"
        await socket.prepare(request)
        kept: dict[str, dict[str, list[Any]]] = defaultdict(dict)
        lanes: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        tasks = []
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            self.raw.append(message.data)
            asked = json.loads(message.data)
            if asked["type"] != "response.create":
                self.other.append(asked)
                continue
            name = asked.get("stream_id", "")
            tasks.append(asyncio.create_task(self._answer(socket, asked, name, kept, lanes[name])))
        self.closed.append(socket.close_code)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return socket

    async def _answer(self, socket: Any, asked: Any, name: str, kept: Any, lane: asyncio.Lock) -> None:
        async with lane:
            previous = asked.get("previous_response_id")
            if len(self.asked) + 1 in self.forgets:
                kept.clear()
            known = {key: value for each in kept.values() for key, value in each.items()}
            if previous and previous not in known:
                self.asked.append(Asked(asked, None))
                await self._refused(socket, name, "previous_response_not_found", "Previous response not found.")
                return
            given = asked["input"]
            given = [{"role": "user", "content": given}] if isinstance(given, str) else given
            history = [*known.get(previous, []), *given]
            whole = {key: value for key, value in asked.items() if key not in _OF_SOCKETS} | {"input": history}
            self.asked.append(Asked(asked, whole))
            number = len(self.asked)
            generates = asked.get("generate") is not False
            if self.upstream is not None and generates:
                self.upstream.sent.append(Sent("/v1/responses", {}, whole, json.dumps(asked).encode()))
            defects = CASES["openai_responses"].defects(whole) if history or generates else []
            self.defects += defects
            if self.upstream is not None:
                self.upstream.defects += defects
            if defects:
                await self._refused(socket, name, None, "; ".join(defects))
                return
            if (error := self.refuses.get(number)) is not None:
                await self._refused(socket, name, error.get("code"), error["message"], error.get("status", 400))
                return
            says = self.model(whole) if generates else Says()
            answer = SHAPES["responses"](says, number) | {"store": asked.get("store", True)}
            if number in self.cut_off:
                answer["status"] = answer["output"][-1]["status"] = "incomplete"
            if not generates:
                answer["usage"] = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
            kept[name] = {answer["id"]: [*history, *answer["output"]]}
            for event in EVENTS["responses"](answer, asked):
                data = json.loads(event.partition(b"data: ")[2])
                if data["type"] == "response.completed" and number in self.cut_off:
                    data["type"] = "response.incomplete"
                if self.before is not None:
                    await self.before(socket)
                await socket.send_str(json.dumps(data | ({"stream_id": name} if name else {})))

    async def _refused(self, socket: Any, name: str, code: str | None, message: str, status: int = 400) -> None:
        error = {"type": "invalid_request_error", "code": code, "message": message, "param": None}
        event = {"type": "error", "status": status, "error": error} | ({"stream_id": name} if name else {})
        await socket.send_str(json.dumps(event))
