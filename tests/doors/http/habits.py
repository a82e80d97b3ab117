"""What agents make of an answer when they send it back: one turn of the model, in each API's own words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.client.provider import Says
from tests.doors.http.agents import TOOL
from tests.doors.http.path_models import WAYS, PathUpstream, post
from tests.doors.http.serving import Proxied
from tests.doors.http.upstream import Model

SEARCH: Final = "search_conversation_history"
BOTH: Final = Says("Step.", [("c1", TOOL, {"n": 1}), ("c2", SEARCH, {"query": "x"})])
"""A call of the agent's and one of the sidecar's."""
ALONE: Final = (Says("", [("c2", SEARCH, {"query": "x"})]), Says("Step.", [("c1", TOOL, {"n": 1})]))
"""The sidecar's call in a turn of its own, which is hidden."""
_SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}}


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn that the agent was given, as it sends it back."""

    text: str | None = "Step."
    """None: it is left out."""
    call: str = "c1"
    name: str = TOOL
    arguments: str = '{"n": 1}'
    without: bool = False
    """Whether the member for the text is left out, not only its value."""
    message: str = ""
    """The id of the stored item that is named in place of the text; empty: none."""
    item: str = ""
    """The same of the call."""


@dataclass(frozen=True, slots=True)
class Api:
    """One provider's API as an agent speaks it."""

    path: str
    history: str
    """The member that holds the history."""
    request: Callable[[Sequence[Any], bool], Any]
    answer_entries: Callable[[Turn], Sequence[Any]]
    asked: Callable[[str], Any]
    result: Callable[[Turn, str], Any]
    spoken: Callable[[str], Any]
    """The model's entry with a text alone."""
    way: str = ""
    """Of those whose path names the model."""

    def exchange(self, here: Proxied, history: Sequence[Any], *, stream: bool) -> bytes:
        """Send a history; return the answer's bytes."""
        way = (
            WAYS[self.way + ("-stream" if self.way == "bedrock" else "-sse") if stream else self.way]
            if self.way
            else None
        )
        path = self.path if way is None else way.path
        body = json.dumps(self.request(history, stream and way is None)).encode()
        status, answer, _ = asyncio.run(post(here.url + path, body, **{"x-prompt-sidecar-run": "habits"}))
        assert 200 == status, answer
        return answer

    def upstream(self, here: Proxied, model: Model, *, stream: bool) -> Callable[[], tuple[list[Any], list[str]]]:
        """Have a model answer; return what gives the bodies that it was sent, and what is wrong with them."""
        if not self.way:
            here.upstream.model = model
            return lambda: (here.upstream.bodies, here.upstream.defects)
        name = self.way + ("-stream" if self.way == "bedrock" else "-sse") if stream else self.way
        there = here.upstream.other = PathUpstream(model, WAYS[name])
        return lambda: (there.bodies, there.defects)

    def entries(self, body: Any) -> list[Any]:
        """The history in a body, without the sidecar's own text."""
        return [each for each in body[self.history] if each.get("role") not in ("system", "developer")]


def _chat_answer(turn: Turn) -> list[Any]:
    content = {} if turn.without else {"content": turn.text}
    function = {"name": turn.name, "arguments": turn.arguments}
    return [
        {"role": "assistant", **content, "tool_calls": [{"id": turn.call, "type": "function", "function": function}]}
    ]


def _responses_answer(turn: Turn) -> list[Any]:
    text: Any = {"type": "output_text", "text": turn.text, "annotations": []}
    message: Any = {"type": "message", "role": "assistant", "content": [text]}
    call: Any = {"type": "function_call", "call_id": turn.call, "name": turn.name, "arguments": turn.arguments}
    if turn.message:
        message = {"type": "item_reference", "id": turn.message}
    if turn.item:
        call = {"type": "item_reference", "id": turn.item}
    return [*([message] if turn.text or turn.message else []), call]


def _messages_answer(turn: Turn) -> list[Any]:
    use = {"type": "tool_use", "id": turn.call, "name": turn.name, "input": json.loads(turn.arguments)}
    return [{"role": "assistant", "content": [*([{"type": "text", "text": turn.text}] if turn.text else []), use]}]


def _gemini_answer(turn: Turn) -> list[Any]:
    call = {"functionCall": {"name": turn.name, "args": json.loads(turn.arguments)}}
    if turn.call != "c1":
        call["functionCall"]["id"] = turn.call
    return [{"role": "model", "parts": [*([{"text": turn.text}] if turn.text else []), call]}]


def _bedrock_answer(turn: Turn) -> list[Any]:
    use = {"toolUse": {"toolUseId": turn.call, "name": turn.name, "input": json.loads(turn.arguments)}}
    return [{"role": "assistant", "content": [*([{"text": turn.text}] if turn.text else []), use]}]


def _gemini_result(turn: Turn, text: str) -> Any:
    named = {"id": turn.call} if turn.call != "c1" else {}
    return {"role": "user", "parts": [{"functionResponse": {**named, "name": turn.name, "response": {"output": text}}}]}


def _function(**more: Any) -> Any:
    return {"type": "function", **more}


APIS: Final[Mapping[str, Api]] = {
    "chat": Api(
        "/v1/chat/completions",
        "messages",
        lambda history, stream: {
            "model": "scripted",
            "messages": history,
            "stream": stream,
            "tools": [_function(function={"name": TOOL, "parameters": _SCHEMA})],
        },
        _chat_answer,
        lambda text: {"role": "user", "content": text},
        lambda turn, text: {"role": "tool", "tool_call_id": turn.call, "content": text},
        lambda text: {"role": "assistant", "content": text},
    ),
    "responses": Api(
        "/v1/responses",
        "input",
        lambda history, stream: {
            "model": "scripted",
            "input": history,
            "stream": stream,
            "tools": [_function(name=TOOL, parameters=_SCHEMA, strict=False)],
        },
        _responses_answer,
        lambda text: {"role": "user", "content": text},
        lambda turn, text: {"type": "function_call_output", "call_id": turn.call, "output": text},
        lambda text: {"role": "assistant", "content": text},
    ),
    "messages": Api(
        "/v1/messages",
        "messages",
        lambda history, stream: {
            "model": "scripted",
            "max_tokens": 300,
            "messages": history,
            "stream": stream,
            "tools": [{"name": TOOL, "input_schema": _SCHEMA}],
        },
        _messages_answer,
        lambda text: {"role": "user", "content": text},
        lambda turn, text: {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": turn.call, "content": text}],
        },
        lambda text: {"role": "assistant", "content": [{"type": "text", "text": text}]},
    ),
    "gemini": Api(
        "",
        "contents",
        lambda history, _: {
            "contents": history,
            "tools": [{"functionDeclarations": [{"name": TOOL, "parameters": _SCHEMA}]}],
        },
        _gemini_answer,
        lambda text: {"role": "user", "parts": [{"text": text}]},
        _gemini_result,
        lambda text: {"role": "model", "parts": [{"text": text}]},
        way="gemini",
    ),
    "bedrock": Api(
        "",
        "messages",
        lambda history, _: {
            "messages": history,
            "toolConfig": {"tools": [{"toolSpec": {"name": TOOL, "inputSchema": {"json": _SCHEMA}}}]},
        },
        _bedrock_answer,
        lambda text: {"role": "user", "content": [{"text": text}]},
        lambda turn, text: {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": turn.call, "content": [{"text": text}]}}],
        },
        lambda text: {"role": "assistant", "content": [{"text": text}]},
        way="bedrock",
    ),
}

_GIVEN: Final = Turn()
HABITS: Final[Mapping[str, Turn]] = {
    "as given": _GIVEN,
    "no text": replace(_GIVEN, text=None),
    "empty text": replace(_GIVEN, text=""),
    "no member for the text": replace(_GIVEN, text=None, without=True),
    "shorter text": replace(_GIVEN, text="Step"),
    "another text": replace(_GIVEN, text="I go on."),
    "a call id of its own": replace(_GIVEN, call="mine1"),
    "a call id of its own, and no text": replace(_GIVEN, call="mine1", text=None),
    "arguments written anew": replace(_GIVEN, arguments='{"n":1}'),
}
"""How agents send an answer back."""
REFERENCES: Final[Mapping[str, Turn]] = {
    "a reference to the message": replace(_GIVEN, message="m{}"),
    "references to both": replace(_GIVEN, message="m{}", item="fc1"),
    "a reference to the call": replace(_GIVEN, text=None, item="fc1"),
}
"""The same where the provider stores items, by their ids; the number of the answer is put in."""
