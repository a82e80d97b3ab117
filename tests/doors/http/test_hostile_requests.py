"""No request gets a 500 of the sidecar's, whatever stands in its body, its headers or its target.

Each member of a request of each kind is replaced by values that programs trip over; what cannot be trimmed is refused
with 400 in the provider's shape, or goes on as it came.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from aiohttp import web

from prompt_sidecar.calls.tokens import Tokens
from prompt_sidecar.guard.options import GuardOptions
from tests.client.provider import Says
from tests.doors.grpc.serving import PATIENCE
from tests.doors.http.serving import Proxied, proxied

LEVELS: Final = (200, 253, 254, 255, 300, 600, 950, 1_000, 1_023, 1_025, 5_000)
"""Around what the decoders read: 254 levels, 1,024, and those that Python itself follows."""


def nested(levels: int, inner: bytes = b"1") -> tuple[bytes, bytes]:
    """Arrays and objects of so many levels."""
    return b"[" * levels + inner + b"]" * levels, b'{"a":' * levels + inner + b"}" * levels


DEEP: Final = tuple(each for levels in (254, 255, 1_000) for each in nested(levels))
ODD: Final[tuple[bytes, ...]] = (
    *DEEP,
    *(
        b"null",
        b"true",
        b"-1",
        b"1.5",
        b"1e999",
        b"9" * 400,
        b'""',
        b'"x"',
        b"[]",
        b"{}",
        b"[null]",
        b'[{"a":1,"a":2}]',
    ),
    *(b"NaN", b'"\\ud800"', b'"\xff"'),
)
"""Values, some of which are no JSON."""
MORE: Final[tuple[bytes, ...]] = (
    *(each for levels in LEVELS for each in nested(levels)),
    *(b"0", b"-0", b"1e-999", b"9" * 5_000, b"-" + b"9" * 25, b"Infinity", b"-Infinity", b"01", b"'x'", b""),
    *(b'"\\u0000"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\\x"', b'"\n"', b'"', b'"\xed\xa0\x80"'),
    *(b'"' + b"x" * 70_000 + b'"', b"[[]]", b"[{}]", b'[""]', b'{"a":1,"a":{"a":1,"a":2}}', b"[1,]", b'{"type":[]}'),
    *(b'{"":""}', b'{"\\ud800":1}', b'{"\\u0000":1}', b"[" + b"0," * 2_000 + b"0]"),
)
"""More of them, for the members of the body itself."""
BODIES: Final = (
    *(b"", b" ", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b"{}{}", b"\xff", b"\x00", b"\xef\xbb\xbf{}", b'{"a"}'),
    *(json.dumps({"messages": []}).encode(encoding) for encoding in ("utf-16", "utf-32")),
    *MORE,
    *(b'{"messages":[],"messages":[]}', b'{"messages":[{"role":"user","role":"user","content":"x","content":"y"}]}'),
)
"""Whole bodies."""
USER: Final = {"role": "user", "content": "What failed?"}
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a":1}'}}
CHAT: Final = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "log"}]},
]
BLOCKS: Final = [
    USER,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "log"}]},
]
CONTENTS: Final = [
    {"role": "user", "parts": [{"text": "What failed?"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"a": 1}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"b": "log"}}}]},
]
CONVERSE: Final = [
    {"role": "user", "content": [{"text": "What failed?"}]},
    {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c1", "name": "read", "input": {"a": 1}}}]},
    {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "log"}]}}]},
]
SCHEMA: Final = {"type": "object", "properties": {}}
INPUT: Final = [
    USER,
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "log"},
]
FUNCTION: Final = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
MESSAGES: Final = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s"}],
    "messages": BLOCKS,
    "tools": [{"name": "read", "input_schema": SCHEMA}],
    "tool_choice": {"type": "auto"},
    "metadata": {"user_id": "user_session_1"},
}
GEMINI: Final = {
    "systemInstruction": {"parts": [{"text": "s"}]},
    "contents": CONTENTS,
    "tools": [{"functionDeclarations": [{"name": "read", "parameters": SCHEMA}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
}
GUARDED: Final = {
    "input_type": "request",
    "structured_messages": CHAT,
    "texts": ["x"],
    "model": "m",
    "tools": [FUNCTION],
    "request_data": {"user_api_key_hash": "h", "user_api_key_user_id": "u"},
    "request_headers": {"x-prompt-sidecar-run": "run", "user-agent": "a"},
}
REQUESTS: Final[dict[str, Any]] = {
    "/v1/compress": {"messages": CHAT, "model": "gpt-4o", "tools": [FUNCTION], "token_budget": 5_000},
    "/v1/compress?": {"messages": BLOCKS},
    "/beta/litellm_basic_guardrail_api": GUARDED,
    "/v1/chat/completions": {
        "model": "m",
        "messages": CHAT,
        "tools": [FUNCTION],
        "tool_choice": "auto",
        "prompt_cache_key": "k",
        "max_tokens": 9,
    },
    "/v1/responses": {
        "model": "m",
        "instructions": "s",
        "input": INPUT,
        "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}],
        "tool_choice": "auto",
        "previous_response_id": None,
        "conversation": None,
    },
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
    "/v1beta/models/gemini:generateContent": GEMINI,
    "/v1beta/models/gemini:countTokens": {**GEMINI, "generateContentRequest": {**GEMINI, "model": "m"}},
    "/model/m/converse": {
        "system": [{"text": "s"}],
        "messages": CONVERSE,
        "toolConfig": {"tools": [{"toolSpec": {"name": "read", "inputSchema": {"json": SCHEMA}}}], "toolChoice": {}},
        "inferenceConfig": {"maxTokens": 9},
    },
}


def mutated(value: Any, odd: bytes, levels: int = 99) -> Iterator[bytes]:
    """Yield JSON text with each value in turn replaced by another one, down to so many levels."""
    yield odd
    if levels == 0 or not isinstance(value, dict | list):
        return
    opening, closing = (b"{", b"}") if isinstance(value, dict) else (b"[", b"]")
    named = list(value.items()) if isinstance(value, dict) else [(None, each) for each in value]
    heads = [b"" if name is None else json.dumps(name).encode() + b":" for name, _ in named]
    whole = [head + json.dumps(each).encode() for head, (_, each) in zip(heads, named, strict=True)]
    for at, (_, inner) in enumerate(named):
        for each in mutated(inner, odd, levels - 1):
            yield opening + b",".join([*whole[:at], heads[at] + each, *whole[at + 1 :]]) + closing


@contextmanager
def served(**more: Any) -> Iterator[Proxied]:
    """A door before a provider that takes everything."""

    async def anything(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"id": "r"})

    with proxied(lambda _: Says("Yes."), **more) as here:
        here.upstream.other, here.upstream.only_other = anything, True
        yield here


@pytest.fixture(scope="module")
def door() -> Iterator[Proxied]:
    """One door for the file."""
    with served() as here:
        yield here


@pytest.fixture(scope="module")
def guarded_door() -> Iterator[Proxied]:
    """One whose guard masks and refuses."""
    with served(guard=GuardOptions(mode="enforce")) as here:
        yield here


class Asking:
    """A connection that sends requests one after another."""

    def __init__(self, here: Proxied) -> None:
        self._door = here
        self._connection = http.client.HTTPConnection("127.0.0.1", here.door.port, timeout=PATIENCE)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        """Send a body; return status and answer."""
        self._connection.request("POST", path, body, {"content-type": "application/json", **headers})
        with self._connection.getresponse() as answer:
            return answer.status, answer.read()

    def check(self, path: str, body: bytes) -> None:
        """A request is answered, or refused in the right shape."""
        status, answer = self.post(path, body)
        shown = f"{path} {body[:300]!r} {status} {answer[:200]!r}"
        assert status in (200, 400, 403), shown
        if status != 200:
            found = json.loads(answer)
            assert found.get("error", found).get("message"), shown


@pytest.mark.parametrize("path", REQUESTS)
def test_odd_values(path: str, door: Proxied) -> None:
    """In the place of each member, and in the place of the body."""
    asking = Asking(door)
    for odd in ODD:
        for body in mutated(REQUESTS[path], odd):
            asking.check(path, body)
    for odd in MORE:
        for body in mutated(REQUESTS[path], odd, 1):
            asking.check(path, body)
    for body in BODIES:
        asking.check(path, body)


@pytest.mark.parametrize("path", REQUESTS)
def test_odd_values_where_the_guard_refuses(path: str, guarded_door: Proxied) -> None:
    """What the guard cannot look at is refused in the same shape."""
    asking = Asking(guarded_door)
    for odd in ODD:
        for body in mutated(REQUESTS[path], odd, 1):
            asking.check(path, body)


def jwt(claims: bytes) -> bytes:
    """A credential with these claims."""
    return b"Bearer a." + base64.urlsafe_b64encode(claims).rstrip(b"=") + b".c"


HEADERS: Final = (
    *((b"x-prompt-sidecar-run", value) for value in (b"\xff", b"x" * 300, b"", b"a\tb", b"\xc3\xa4")),
    *((b"x-prompt-sidecar-context-window", value) for value in (b"9" * 5_000, b"\xd9\xa1", b"-1", b"\xff")),
    *((b"x-prompt-sidecar-revision", value) for value in (b"\xff", b"AAAA", b"=")),
    *((b"authorization", jwt(b'{"iss":"a","sub":' + value + b"}")) for value in (*nested(1_000), b'"\\ud800"')),
    *((b"authorization", value) for value in (b"\xff", b"Bearer", b"Bearer a.\xff.c")),
    *((b"x-own", value) for value in (b"\xff", b"y" * 60_000)),
    *((name, b"\xff") for name in (b"content-encoding", b"content-type", b"session_id", b"x-headroom-bypass")),
    *((b"connection", value) for value in (b"\xff", b"content-length", b"authorization, content-type")),
)
TARGETS: Final = (
    *(b"//", b"//x", b"/%", b"/%ff", b"/\xff", b"/v1/%00", b"/[", b"//[", b"//:80", b"/a:b@c", b"/v1/models|", b"*"),
    *(b"http://[", b"http://x:99999/v1/models", b"https://u:p@x/v1/models", b"file:///etc/passwd", b"/v1/../x"),
    *(b"/v1/models?%", b"/v1/models?a=%ff&b=\xc3", b"/v1/models?alt=sse&$alt=%ff", b"/?" + b"a" * 60_000),
    *(b"/v1beta/models/%ff:generateContent", b"/v1beta/models/%00:countTokens", b"/model/%2f%ff/converse"),
    *(b"/v1/compress/", b"/v1/compress?x=%ff", b"/beta/litellm_basic_guardrail_api/"),
)


def sent_raw(here: Proxied, target: bytes, *headers: tuple[bytes, bytes]) -> int:
    """Send a request as bytes; return the status."""
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
    lines = [b"POST " + target + b" HTTP/1.1", b"host: x", b"connection: close", b"content-length: %d" % len(body)]
    lines += [name + b": " + value for name, value in headers]
    with socket.create_connection(("127.0.0.1", here.door.port), timeout=PATIENCE) as connection:
        connection.sendall(b"\r\n".join([*lines, b"", body]))
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


@pytest.mark.parametrize("caller_by", ["address", "credential"])
def test_odd_headers_and_targets(caller_by: str) -> None:
    """Bytes that are no UTF-8, numbers that Python does not read, credentials that are no JWT, and what is no path."""
    with served(caller_by=caller_by) as here:
        for path in (b"/v1/chat/completions", b"/v1/models", b"/v1/compress"):
            for header in HEADERS:
                status = sent_raw(here, path, header)
                assert status < 500, (path, header, status)
        for target in TARGETS:
            status = sent_raw(here, target)
            assert status < 500, (target, status)


def test_an_odd_token_is_none() -> None:
    """Where tokens are needed, bytes that are no UTF-8 are an unknown one."""
    tokens = Tokens({"someone": "t" * 20})
    assert None is tokens.caller("\udcff")
    assert "token:someone" == tokens.caller("t" * 20)
