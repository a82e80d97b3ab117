"""Gemini and Bedrock behind the door: a scripted provider's answers, and agents of a few lines on plain HTTP.

Both name the model in the path. A whole answer is JSON; Gemini streams server-sent events or one array in pieces,
Bedrock Amazon's event stream, whose frames have two checksums each.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web
from yarl import URL

from tests.client.provider import Says
from tests.conformance.converse_thinking import ConverseThinking
from tests.conformance.table import CASES
from tests.conformance.thought_signatures import ThoughtSignatures
from tests.doors.http.agents import TOOL
from tests.doors.http.upstream import Model


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


def entry(way: Way, says: Says) -> dict[str, Any]:
    """What a turn adds to the history. Gemini's calls have no ids, as those of its older models."""
    parts: list[Any] = [*says.blocks, *([{"text": says.text}] if says.text else [])]
    if way.format == "gemini_contents":
        parts += [{"functionCall": {"name": name, "args": arguments}} for _, name, arguments in says.calls]
        return {"role": "model", "parts": parts}
    parts += [{"toolUse": {"toolUseId": call, "name": name, "input": given}} for call, name, given in says.calls]
    return {"role": "assistant", "content": parts}


def pieces(way: Way, says: Says, made: dict[str, Any] | None = None) -> list[bytes]:
    """An answer of the provider, as it sends it; `made` is its entry, where it is not that of `says`."""
    made = entry(way, says) if made is None else made
    if way.format == "bedrock_converse":
        whole = not way.path.endswith("stream")
        return [json.dumps(_converse(says, made)).encode()] if whole else list(_frames(says, made["content"]))
    if "stream" not in way.path:
        return [json.dumps(_gemini(says, made["parts"]), indent=1).encode()]
    answers = [_gemini(says, [part]) for part in _halved(made["parts"])]
    for each in answers[:-1]:
        del each["candidates"][0]["finishReason"]
    if way.kind == "text/event-stream":
        return [f"data: {json.dumps(each)}\r\n\r\n".encode() for each in answers]
    texts = [json.dumps(each, indent=1).encode() for each in answers]
    return [b"[" + texts[0], *(b"\n,\r\n" + each for each in texts[1:]), b"\n]\n"]


def _halved(parts: list[Any]) -> Iterator[Any]:
    """The parts by which a stream gives these: a text comes in two, and a last one is empty."""
    for part in parts:
        if part.keys() == {"text"} and len(part["text"]) > 5:
            yield {"text": part["text"][:5]}
            yield {"text": part["text"][5:]}
        else:
            yield part
    yield {"text": ""}


def _gemini(says: Says, parts: list[Any]) -> dict[str, Any]:
    counted = {"promptTokenCount": says.tokens["input"], "cachedContentTokenCount": says.tokens["cached"]}
    shown = says.tokens["output"] // 3
    counted |= {"candidatesTokenCount": shown, "thoughtsTokenCount": says.tokens["output"] - shown}
    counted |= {"totalTokenCount": says.tokens["input"] + says.tokens["output"]}
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": counted,
        "modelVersion": "scripted",
        "responseId": f"answer-{says.text[:8]}-{len(says.calls)}",
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


def _converse(says: Says, message: Any) -> Any:
    stop = "tool_use" if says.calls else "end_turn"
    return {"output": {"message": message}, "stopReason": stop, "usage": _counted(says), "metrics": {"latencyMs": 1}}


def _frames(says: Says, blocks: list[Any]) -> Iterator[bytes]:
    yield _frame("messageStart", {"role": "assistant"})
    for index, block in enumerate(blocks):
        where = {"contentBlockIndex": index, "p": "abcdefgh"}
        if use := block.get("toolUse"):
            start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
            yield _frame("contentBlockStart", {"start": start, **where})
        for delta in _deltas(block):
            yield _frame("contentBlockDelta", {"delta": delta, **where})
        yield _frame("contentBlockStop", where)
    yield _frame("messageStop", {"stopReason": "tool_use" if says.calls else "end_turn"})
    yield _frame("metadata", {"usage": _counted(says), "metrics": {"latencyMs": 1}})


def _deltas(block: Any) -> list[Any]:
    if "text" in block:
        return [{"text": piece} for piece in _in_sevens(block["text"])]
    if "toolUse" in block:
        text = json.dumps(block["toolUse"]["input"], ensure_ascii=False)
        return [{"toolUse": {"input": piece}} for piece in _in_sevens(text)]
    reasoning = block["reasoningContent"]["reasoningText"]
    return [
        *({"reasoningContent": {"text": piece}} for piece in _in_sevens(reasoning["text"])),
        {"reasoningContent": {"signature": reasoning["signature"]}},
    ]


def _in_sevens(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


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
    provider: ThoughtSignatures | ConverseThinking | None = None
    """Signs what the model says, and refuses requests that do not bring it back; None: nothing is signed."""

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
        answer = entry(self.way, says)
        if self.provider is not None:
            reply = self.provider.ask(raw, [json.dumps(answer).encode()])
            self.defects += [str(each) for each in reply.refusals]
            answer = json.loads(reply.messages[0])
        made = pieces(self.way, says, answer)
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
    choice: Any = None
    """Which tools it lets the model choose, in the provider's words."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """The next request."""
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
        system = [{"text": "You read logs."}]
        if self.way.format == "gemini_contents":
            declared = [{"functionDeclarations": [{"name": TOOL, "parameters": schema}]}]
            body = {"contents": self.history, "tools": declared, "systemInstruction": {"parts": system}}
            return json.dumps(body | ({"toolConfig": self.choice} if self.choice else {})).encode()
        tools = {"tools": [{"toolSpec": {"name": TOOL, "inputSchema": {"json": schema}}}], **(self.choice or {})}
        return json.dumps({"messages": self.history, "system": system, "toolConfig": tools}).encode()

    def add_user_text(self, text: str) -> None:
        """The user says something."""
        self.history.append({"role": "user", self._content: [{"text": text}]})

    @property
    def _content(self) -> str:
        return "parts" if self.way.format == "gemini_contents" else "content"

    def take(self, says: Says, result: str) -> None:
        """Take what the model said into the history, and answer its call."""
        ((call, name, arguments),) = says.calls
        if self.way.format == "gemini_contents":
            parts: list[Any] = [{"text": says.text}, {"functionCall": {"name": name, "args": arguments}}]
            answer: Any = {"functionResponse": {"name": name, "response": {"result": result}}}
        else:
            parts = [{"text": says.text}, {"toolUse": {"toolUseId": call, "name": name, "input": arguments}}]
            answer = {"toolResult": {"toolUseId": call, "content": [{"text": result}]}}
        role = "model" if self.way.format == "gemini_contents" else "assistant"
        self.history.append({"role": role, self._content: parts})
        self.history.append({"role": "user", self._content: [answer]})

    def turn(self, answer: Callable[[Mapping[str, Any]], str]) -> Heard:
        """Ask, take what is heard into the history, and answer each of its calls."""
        status, body, headers = self.ask()
        assert 200 == status, body
        heard = hear(self.way, body, headers)
        self.history += heard.entries
        if self.way.format == "gemini_contents":
            results: list[Any] = [
                {"functionResponse": {"name": name, "response": {"result": answer(arguments)}}}
                for _, name, arguments in heard.calls
            ]
        else:
            results = [
                {"toolResult": {"toolUseId": call, "content": [{"text": answer(arguments)}]}}
                for call, _, arguments in heard.calls
            ]
        if results:
            self.history.append({"role": "user", self._content: results})
        return heard

    def ask(self, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Send the history; return status, bytes and headers of the answer."""
        return asyncio.run(post(self.base + self.way.path, self.body(), **self.headers, **headers))


async def post(url: str, body: bytes, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
    """Send a request with a key; return status, bytes and headers of the answer."""
    sent = {"content-type": "application/json", "authorization": "Bearer key", **headers}
    at = URL(url, encoded=True)
    async with aiohttp.ClientSession() as session, session.post(at, data=body, headers=sent) as answer:
        return answer.status, await answer.read(), answer.headers


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer as an agent sees it."""

    entries: list[Any]
    """What it adds to the history: of Gemini's stream a content for each piece, as Google's SDKs keep them."""
    text: str
    calls: list[tuple[str, str, Any]]
    usage: Any
    """The last that the answer tells."""
    headers: Mapping[str, str] = field(default_factory=dict)


def hear(way: Way, body: bytes, headers: Mapping[str, str]) -> Heard:
    """Read an answer."""
    if way.format == "gemini_contents":
        events = body.replace(b"\r\n", b"\n").split(b"\n\n") if way.kind == "text/event-stream" else [body]
        data = [json.loads(each.removeprefix(b"data: ")) for each in events if each]
        entries = [each["candidates"][0]["content"] for each in data]
        parts = [part for each in entries for part in each["parts"]]
        calls = [
            ("", each["functionCall"]["name"], each["functionCall"]["args"]) for each in parts if "functionCall" in each
        ]
        kept = [each for each in entries if each["parts"] != [{"text": ""}]]
        return Heard(kept, _text_of(parts), calls, data[-1]["usageMetadata"], headers)
    if way.path.endswith("stream"):
        blocks, usage = _assembled(list(unframed(body)))
    else:
        answer = json.loads(body)
        blocks, usage = answer["output"]["message"]["content"], answer["usage"]
    uses = [each["toolUse"] for each in blocks if "toolUse" in each]
    calls = [(each["toolUseId"], each["name"], each["input"]) for each in uses]
    return Heard([{"role": "assistant", "content": blocks}], _text_of(blocks), calls, usage, headers)


def _text_of(parts: list[Any]) -> str:
    return "".join(each.get("text", "") for each in parts if not each.get("thought"))


def unframed(body: bytes) -> Iterator[tuple[str, Any]]:
    """The names and payloads of frames, whose checksums are right."""
    at = 0
    while at < len(body):
        total, size = struct.unpack(">II", body[at : at + 8])
        frame = body[at : at + total]
        assert zlib.crc32(frame[:8]) == struct.unpack(">I", frame[8:12])[0]
        assert zlib.crc32(frame[:-4]) == struct.unpack(">I", frame[-4:])[0]
        kind = re.search(rb":(?:event|exception)-type\x07..([A-Za-z]+)", frame[12 : 12 + size], re.DOTALL)
        assert kind is not None
        yield kind[1].decode(), json.loads(frame[12 + size : -4])
        at += total


def _assembled(frames: list[tuple[str, Any]]) -> tuple[list[Any], Any]:
    """The blocks of a stream, and its usage. Each block ends before the next begins, and all have the next index."""
    blocks: list[Any] = []
    inputs: dict[int, str] = {}
    assert ["messageStart", "messageStop", "metadata"] == [name for name, _ in frames if not name.startswith("content")]
    for name, payload in frames:
        if not name.startswith("content"):
            continue
        index = payload["contentBlockIndex"]
        if index == len(blocks):
            blocks.append({})
        assert index == len(blocks) - 1, "blocks are not numbered one after another"
        block = blocks[index]
        if name == "contentBlockStart":
            block["toolUse"] = {**payload["start"]["toolUse"]}
        elif name == "contentBlockDelta" and "toolUse" in payload["delta"]:
            inputs[index] = inputs.get(index, "") + payload["delta"]["toolUse"]["input"]
        elif name == "contentBlockDelta" and "reasoningContent" in payload["delta"]:
            thought = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})["reasoningText"]
            for kind, piece in payload["delta"]["reasoningContent"].items():
                thought[kind] = thought.get(kind, "") + piece
        elif name == "contentBlockDelta":
            block["text"] = block.get("text", "") + payload["delta"]["text"]
    for index, text in inputs.items():
        blocks[index]["toolUse"]["input"] = json.loads(text)
    return blocks, frames[-1][1]["usage"]
