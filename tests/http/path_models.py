"""Gemini and Bedrock behind the door: a scripted provider's answers, and agents of a few lines on plain HTTP.

Both name the model in the path. A whole answer is JSON; Gemini streams server-sent events or one array in pieces,
Bedrock Amazon's event stream, whose frames have two checksums each.
"""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiohttp
from aiohttp import web
from yarl import URL

from tests.client.provider import Says
from tests.http.agents import TOOL
from tests.http.upstream import Model
from tests.programs.conformance.table import CASES


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask: a format and a path."""

    format: str
    path: str
    kind: str
    """The content type of its answers."""


WAYS: Final[Mapping[str, Way]] = {
    "gemini": Way("gemini_contents", "/v1beta/models/scripted:generateContent", "application/json"),
    "gemini-sse": Way("gemini_contents", "/v1beta/models/scripted:streamGenerateContent?alt=sse", "text/event-stream"),
    "gemini-array": Way("gemini_contents", "/v1beta/models/scripted:streamGenerateContent", "application/json"),
    "bedrock": Way("bedrock_converse", "/model/maker.scripted-v1%3A0/converse", "application/json"),
    "bedrock-stream": Way(
        "bedrock_converse",
        "/model/maker.scripted-v1%3A0/converse-stream",
        "application/vnd.amazon.eventstream",
    ),
}


def pieces(way: Way, says: Says) -> list[bytes]:
    """An answer of the provider, as it sends it."""
    if way.format == "bedrock_converse":
        return list(_frames(says)) if way.path.endswith("stream") else [json.dumps(_converse(says)).encode()]
    if "stream" not in way.path:
        return [json.dumps(_gemini(says), indent=1).encode()]
    halves = [_gemini(replace(says, text=says.text[:5], calls=())), _gemini(replace(says, text=says.text[5:]))]
    del halves[0]["candidates"][0]["finishReason"]
    if way.kind == "text/event-stream":
        return [f"data: {json.dumps(half)}\r\n\r\n".encode() for half in halves]
    return [
        b"[" + json.dumps(halves[0], indent=1).encode(),
        b"\n,\r\n" + json.dumps(halves[1], indent=1).encode(),
        b"\n]\n",
    ]


def _gemini(says: Says) -> dict[str, Any]:
    parts: list[Any] = [{"text": says.text}] if says.text else []
    parts += [{"functionCall": {"name": name, "args": arguments}} for _, name, arguments in says.calls]
    counted = {"promptTokenCount": says.tokens["input"], "cachedContentTokenCount": says.tokens["cached"]}
    shown = says.tokens["output"] // 3
    counted |= {"candidatesTokenCount": shown, "thoughtsTokenCount": says.tokens["output"] - shown}
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": counted,
        "modelVersion": "scripted",
    }


def _counted(says: Says) -> Any:
    tokens = says.tokens
    return {
        "inputTokens": tokens["input"] - tokens["cached"],
        "cacheReadInputTokens": tokens["cached"],
        "cacheWriteInputTokens": 0,
        "outputTokens": tokens["output"],
        "totalTokens": tokens["input"] + tokens["output"],
    }


def _converse(says: Says) -> Any:
    blocks: list[Any] = [{"text": says.text}] if says.text else []
    blocks += [{"toolUse": {"toolUseId": call, "name": name, "input": told}} for call, name, told in says.calls]
    stop = "tool_use" if says.calls else "end_turn"
    message = {"role": "assistant", "content": blocks}
    return {"output": {"message": message}, "stopReason": stop, "usage": _counted(says), "metrics": {"latencyMs": 1}}


def _frames(says: Says) -> Iterator[bytes]:
    yield _frame("messageStart", {"role": "assistant"})
    blocks: list[Any] = [{"delta": {"text": says.text}}] if says.text else []
    for call, name, told in says.calls:
        start = {"start": {"toolUse": {"toolUseId": call, "name": name}}, "contentBlockIndex": len(blocks)}
        yield _frame("contentBlockStart", start)
        blocks.append({"delta": {"toolUse": {"input": json.dumps(told)}}})
    for index, block in enumerate(blocks):
        yield _frame("contentBlockDelta", {**block, "contentBlockIndex": index})
        yield _frame("contentBlockStop", {"contentBlockIndex": index})
    yield _frame("messageStop", {"stopReason": "tool_use" if says.calls else "end_turn"})
    yield _frame("metadata", {"usage": _counted(says), "metrics": {"latencyMs": 1}})


def _frame(kind: str, payload: Any) -> bytes:
    body = json.dumps(payload).encode()
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event"))
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    frame = prelude + headers + body
    return frame + struct.pack(">I", zlib.crc32(frame))


@dataclass(slots=True)
class PathUpstream:
    """Answers as `Upstream.other`: by a script, and judges each request by its provider's rules."""

    model: Model
    way: Way
    bodies: list[Any] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    answered: bytes = b""
    """The last answer."""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        raw = await request.read()
        body = json.loads(raw)
        self.raw.append(raw)
        self.bodies.append(body)
        self.paths.append(request.raw_path)
        found = CASES[self.way.format].defects(body)
        self.defects += found
        says = Says("; ".join(found), status=400) if found else self.model(body)
        if says.status != 200:
            self.answered = json.dumps(self._error(says)).encode()
            return web.Response(status=says.status, body=self.answered, content_type="application/json")
        made = pieces(self.way, says)
        self.answered = b"".join(made)
        response = web.StreamResponse(headers={"content-type": self.way.kind, "request-id": "r1"})
        await response.prepare(request)
        for piece in made:
            await response.write(piece)
        await response.write_eof()
        return response

    def _error(self, says: Says) -> Any:
        if self.way.format == "bedrock_converse":
            return {"message": says.text}
        return {"error": {"code": says.status, "message": says.text, "status": "INVALID_ARGUMENT"}}


@dataclass(slots=True)
class PathAgent:
    """An agent that sends its whole history and answers the calls of its tool."""

    way: Way
    base: str
    history: list[Any] = field(default_factory=list)

    def body(self) -> bytes:
        """The next request."""
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
        system = [{"text": "You read logs."}]
        if self.way.format == "gemini_contents":
            declared = [{"functionDeclarations": [{"name": TOOL, "parameters": schema}]}]
            body = {"contents": self.history, "tools": declared, "systemInstruction": {"parts": system}}
            return json.dumps(body).encode()
        tools = [{"toolSpec": {"name": TOOL, "inputSchema": {"json": schema}}}]
        return json.dumps({"messages": self.history, "system": system, "toolConfig": {"tools": tools}}).encode()

    def said(self, text: str) -> None:
        """The user says something."""
        self.history.append({"role": "user", self._content: [{"text": text}]})

    @property
    def _content(self) -> str:
        return "parts" if self.way.format == "gemini_contents" else "content"

    def take(self, says: Says, result: str) -> None:
        """Take what the model said into the history, and answer its call."""
        ((call, name, told),) = says.calls
        if self.way.format == "gemini_contents":
            said: list[Any] = [{"text": says.text}, {"functionCall": {"name": name, "args": told}}]
            answer: Any = {"functionResponse": {"name": name, "response": {"result": result}}}
        else:
            said = [{"text": says.text}, {"toolUse": {"toolUseId": call, "name": name, "input": told}}]
            answer = {"toolResult": {"toolUseId": call, "content": [{"text": result}]}}
        role = "model" if self.way.format == "gemini_contents" else "assistant"
        self.history.append({"role": role, self._content: said})
        self.history.append({"role": "user", self._content: [answer]})

    def ask(self, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Send the history; return status, bytes and headers of the answer."""
        return asyncio.run(post(self.base + self.way.path, self.body(), **headers))


async def post(url: str, body: bytes, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
    """Send a request with a key; return status, bytes and headers of the answer."""
    sent = {"content-type": "application/json", "authorization": "Bearer key", **headers}
    at = URL(url, encoded=True)
    async with aiohttp.ClientSession() as session, session.post(at, data=body, headers=sent) as answer:
        return answer.status, await answer.read(), answer.headers
