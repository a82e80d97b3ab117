"""What HTTP leaves to each hop: expectations, headers of a connection, statuses and words of a status, WebSockets."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Final, cast

import pytest
from aiohttp import ClientResponse, web

from prompt_sidecar.doors.http.upstream import media_type
from tests.client.provider import Says
from tests.doors.http.raw_agents import PROMPT, connected, request, stack, taken
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.test_odd_upstreams import CLOSES, JSON, answering
from tests.doors.http.upstream import scripted

__all__ = ["stack"]
CLOSE: Final = "connection: close\r\n"
OPENING: Final = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
KEY: Final = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


def answered(stack: ExitStack, here: Proxied, sent: bytes) -> bytes:
    """What an agent gets on a connection of its own."""
    return taken(connected(stack, here, sent))


def opening(more: str = "") -> bytes:
    """A WebSocket's opening."""
    return f"GET /v1/realtime HTTP/1.1\r\nhost: a\r\n{OPENING}{more}\r\n".encode()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_an_expectation_is_answered_here(path: str, stack: ExitStack) -> None:
    """Curl says it before a large body, and many providers' servers never answer it: nobody waits for them."""
    here, got = stack.enter_context(answering(CLOSES + JSON + b"\r\n{}"))

    answer = answered(stack, here, request(path, PROMPT, more=CLOSE + "expect: 100-continue\r\n"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert 1 == len(got)


def test_each_connection_header_counts(stack: ExitStack) -> None:
    """What any of several names belongs to the connection, of a request and of an answer."""
    here = stack.enter_context(proxied(scripted(Says("Hello."))))
    more = "connection: close\r\nconnection: x-first, x-second\r\nconnection: x-third\r\n"
    names = ("x-first", "x-second", "x-third", "x-other")
    sent = request("/v1/chat/completions", PROMPT, more=more + "".join(f"{name}: 1\r\n" for name in names))

    assert answered(stack, here, sent).startswith(b"HTTP/1.1 200 ")
    passed = {name.lower() for name in here.upstream.sent[0].headers}
    assert {"x-other"} == passed & set(names)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("words", [b"OK\x01", b"caf\xe9", b"\x1b[31m", b"No way"])
def test_words_of_a_status_that_cannot_be_sent_on(path: str, words: bytes, stack: ExitStack) -> None:
    """The agent gets the usual ones, and the answer."""
    here, _ = stack.enter_context(answering(b"HTTP/1.0 404 " + words + b"\r\n" + JSON + b'\r\n{"a":1}'))

    answer = answered(stack, here, request(path, PROMPT, more=CLOSE))
    usual = words if words.isalnum() or b" " in words else b"Not Found"
    assert b"HTTP/1.1 404 " + usual == answer.partition(b"\r\n")[0]
    assert b'{"a":1}' in answer


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("odd", [*b"\x01\x08\x0b\x0c\x1b\x1f\x7f"])
def test_control_characters_in_a_header(path: str, odd: int, stack: ExitStack) -> None:
    """A provider's cannot be sent on: each becomes a space, and the agent gets its answer."""
    head = b"HTTP/1.0 200 OK\r\n" + JSON + b"x-a: b\t" + bytes([odd]) + b"c\r\n"
    here, _ = stack.enter_context(answering(head + b'\r\n{"a":1}'))

    answer = answered(stack, here, request(path, PROMPT, more=CLOSE))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nx-a: b\t c\r\n" in answer
    assert b'{"a":1}' in answer


@pytest.mark.parametrize("parameters", [";", '";', ';a="'])
def test_a_content_type_with_parameters_without_end(parameters: str) -> None:
    """The type is found in time that grows with the header, not with its square; aiohttp's takes a minute for 60 kB."""
    answer = SimpleNamespace(headers={"content-type": " Text/Event-Stream " + ";" + parameters * 3_000_000})

    assert "text/event-stream" == media_type(cast(ClientResponse, answer))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
@pytest.mark.parametrize("status", [b"101", b"000"])
def test_a_status_that_ends_no_request(path: str, status: bytes, stack: ExitStack) -> None:
    """Nobody asked to leave HTTP: it is no answer."""
    here, _ = stack.enter_context(answering(b"HTTP/1.1 " + status + b" Odd\r\n\r\n"))

    assert answered(stack, here, request(path, PROMPT, more=CLOSE)).startswith(b"HTTP/1.1 502 ")


def test_a_websocket_that_the_provider_refuses(stack: ExitStack) -> None:
    """The agent gets the provider's status and headers: a wrong key, or how long to wait."""
    here = stack.enter_context(proxied(scripted()))

    async def refuses(_: web.Request) -> web.Response:
        return web.Response(status=429, text="slow down", headers={"retry-after": "7"})

    here.upstream.other = refuses
    answer = connected(stack, here, opening(KEY)).recv(65_536)
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 7\r\n" in answer.lower()


def test_a_websocket_that_cannot_be_opened(stack: ExitStack) -> None:
    """One without a key is refused, and the provider is not asked."""
    here = stack.enter_context(proxied(scripted()))

    assert connected(stack, here, opening()).recv(65_536).startswith(b"HTTP/1.1 400 ")


def test_any_path_passes(stack: ExitStack) -> None:
    """Encoded line ends too: the provider says what is wrong with it."""
    here, got = stack.enter_context(answering(CLOSES + JSON + b"\r\n{}"))

    assert answered(stack, here, request("/v1/files/a%0d%0Ab", PROMPT, more=CLOSE)).startswith(b"HTTP/1.1 200 ")
    assert [PROMPT] == got
