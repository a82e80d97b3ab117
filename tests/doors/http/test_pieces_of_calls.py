"""Streams that cut calls and characters in other ways than OpenAI does, through a real door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from aiohttp import web

from tests.client.calls_in_pieces import OURS, WAYS, check
from tests.doors.http.agents import FORMATS, TOOL
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_passing import PATHS, TOOLS, _post
from tests.doors.http.upstream import scripted

HEAD: Final = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}


def chunk(delta: Any, finish: str | None = None) -> bytes:
    """A chunk of a chat completion."""
    one = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({**HEAD, "choices": [one]}).encode() + b"\n\n"


def call(call_id: Any, name: Any, arguments: str, index: Any = 0) -> bytes:
    """A chunk with a piece of a call."""
    return chunk({"tool_calls": [piece(call_id, name, arguments, index)]})


def piece(call_id: Any, name: Any, arguments: str, index: Any) -> Any:
    """A piece of a call, without the members that it does not give."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    given = {"index": index, "function": function}
    return given if call_id is None else {**given, "id": call_id, "type": "function"}


def ends(finish: str = "tool_calls") -> list[bytes]:
    """The end of a stream."""
    return [chunk({}, finish), b"data: [DONE]\n\n"]


DONE: Final = [chunk({"content": "Done."}), *ends("stop")]


def asked(here: Proxied, format: str, *answers: Sequence[bytes]) -> tuple[bytes, list[Any]]:
    """Ask through a door; return what the agent got, and what the provider was sent."""
    left, bodies = list(answers), []

    async def other(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in left.pop(0):
            await response.write(event)
        return response

    here.upstream.other = other
    messages = [{"role": "user", "content": "Which build failed?"}]
    body = {"model": "scripted", "stream": True, "tools": [TOOLS[format]], "store": False}
    body["input" if format == "openai_responses" else "messages"] = messages
    status, answer, _ = asyncio.run(_post(f"{here.url}/v2/{PATHS[format]}", json.dumps(body).encode()))
    assert 200 == status
    return answer, bodies


@pytest.mark.parametrize("way", WAYS)
def test_our_calls_are_distinguished(way: str) -> None:
    """The agent sees none."""
    pieces = [chunk({"tool_calls": [piece(*each) for each in one]}) for one in WAYS[way]]
    with proxied(scripted(), window=60_000) as here:
        answer, bodies = asked(here, "openai_chat", [*pieces, *ends()], DONE)

    assert b"Done." in answer
    assert OURS.encode() not in answer
    check(bodies[1])


def test_the_agents_calls_with_one_index_stay_as_they_are() -> None:
    """Byte for byte: it is the agent's to tell them apart."""
    events = [call("a", TOOL, "{}"), call("b", TOOL, "{}"), *ends()]
    with proxied(scripted(), window=60_000) as here:
        answer, _ = asked(here, "openai_chat", events)

    assert b"".join(events) == answer


def test_a_call_of_ours_among_the_agents_with_one_index() -> None:
    """It is left out, and the agent's behind it has an index of its own."""
    events = [call("a", TOOL, '{"n":1}'), call("o", OURS, "{}"), call("b", TOOL, '{"n":2}'), *ends()]
    with proxied(scripted(), window=60_000) as here:
        answer, _ = asked(here, "openai_chat", events)

    chunks = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
    pieces = [each for one in chunks for each in one["choices"][0]["delta"].get("tool_calls", [])]
    assert [(0, "a", '{"n":1}'), (1, "b", '{"n":2}')] == [
        (each["index"], each["id"], each["function"]["arguments"]) for each in pieces
    ]


def _cut(format: str, first: str, second: str) -> list[bytes]:
    """A hidden call whose query is cut between two UTF-16 units, as the provider streams it."""
    texts = [json.dumps('{"query":"')[:-1] + first + '"', '"' + second + json.dumps('"}')[1:]]
    if format == "openai_chat":
        begun = call("a", OURS, "")
        return [begun, *(call(None, None, "@").replace(b'"@"', text.encode()) for text in texts), *ends()]
    if format == "anthropic_messages":
        block = {"type": "tool_use", "id": "a", "name": OURS, "input": {}}
        events: list[Any] = [
            {"type": "message_start", "message": {"usage": {}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            *({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "@"}},)
            * 2,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
            {"type": "message_stop"},
        ]
    else:
        item = {"type": "function_call", "id": "i", "call_id": "a", "name": OURS}
        place = {"output_index": 0, "item_id": "i"}
        whole = {**item, "arguments": "@@"}
        response = {"id": "r", "status": "completed", "output": [whole]}
        events = [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
            *({"type": "response.function_call_arguments.delta", **place, "delta": "@"},) * 2,
            {"type": "response.function_call_arguments.done", **place, "arguments": "@@"},
            {"type": "response.output_item.done", "output_index": 0, "item": whole},
            {"type": "response.completed", "response": response},
        ]
    left = list(texts)
    raw = []
    for event in events:
        text = json.dumps(event)
        text = text.replace('"@@"', texts[0][:-1] + texts[1][1:])
        text = text.replace('"@"', left.pop(0)) if '"@"' in text else text
        raw.append(b"data: " + text.encode() + b"\n\n")
    return raw


def _says(format: str) -> list[bytes]:
    if format == "openai_chat":
        return DONE
    if format == "anthropic_messages":
        events: list[Any] = [
            {"type": "message_start", "message": {"usage": {}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Done."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}},
            {"type": "message_stop"},
        ]
    else:
        part = {"type": "output_text", "text": "Done.", "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        events = [
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}},
        ]
    return [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("first", "second", "query"),
    [("\\ud83d", "\\ude00", "\U0001f600"), ("\\ud83d", "x", "\ufffdx"), ("x", "\\ude00", "x\ufffd")],
    ids=["paired", "first alone", "second alone"],
)
def test_characters_of_our_calls_may_be_cut(format: str, first: str, second: str, query: str) -> None:
    """Nothing of the call reaches the agent, and the model has what it wrote; a lone surrogate is U+FFFD."""
    with proxied(scripted(), window=60_000) as here:
        answer, bodies = asked(here, format, _cut(format, first, second), _says(format))

    assert b"Done." in answer
    assert OURS.encode() not in answer
    assert b"ud83d" not in answer
    assert b"ude00" not in answer
    assert 2 == len(bodies)
    found = json.dumps(bodies[1], ensure_ascii=False)
    assert query in found
