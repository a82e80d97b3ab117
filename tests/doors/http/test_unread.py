"""Under `enforce` no body leaves unread: on paths that nobody knows its strings are masked, or it is refused."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiohttp
import pytest
import zstandard
from aiohttp import web

from prompt_sidecar.facts.guard_calls import SendingDoor, Unread, UnreadOutcome
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.guard.options import GuardOptions
from prompt_sidecar.telemetry.observer import Observer
from tests.client.provider import Says
from tests.doors.http.serving import Proxied, proxied
from tests.doors.http.upstream import scripted
from tests.oracle.data import need

KEY: Final = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"
ENFORCE: Final = GuardOptions(mode="enforce", restore=("*:*",), scan_seconds=60)
PASS: Final = replace(ENFORCE, unread="pass")
OTHER: Final = KEY[:-1] + "Q"
UNKNOWN: Final = (
    "/v1/projects/p/locations/l/publishers/google/endpoints/7:generateContent",
    "/v1beta/dynamic/abc:generateContent",
    "/v1beta/models/g:batchGenerateContent",
    "/v1beta/models/g:embedContent",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/moderations",
    "/v1/messages/batches",
    "/v1/batches",
    "/v1/files",
    "/model/m/invoke",
    "/v1/next-month?a=1&key=x",
)
JSON: Final = "application/json"


@dataclass(slots=True)
class There:
    """A provider that takes whatever it is sent."""

    bodies: list[bytes] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    """Of WebSockets."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Take a request; with the opening of a WebSocket its messages."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                data = message.data.encode() if message.type is aiohttp.WSMsgType.TEXT else message.data
                self.messages.append(data)
                await socket.send_bytes(data)
            return socket
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        return web.json_response({"object": "taken"})


class Watched(Observer):
    """Remembers what the guard could not read."""

    def __init__(self) -> None:
        self.unread_: list[tuple[str, str, str]] = []

    def unread(self, door: SendingDoor, why: Unread, outcome: UnreadOutcome) -> None:
        """Remember it."""
        self.unread_.append((door.value, why.value, outcome.value))


@contextlib.contextmanager
def masking(guard: GuardOptions = ENFORCE, **more: Any) -> Iterator[tuple[Proxied, There, Watched]]:
    """A door that masks, in front of a provider that takes whatever it is sent."""
    there, watched = There(), Watched()
    with proxied(scripted(), guard=guard, observer=watched, window=100_000, **more) as here:
        here.upstream.other = there.answer
        here.upstream.only_other = True
        yield here, there, watched


def sent(
    here: Proxied, path: str, body: Any, method: str = "POST", **headers: str
) -> tuple[int, bytes, Mapping[str, str]]:
    """Send a request; return status, body and headers of the answer."""

    async def run() -> tuple[int, bytes, Mapping[str, str]]:
        named = {"content-type": JSON} | {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(method, here.url + path, data=body, headers=named) as answer,
        ):
            return answer.status, await answer.read(), answer.headers

    return asyncio.run(run())


BODIES: Final[Mapping[str, Any]] = {
    "prompt": {"prompt": f"use {KEY}"},
    "nested": {"a": [{"b": {"c": ["x", f"use {KEY}"]}}]},
    "any name": dict.fromkeys(("id", "name", "url", "data", "image", "model", "type", "status", "source"), KEY),
    "options": {"metadata": {"x": KEY}, "cache_control": {"y": KEY}, "providerOptions": {"z": {"q": KEY}}},
    "tools": {"tools": [{"name": "f", "authorization": KEY, "parameters": {"description": KEY}}]},
    "key": {"a": {KEY: 1}},
    "json in a string": {"input": json.dumps({"k": json.dumps([KEY])})},
    "arguments": {"arguments": json.dumps({"k": KEY})},
    "array": [{"x": KEY}, KEY],
    "string": KEY,
    "requests": {"requests": [{"custom_id": "1", "params": {"messages": [{"role": "user", "content": KEY}]}}]},
    "messages": {"messages": [{"role": "user", "content": [{"type": "text", "text": KEY}]}]},
    "deep": None,
}


def _deep(levels: int, inner: str) -> bytes:
    return b'{"a":' * levels + json.dumps(inner).encode() + b"}" * levels


@pytest.mark.parametrize("path", UNKNOWN)
def test_a_path_that_nobody_knows(path: str) -> None:
    """Whatever JSON holds, the provider gets masks; the same value has the same mask, and other bytes stay."""
    with masking() as (here, there, watched):
        for name, body in BODIES.items():
            raw = _deep(100, KEY) if name == "deep" else json.dumps(body, indent=1).encode()
            status, answer, _ = sent(here, path, raw)
            assert (200, b'{"object": "taken"}') == (status, answer), name
            (made,) = there.bodies
            assert KEY.encode() not in made, name
            start, *_, end = raw.split(KEY.encode())
            assert made.startswith(start + "⟦github_token:".encode()), name
            assert made.endswith(end), name
            assert len({each[:11] for each in made.split("⟦github_token:".encode())[1:]}) == 1, name
            assert str(len(made)) == there.headers[0]["Content-Length"], name
            there.bodies.clear()
            there.headers.clear()
    assert [] == watched.unread_


def test_the_recorded_paths() -> None:
    """None of them lets a token through."""
    case = json.loads(need("failing/enforce_unknown_paths.json").read_bytes())
    with masking() as (here, there, _):
        for path in case["paths"]:
            assert 200 == sent(here, path, json.dumps({"x": [{"y": KEY}]}).encode())[0], path
    assert len(case["paths"]) == len(there.bodies)
    assert KEY.encode() not in b"".join(there.bodies)


GENTLE: Final[Mapping[str, tuple[bytes, dict[str, str]]]] = {
    "plain text": (json.dumps({"a": KEY}).encode(), {"content_type": "text/plain"}),
    "no content type": (json.dumps({"a": KEY}).encode(), {"content_type": ""}),
    "as a form, as curl sends it": (
        json.dumps({"a": KEY}).encode(),
        {"content_type": "application/x-www-form-urlencoded"},
    ),
    "a mark": (b"\xef\xbb\xbf" + json.dumps({"a": KEY}).encode(), {}),
    "spaces": (b" \r\n" + json.dumps({"a": KEY}).encode() + b"\n\n", {}),
    "the same key twice": (b'{"a":"%s","a":"b","a":"%s"}' % (KEY.encode(), KEY.encode()), {}),
    "half a character": (b'{"a":"\\ud83d %s"}' % KEY.encode(), {}),
    "a large number": (b'{"n":1e999,"m":%s,"a":"%s"}' % (b"9" * 6_000, KEY.encode()), {}),
    "lines": (b'{"a":"x"}\n{"a":"%s"}\r\n\n["%s"]\n' % (KEY.encode(), KEY.encode()), {}),
    "many lines": (b'{"a":[1,2]}\n' * 400_000 + b'{"a":"%s"}' % KEY.encode(), {}),
    "one line": (b'{"a":"%s"}\n' % KEY.encode(), {"content_type": "application/jsonl"}),
    "escaped": (b'{"a":"%s"}' % "".join(f"\\u{ord(c):04x}" for c in KEY).encode(), {}),
    "charset": (json.dumps({"a": KEY}).encode(), {"content_type": "application/json; charset=ISO-8859-1"}),
}
PACKED: Final[Mapping[str, Any]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("name", GENTLE)
def test_json_as_some_programs_write_it(name: str) -> None:
    """It is read, whatever its content type says; also with PUT."""
    body, headers = GENTLE[name]
    with masking() as (here, there, _):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert 200 == sent(here, "/v1/anything", body, method, **headers)[0]
    assert 4 == len(there.bodies)
    for made in there.bodies:
        assert KEY.encode() not in made
        assert "⟦github_token:".encode() in made


@pytest.mark.parametrize("encoding", PACKED)
def test_a_packed_body(encoding: str) -> None:
    """It goes on unpacked and masked; without a find as it came, packed."""
    pack = PACKED[encoding]
    with masking() as (here, there, _):
        for value in (KEY, "nothing"):
            body = pack(json.dumps({"a": value}).encode())
            assert 200 == sent(here, "/v1/embeddings", body, content_encoding=encoding)[0]
    masked, plain = there.bodies
    assert masked.startswith('{"a": "⟦github_token:'.encode())
    assert "Content-Encoding" not in there.headers[0]
    assert (body, encoding) == (plain, there.headers[1]["Content-Encoding"])


HARD: Final[Mapping[str, tuple[bytes, dict[str, str], str]]] = {
    "a form with files": (
        b"--b\r\n\r\n" + KEY.encode(),
        {"content_type": "multipart/form-data; boundary=b"},
        "not_json",
    ),
    "a form": (b"a=" + KEY.encode(), {"content_type": "application/x-www-form-urlencoded"}, "not_json"),
    "text": (KEY.encode(), {"content_type": "text/plain"}, "not_json"),
    "binary": (b"\x00\xff" + KEY.encode(), {"content_type": "application/octet-stream"}, "not_json"),
    "broken JSON": (json.dumps({"a": KEY})[:-1].encode(), {}, "not_json"),
    "a broken line": (b'{"a":1}\n{"a":"%s"' % KEY.encode(), {}, "not_json"),
    "too deep": (_deep(3_000, KEY), {}, "not_json"),
    "utf-16": (json.dumps({"a": KEY}).encode("utf-16"), {}, "not_json"),
    "utf-16 by its header": (
        json.dumps({"a": KEY}).encode("utf-16"),
        {"content_type": "application/json; charset=utf-16"},
        "encoded",
    ),
    "utf-7": (b'{"a":"+AGcAaABwAF8-"}', {"content_type": "application/json; charset=utf-7"}, "encoded"),
    "br": (b"\x0b\x02\x80" + KEY.encode(), {"content_encoding": "br"}, "encoded"),
    "another encoding": (KEY.encode(), {"content_encoding": "aes128gcm"}, "encoded"),
    "damaged": (gzip.compress(KEY.encode())[:-4], {"content_encoding": "gzip"}, "encoded"),
    "twice packed": (gzip.compress(gzip.compress(b"{}")), {"content_encoding": "gzip, gzip"}, "encoded"),
    "a bomb": (gzip.compress(b" " * (1 << 24)), {"content_encoding": "gzip"}, "too_large"),
    "many small values": (b"[" + b"[]," * 3_000_000 + b"[]]", {}, "too_large"),
    "long": (b'"' + b"x" * (1 << 24) + b'"', {}, "too_large"),
}


KNOWN: Final = ("text", "binary", "broken JSON", "utf-16", "br", "another encoding", "damaged", "many small values")
"""What is no prompt on a known path, too."""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        *((name, "/v1/embeddings") for name in HARD),
        *((name, path) for name in KNOWN for path in ("/v1/messages", "/v1/responses")),
    ],
)
def test_what_cannot_be_read(name: str, path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused, with 403 that no SDK tries again, or passes where the settings say so; once a kind in the log."""
    body, headers, why = HARD[name]
    for guard, outcome in ((ENFORCE, "refused"), (PASS, "passed")):
        caplog.clear()
        with masking(guard, max_body_bytes=(1 << 24) - 1) as (here, there, watched), caplog.at_level(logging.WARNING):
            for _ in range(2):
                status, answer, _ = sent(here, path, body, **headers)
                assert KEY.encode() not in answer
        if outcome == "refused":
            assert 403 == status
            assert b"GUARD_UNREAD" in answer
            assert [] == there.bodies
        else:
            assert (200, [body, body]) == (status, there.bodies)
        assert [("http", why, outcome)] * 2 == watched.unread_
        records = [each for each in caplog.records if each.name == "prompt_sidecar.guard"]
        assert 1 == len(records)
        assert KEY not in caplog.text


def test_requests_without_a_body() -> None:
    """They pass, and so does an empty body."""
    with masking() as (here, there, watched):
        assert 200 == sent(here, "/v1/models", None, "GET")[0]
        assert 200 == sent(here, "/v1/files/f", None, "DELETE")[0]
        assert 200 == sent(here, "/v1/anything", b"", content_type="multipart/form-data")[0]
        assert 200 == sent(here, "/v1/anything", b" \n")[0]
    assert [b"", b"", b"", b" \n"] == there.bodies
    assert [] == watched.unread_


def test_what_is_not_changed_goes_on_unchanged() -> None:
    """To the last byte, with the numbers and the order of members as they were written."""
    body = b'{ "b":1.50, "a":"x", "a":[1e400, "\\u00e9\\/"], "e":"\\ud800" }\n'
    with masking() as (here, there, _):
        assert 200 == sent(here, "/v1/embeddings", body)[0]
    assert [body] == there.bodies


def test_files_and_signed_parts_are_not_changed() -> None:
    """Pictures and sound in base64, and thinking that is signed."""
    blob = "A" * 2_000
    body = {
        "image": blob,
        "b64_json": blob,
        "url": f"data:image/png;base64,{blob}",
        "x": {"type": "thinking", "thinking": KEY, "signature": "c2lnbmVk"},
    }
    with masking() as (here, there, _):
        assert 200 == sent(here, "/v1/anything", json.dumps(body).encode())[0]
    assert [json.dumps(body).encode()] == there.bodies


def test_the_masks_of_the_run_that_the_agent_names() -> None:
    """A value has the mask that it has in the run, also where the run has only met it there; and it is given back."""
    prompt = {"model": "m", "messages": [{"role": "user", "content": f"use {KEY}"}]}
    with masking() as (here, there, _):
        here.upstream.only_other = False
        here.upstream.model = _says
        for path in ("/v1/embeddings", "/v1/chat/completions", "/v1/embeddings"):
            assert 200 == sent(here, path, json.dumps(prompt).encode(), x_prompt_sidecar_run="r")[0]
        other = sent(here, "/v1/embeddings", json.dumps(prompt).encode())
        assert 200 == other[0]
        trimmed = here.upstream.sent[0].body["messages"][-1]["content"]
    assert trimmed.startswith("use ⟦github_token:")
    first, second, of_no_run = (json.loads(each)["messages"][0]["content"] for each in there.bodies)
    assert [trimmed, trimmed] == [first, second]
    assert trimmed != of_no_run


def _says(_: Any) -> Any:
    return Says("ok")


def test_a_value_of_the_run_that_no_rule_finds() -> None:
    """It is masked on an unknown path, too."""
    secret = "FaKe0rNoTrEaL1bUt"
    prompt = {"model": "m", "messages": [{"role": "user", "content": f"postgres://app:{secret}@db.internal/orders"}]}
    with masking() as (here, there, _):
        here.upstream.only_other = False
        here.upstream.model = _says
        assert 200 == sent(here, "/v1/chat/completions", json.dumps(prompt).encode(), x_prompt_sidecar_run="r")[0]
        bare = json.dumps({"input": f"it is x{secret}x"}).encode()
        assert 200 == sent(here, "/v1/embeddings", bare, x_prompt_sidecar_run="r")[0]
    assert there.bodies[0].startswith('{"input": "it is x⟦url_password:'.encode())


def test_a_signed_request() -> None:
    """A signature over the body forbids masks: with a find it is refused, without one it passes."""
    signed = {"authorization": "AWS4-HMAC-SHA256 Credential=x"}
    with masking() as (here, there, watched):
        for path in ("/model/m/converse", "/model/m/invoke"):
            assert 403 == sent(here, path, json.dumps({"x": KEY}).encode(), **signed)[0]
            assert 200 == sent(here, path, b'{"x":"y"}', **signed)[0]
    assert [b'{"x":"y"}'] * 2 == there.bodies
    assert [("http", "signed", "refused")] * 2 == watched.unread_


def test_a_rule_that_refuses() -> None:
    """On an unknown path, too: 400."""
    with masking(replace(ENFORCE, actions=("github_token=refuse",))) as (here, there, _):
        status, answer, _ = sent(here, "/v1/embeddings", json.dumps({"x": KEY}).encode())
    assert (400, []) == (status, there.bodies)
    assert b"GUARD_REFUSED" in answer


@pytest.mark.parametrize(
    "body",
    [
        {"previous_response_id": "r", "input": f"use {KEY}"},
        {"previous_response_id": "r", "input": [{"role": "user", "content": f"use {KEY}"}], "instructions": KEY},
        {"input": [{"type": 7, "x": KEY}]},
        {"input": {"not": ["a", KEY]}},
        {"inputs": KEY},
        [KEY],
    ],
)
def test_a_known_path_whose_prompt_cannot_be_trimmed(body: Any) -> None:
    """It goes on masked, and says that it was not trimmed; credentials of its tools stay."""
    tools = [{"type": "mcp", "server_label": "s", "server_url": "https://h.example", "authorization": OTHER}]
    with masking() as (here, there, _):
        whole = body if isinstance(body, list) else {**body, "tools": tools}
        status, _, headers = sent(here, "/v1/responses", json.dumps(whole).encode())
    assert 200 == status
    assert KEY.encode() not in there.bodies[0]
    assert "⟦github_token:".encode() in there.bodies[0]
    chained = isinstance(body, dict) and "previous_response_id" in body
    assert headers["x-prompt-sidecar-untrimmed"] == ("stored_by_provider" if chained else "unreadable")
    if isinstance(body, dict) and "input" in body:
        assert tools == json.loads(there.bodies[0])["tools"][:1]


def test_under_audit_all_passes() -> None:
    """As it came, whatever it is."""
    with masking(GuardOptions()) as (here, there, watched):
        for body, headers, _ in HARD.values():
            assert 200 == sent(here, "/v1/anything", body, **headers)[0]
    assert [body for body, *_ in HARD.values()] == there.bodies
    assert [] == watched.unread_


def test_a_large_body_holds_nobody_up() -> None:
    """While the guard reads 16 MB of it, others are answered: it is read in a worker thread."""
    large = json.dumps({"x": ["line of text " * 8] * 150_000, "y": KEY}).encode()
    with masking(limits=Limits(default_window=100_000)) as (here, there, _):
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(sent(here, "/v1/embeddings", large)[0]))
        thread.start()
        while thread.is_alive():
            assert 200 == sent(here, "/v1/embeddings", b'{"x":"y"}')[0]
        thread.join()
    assert [200] == done
    assert KEY.encode() not in max(there.bodies, key=len)


# -- WebSockets ------------------------------------------------------------------------------------------------------


def talked(here: Proxied, *messages: str | bytes) -> tuple[list[Any], int | None]:
    """Send messages on a WebSocket; return what came back, and the code that the door closed it with."""

    async def run() -> tuple[list[Any], int | None]:
        back: list[Any] = []
        async with aiohttp.ClientSession() as session, session.ws_connect(here.url + "/v1/realtime?model=m") as socket:
            for message in messages:
                await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
                answer = await socket.receive()
                if answer.type is not aiohttp.WSMsgType.BINARY:
                    return back, socket.close_code
                back.append(answer.data)
            return back, None

    return asyncio.run(run())


def test_messages_of_a_websocket() -> None:
    """JSON is masked in text and binary messages; sound in base64 goes on as it came."""
    sound = json.dumps({"type": "input_audio_buffer.append", "audio": "A" * 1_280})
    event = json.dumps({"type": "conversation.item.create", "item": {"content": [{"text": KEY}]}})
    with masking() as (here, there, _):
        back, closed = talked(here, event, event.encode(), sound)
    assert None is closed
    assert 3 == len(back)
    assert KEY.encode() not in b"".join(there.messages)
    assert "⟦github_token:".encode() in there.messages[0]
    assert [there.messages[0], sound.encode()] == there.messages[1:]


@pytest.mark.parametrize(("message", "why"), [(b"\x00\x01" + KEY.encode(), "binary"), (f"not JSON {KEY}", "not_json")])
def test_a_message_that_cannot_be_read(message: str | bytes, why: str) -> None:
    """It ends the WebSocket with 1008 (policy violation), or passes where the settings say so."""
    raw = message if isinstance(message, bytes) else message.encode()
    with masking() as (here, there, watched):
        assert ([], 1008) == talked(here, message)
    assert ([], [("websocket", why, "refused")]) == (there.messages, watched.unread_)
    with masking(PASS) as (here, there, watched):
        assert ([raw], None) == talked(here, message)
    assert ([raw], [("websocket", why, "passed")]) == (there.messages, watched.unread_)
