"""Under `enforce` no path of a provider's lets a value out, wherever in the body it stands.

A table of paths and places, each sent through a real door with a made-up key of its own. Names of members are those of
the providers' pages: platform.openai.com/docs/api-reference, docs.claude.com/en/api, ai.google.dev/api and
docs.aws.amazon.com/bedrock/latest/APIReference.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import aiohttp
import pytest

from tests.doors.http.serving import Proxied
from tests.doors.http.test_unread import There, masking

LETTERS: Final = "aK7mQ2xW9pLz4TnB6vRc8YdH3sFj5GeUiXo1"
MASK: Final = "⟦github_token:"
Make = Callable[[str], Any]


def key_of(number: int) -> str:
    """A made-up key, another for each case."""
    turn = number % len(LETTERS)
    return "ghp_" + LETTERS[turn:] + LETTERS[:turn]


def packed(text: str) -> str:
    """A text in base64."""
    return base64.b64encode(f"the first line\nTOKEN={text}\n".encode()).decode()


def of_url(text: str) -> str:
    """A text as an address that is the file itself."""
    return "data:text/plain;base64," + packed(text)


# -- places ----------------------------------------------------------------------------------------------------------


def chat(**more: Make) -> Make:
    """A prompt of chat completions with more members."""
    return lambda key: {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        **{name: make(key) for name, make in more.items()},
    }


def spoken(make: Make, role: str = "user", **more: str) -> Make:
    """A prompt of chat completions or messages whose message has this content."""
    return lambda key: {"model": "m", "max_tokens": 9, "messages": [{"role": role, "content": make(key), **more}]}


def part(make: Make) -> Make:
    """The same with one part."""
    return spoken(lambda key: [make(key)])


def called(make: Make) -> Make:
    """A history of chat completions with a call and its result."""
    return lambda key: {"model": "m", "messages": [{"role": "user", "content": "hi"}, *make(key)]}


def input_(make: Make, **more: Make) -> Make:
    """A prompt of responses with these items."""
    return lambda key: {
        "model": "m",
        "input": [{"role": "user", "content": [make(key)]}],
        **{name: value(key) for name, value in more.items()},
    }


def contents(make: Make, **more: Make) -> Make:
    """A prompt of Gemini with this part."""
    return lambda key: {
        "contents": [{"role": "user", "parts": [{"text": "hi"}, make(key)]}],
        **{name: value(key) for name, value in more.items()},
    }


def converse(make: Make, **more: Make) -> Make:
    """A prompt of Bedrock with this block."""
    return lambda key: {
        "messages": [{"role": "user", "content": [{"text": "hi"}, make(key)]}],
        **{name: value(key) for name, value in more.items()},
    }


def text(key: str) -> str:
    """A text with the key."""
    return f"deploy with {key}, please"


def typed(kind: str, **members: Make) -> Make:
    """A part of a type."""
    return lambda key: {"type": kind, **{name: make(key) for name, make in members.items()}}


def member(**members: Make) -> Make:
    """An object."""
    return lambda key: {name: make(key) for name, make in members.items()}


def const(value: Any) -> Make:
    """A value without the key."""
    return lambda _: value


def bare(key: str) -> str:
    """The key alone."""
    return key


SAYS: Final = const("hi")
IN_TEXT: Final = typed("text", text=SAYS)
SCHEMA: Final = member(
    type=const("object"), properties=member(a=member(type=const("string"), description=text, default=bare))
)
CALL: Final = called(
    lambda key: [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": {"b": key}})}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]
)
RESULT: Final = called(
    lambda key: [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": text(key)},
    ]
)
CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
GEMINI: Final = "/v1beta/models/g:"
BEDROCK: Final = "/model/m/"
SOURCE: Final = member(type=const("base64"), media_type=const("text/plain"), data=packed)
LOCATION: Final = typed("char_location", cited_text=text, document_title=SAYS, document_index=const(0))
TABLE: Final[tuple[tuple[str, str, Make], ...]] = (
    (CHAT, "system", spoken(text, "system")),
    (CHAT, "user", spoken(text)),
    (CHAT, "text part", part(typed("text", text=text))),
    (CHAT, "result", RESULT),
    (CHAT, "arguments", CALL),
    (CHAT, "name", lambda key: {"model": "m", "messages": [{"role": "user", "name": key, "content": "hi"}]}),
    (CHAT, "prediction", chat(prediction=typed("content", content=text))),
    (
        CHAT,
        "prediction in parts",
        chat(prediction=typed("content", content=lambda key: [{"type": "text", "text": key}])),
    ),
    (CHAT, "metadata", chat(metadata=member(id=bare))),
    (CHAT, "stop", chat(stop=lambda key: ["END", key])),
    (CHAT, "one stop", chat(stop=bare)),
    (CHAT, "user's name", chat(user=bare)),
    (CHAT, "schema", chat(response_format=typed("json_schema", json_schema=member(name=SAYS, schema=SCHEMA)))),
    (CHAT, "documents", chat(documents=lambda key: [{"title": "t", "id": "d", "data": {"text": text(key)}}])),
    (CHAT, "file", part(typed("file", file=member(filename=SAYS, file_data=of_url)))),
    (CHAT, "file without a prefix", part(typed("file", file=member(filename=SAYS, file_data=packed)))),
    (CHAT, "file's name", part(typed("file", file=member(filename=bare, file_id=SAYS)))),
    (CHAT, "image that is text", part(typed("image_url", image_url=member(url=of_url)))),
    (CHAT, "future part", part(typed("future_part", payload=text))),
    (CHAT, "future part's name", part(typed("future_part", name=bare, data=text, url=text, id=bare))),
    (CHAT, "future member", chat(future=member(deep=lambda key: [{"name": key}]))),
    (CHAT, "future text", chat(future=text)),
    (CHAT, "refusal", spoken(text, "assistant")),
    (RESPONSES, "instructions", input_(typed("input_text", text=SAYS), instructions=text)),
    (RESPONSES, "input", lambda key: {"model": "m", "input": text(key)}),
    (RESPONSES, "part", input_(typed("input_text", text=text))),
    (RESPONSES, "variables", input_(typed("input_text", text=SAYS), prompt=member(id=SAYS, variables=member(x=text)))),
    (RESPONSES, "variable named id", input_(typed("input_text", text=SAYS), prompt=member(variables=member(id=bare)))),
    (
        RESPONSES,
        "variable that is a file",
        input_(
            typed("input_text", text=SAYS),
            prompt=member(variables=member(x=typed("input_file", filename=SAYS, file_data=of_url))),
        ),
    ),
    (RESPONSES, "file", input_(typed("input_file", filename=SAYS, file_data=of_url))),
    (RESPONSES, "file's name", input_(typed("input_file", filename=bare, file_id=SAYS))),
    (
        RESPONSES,
        "schema",
        input_(typed("input_text", text=SAYS), text=member(format=typed("json_schema", schema=SCHEMA))),
    ),
    (RESPONSES, "metadata", input_(typed("input_text", text=SAYS), metadata=member(name=text))),
    (
        RESPONSES,
        "output",
        lambda key: {"input": [{"type": "function_call_output", "call_id": "c", "output": text(key)}]},
    ),
    (RESPONSES, "future item", lambda key: {"input": [{"type": "future_item", "name": key, "status": key}]}),
    (RESPONSES, "stored history", lambda key: {"previous_response_id": "r", "input": "hi", "metadata": {"a": key}}),
    (RESPONSES + "/compact", "input", input_(typed("input_text", text=text))),
    (RESPONSES + "/input_tokens", "input", input_(typed("input_text", text=text))),
    (
        RESPONSES + "/input_tokens",
        "variables",
        input_(typed("input_text", text=SAYS), prompt=member(variables=member(x=bare))),
    ),
    (MESSAGES, "system", lambda key: {"system": text(key), **spoken(SAYS)(key)}),
    (MESSAGES, "text", part(typed("text", text=text))),
    (MESSAGES, "document", part(typed("document", source=SOURCE))),
    (
        MESSAGES,
        "document in plain",
        part(typed("document", source=typed("text", media_type=const("text/plain"), data=text))),
    ),
    (MESSAGES, "title", part(typed("document", title=text, context=SAYS, source=typed("text", data=SAYS)))),
    (MESSAGES, "context", part(typed("document", title=SAYS, context=text, source=typed("text", data=SAYS)))),
    (MESSAGES, "citation", part(typed("text", text=SAYS, citations=lambda key: [LOCATION(key)]))),
    (
        MESSAGES,
        "search result",
        part(typed("search_result", source=SAYS, title=text, content=lambda key: [IN_TEXT(key)])),
    ),
    (
        MESSAGES,
        "result",
        part(typed("tool_result", tool_use_id=SAYS, content=lambda key: [typed("text", text=text)(key)])),
    ),
    (MESSAGES, "input", part(typed("tool_use", id=SAYS, name=SAYS, input=member(name=bare)))),
    (MESSAGES, "stop", lambda key: {"stop_sequences": [key], **spoken(SAYS)(key)}),
    (MESSAGES, "metadata", lambda key: {"metadata": {"user_id": key}, **spoken(SAYS)(key)}),
    (MESSAGES, "future part", part(typed("future_part", source=typed("x", data=text), name=bare))),
    (MESSAGES + "/count_tokens", "text", part(typed("text", text=text))),
    (MESSAGES + "/batches", "text", lambda key: {"requests": [{"custom_id": "1", "params": spoken(text)(key)}]}),
    (MESSAGES + "/batches", "custom id", lambda key: {"requests": [{"custom_id": key, "params": spoken(SAYS)(key)}]}),
    (GEMINI + "generateContent", "text", contents(member(text=text))),
    (
        GEMINI + "generateContent",
        "system",
        contents(member(text=SAYS), systemInstruction=member(parts=member(text=text))),
    ),
    (
        GEMINI + "generateContent",
        "file",
        contents(member(inlineData=member(mimeType=const("text/plain"), data=packed))),
    ),
    (
        GEMINI + "generateContent",
        "file of JSON",
        contents(member(inlineData=member(mimeType=const("application/json"), data=packed))),
    ),
    (
        GEMINI + "generateContent",
        "file's name",
        contents(member(inlineData=member(displayName=bare, mimeType=const("image/png"), data=const("iVBO")))),
    ),
    (
        GEMINI + "generateContent",
        "stop",
        contents(member(text=SAYS), generationConfig=member(stopSequences=lambda key: [key])),
    ),
    (GEMINI + "generateContent", "schema", contents(member(text=SAYS), generationConfig=member(responseSchema=SCHEMA))),
    (GEMINI + "generateContent", "labels", contents(member(text=SAYS), labels=member(id=bare))),
    (GEMINI + "generateContent", "future part", contents(member(futurePart=member(name=bare, data=text)))),
    (
        GEMINI + "streamGenerateContent",
        "result",
        contents(member(functionResponse=member(name=SAYS, response=member(id=bare)))),
    ),
    (GEMINI + "countTokens", "text", contents(member(text=text))),
    (GEMINI + "countTokens", "whole request", lambda key: {"generateContentRequest": contents(member(text=text))(key)}),
    (GEMINI + "embedContent", "text", lambda key: {"content": {"parts": [{"text": text(key)}]}}),
    (
        GEMINI + "batchGenerateContent",
        "text",
        lambda key: {"batch": {"input_config": {"requests": [contents(member(text=text))(key)]}}},
    ),
    (BEDROCK + "converse", "text", converse(member(text=text))),
    (BEDROCK + "converse", "system", converse(member(text=SAYS), system=lambda key: [{"text": key}])),
    (
        BEDROCK + "converse",
        "document",
        converse(member(document=member(name=SAYS, format=const("txt"), source=member(bytes=packed)))),
    ),
    (BEDROCK + "converse", "document in plain", converse(member(document=member(name=SAYS, source=member(text=text))))),
    (
        BEDROCK + "converse",
        "context",
        converse(member(document=member(name=SAYS, context=text, source=member(text=SAYS)))),
    ),
    (BEDROCK + "converse", "guarded", converse(member(guardContent=member(text=member(text=text))))),
    (BEDROCK + "converse", "variables", converse(member(text=SAYS), promptVariables=member(x=member(text=text)))),
    (BEDROCK + "converse", "metadata", converse(member(text=SAYS), requestMetadata=member(name=bare))),
    (
        BEDROCK + "converse",
        "model's own members",
        converse(member(text=SAYS), additionalModelRequestFields=member(id=bare)),
    ),
    (
        BEDROCK + "converse-stream",
        "result",
        converse(member(toolResult=member(toolUseId=SAYS, content=lambda key: [{"json": {"id": key}}]))),
    ),
    (
        BEDROCK + "converse-stream",
        "future block",
        converse(member(futureBlock=member(name=bare, source=member(bytes=packed)))),
    ),
    (BEDROCK + "invoke", "text", spoken(text)),
    (BEDROCK + "count-tokens", "text", lambda key: {"input": {"converse": converse(member(text=text))(key)}}),
    ("/v1/completions", "prompt", member(model=SAYS, prompt=text, suffix=SAYS)),
    ("/v1/completions", "suffix", member(model=SAYS, prompt=SAYS, suffix=text)),
    ("/v1/embeddings", "input", member(model=SAYS, input=lambda key: ["a", text(key)])),
    ("/v1/moderations", "input", member(input=lambda key: [{"type": "text", "text": key}])),
    ("/v1/batches", "metadata", member(input_file_id=SAYS, metadata=member(name=bare))),
    ("/v1/images/generations", "prompt", member(prompt=text)),
    ("/v1/audio/speech", "input", member(input=text, instructions=SAYS)),
    ("/v1/vector_stores", "name", member(name=bare)),
    ("/v1/vector_stores/v/search", "query", member(query=text)),
    ("/v1/conversations", "items", member(items=lambda key: [{"type": "message", "role": "user", "content": key}])),
    ("/v1/rerank", "documents", member(query=SAYS, documents=lambda key: [text(key)])),
    ("/v9/not/known", "file", member(files=lambda key: [{"file_data": of_url(key)}])),
)
"""A path, a place in the body, and the body with a key there."""
OBSERVED: Final[tuple[tuple[str, str, Make], ...]] = (
    (CHAT, "tool", chat(tools=lambda key: [{"type": "function", "function": {"name": "f", "description": text(key)}}])),
    (
        MESSAGES,
        "server",
        lambda key: {"mcp_servers": [{"type": "url", "authorization_token": key}], **spoken(SAYS)(key)},
    ),
    (
        GEMINI + "generateContent",
        "tool",
        contents(member(text=SAYS), tools=lambda key: [{"functionDeclarations": [{"name": "f", "description": key}]}]),
    ),
    (
        BEDROCK + "converse",
        "tool",
        converse(
            member(text=SAYS), toolConfig=member(tools=lambda key: [{"toolSpec": {"name": "f", "description": key}}])
        ),
    ),
    (
        CHAT,
        "address",
        part(typed("image_url", image_url=member(url=lambda key: f"https://img.example/a.png?token={key}"))),
    ),
)
"""What the provider acts on: a credential of its tools, an address that it fetches. It goes on, and is reported."""
FORMS: Final[tuple[tuple[str, bytes, str], ...]] = (
    (
        "/v1/files",
        b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n%s\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
    ),
    (
        "/v1/images/edits",
        b'--b\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n%s\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
    ),
    ("/v1/audio/transcriptions", b"--b\r\n\r\n%s\r\n--b--\r\n", "multipart/form-data; boundary=b"),
    ("/v1/uploads/u/parts", b"%s", "application/octet-stream"),
    ("/upload/v1beta/files", b"%s", "text/plain"),
    ("/model/m/invoke", b"a=%s&b=c", "application/x-www-form-urlencoded"),
)
"""What is not JSON: it is refused, with its reason."""
FRAMES: Final[tuple[Make, ...]] = (
    typed("session.update", session=member(instructions=text)),
    typed("conversation.item.create", item=typed("message", content=lambda key: [{"type": "input_text", "text": key}])),
    typed("conversation.item.create", item=typed("function_call_output", call_id=SAYS, output=text)),
    typed("response.create", response=member(instructions=text, metadata=member(id=bare))),
    member(setup=member(systemInstruction=member(parts=lambda key: [{"text": key}]))),
    member(clientContent=member(turns=lambda key: [{"role": "user", "parts": [{"text": key}]}])),
    member(toolResponse=member(functionResponses=lambda key: [{"id": "1", "response": {"output": key}}])),
    member(realtimeInput=member(text=text)),
    typed("future", anything=lambda key: [[{"name": key}]]),
    typed("input_file", file_data=of_url),
)
"""Messages of WebSockets: of OpenAI's realtime API and of Gemini's live API."""
NUMBERS: Final = count()


@dataclass(frozen=True, slots=True)
class Sending:
    """One door for all cases."""

    here: Proxied
    there: There
    loop: asyncio.Runner
    session: aiohttp.ClientSession

    def post(self, path: str, body: bytes, content_type: str = "application/json") -> tuple[int, bytes, bytes]:
        """Send a request in a run of its own; return status and body of the answer, and what the provider was sent."""
        self.there.bodies.clear()
        headers = {"content-type": content_type, "x-prompt-sidecar-run": f"run-{next(NUMBERS)}"}

        async def run() -> tuple[int, bytes]:
            async with self.session.post(self.here.url + path, data=body, headers=headers) as answer:
                return answer.status, await answer.read()

        status, answer = self.loop.run(run())
        return status, answer, b"".join(self.there.bodies)

    def talk(self, frames: list[str]) -> bytes:
        """Send messages on one WebSocket; return what the provider was sent."""
        self.there.messages.clear()

        async def run() -> None:
            async with self.session.ws_connect(self.here.url + "/v1/realtime?model=m") as socket:
                for frame in frames:
                    await socket.send_str(frame)
                    await socket.receive()

        self.loop.run(run())
        return b"\n".join(self.there.messages)


@pytest.fixture(scope="module")
def sending() -> Iterator[Sending]:
    """One server for all cases."""
    with masking() as (here, there, _), asyncio.Runner() as loop:

        async def opened() -> aiohttp.ClientSession:
            return aiohttp.ClientSession()

        session = loop.run(opened())
        yield Sending(here, there, loop, session)
        loop.run(session.close())


def leaks(sent: bytes, key: str) -> bool:
    """Whether what was sent holds a key, in plain or in base64."""
    return any(spelling in sent for spelling in (key.encode(), *(_inside(key, shift) for shift in range(3))))


def _inside(key: str, shift: int) -> bytes:
    """What base64 of any text with the key holds, if the key begins `shift` bytes after a group of three."""
    return base64.b64encode(b" " * shift + key.encode())[4:-4]


def shown(sent: bytes) -> str:
    """What was sent, with its files in base64 decoded."""
    found = sent.decode()
    for each in json.JSONDecoder().raw_decode(found)[0:1]:
        found += "".join(_files(each))
    return found


def _files(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        try:
            yield base64.b64decode(value.rpartition(",")[2], validate=True).decode()
        except ValueError:
            return
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _files(each)


@pytest.mark.parametrize(("path", "place", "make"), TABLE, ids=[f"{path} {place}" for path, place, _ in TABLE])
def test_a_place(path: str, place: str, make: Make, sending: Sending) -> None:
    """The provider gets a mask in its place, and the rest of the text."""
    assert place
    key = key_of(next(NUMBERS))
    status, answer, sent = sending.post(path, json.dumps(make(key)).encode())
    assert 200 == status, answer
    assert not leaks(sent, key)
    assert MASK in shown(sent)


@pytest.mark.parametrize(("path", "place", "make"), OBSERVED, ids=[f"{path} {place}" for path, place, _ in OBSERVED])
def test_what_the_provider_acts_on(path: str, place: str, make: Make, sending: Sending) -> None:
    """It goes on as it came: a mask would break what it is for."""
    assert place
    key = key_of(next(NUMBERS))
    status, answer, sent = sending.post(path, json.dumps(make(key)).encode())
    assert 200 == status, answer
    assert key.encode() in sent


@pytest.mark.parametrize(("path", "body", "kind"), FORMS, ids=[path for path, _, _ in FORMS])
def test_what_is_not_json(path: str, body: bytes, kind: str, sending: Sending) -> None:
    """It is refused, and the answer says why."""
    key = key_of(next(NUMBERS))
    status, answer, sent = sending.post(path, body % key.encode(), kind)
    assert (403, b"") == (status, sent)
    assert b"GUARD_UNREAD" in answer


def test_lines_of_a_batch(sending: Sending) -> None:
    """Each line is masked, whatever its content type says."""
    key = key_of(next(NUMBERS))
    line = {"custom_id": "1", "method": "POST", "url": CHAT, "body": spoken(text)(key)}
    lines = f"{json.dumps(line)}\n{json.dumps(line)}\n".encode()
    status, _, sent = sending.post("/v1/files", lines, "application/jsonl")
    assert (200, False, 2) == (status, leaks(sent, key), sent.decode().count(MASK))


def test_messages_of_websockets(sending: Sending) -> None:
    """None lets a value out."""
    keys = [key_of(next(NUMBERS)) for _ in FRAMES]
    sent = sending.talk([json.dumps(make(key)) for make, key in zip(FRAMES, keys, strict=True)])
    assert len(FRAMES) == len(sent.splitlines())
    assert [] == [key for key in keys if leaks(sent, key)]


def test_the_table_is_whole() -> None:
    """It has at least sixty pairs, and no pair twice."""
    pairs = [(path, place) for path, place, _ in (*TABLE, *OBSERVED)]
    assert len(pairs) == len(set(pairs)) >= 60


def test_other_files_are_not_changed(sending: Sending) -> None:
    """A picture, sound and a packed file in base64 go on byte for byte."""
    blob = base64.b64encode(bytes(range(256)) * 8).decode()
    body = {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{blob}"}},
                    {"type": "input_audio", "input_audio": {"data": blob, "format": "wav"}},
                    {"type": "file", "file": {"filename": "a.zip", "file_data": f"data:application/zip;base64,{blob}"}},
                    {"type": "future_part", "x": {"file_data": blob}},
                ],
            }
        ],
    }
    status, _, sent = sending.post(CHAT, json.dumps(body).encode())
    assert 200 == status
    assert json.dumps(body["messages"])[1:].encode() in sent
