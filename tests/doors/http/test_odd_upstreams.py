"""Providers, or servers before them, that do not keep to what they were asked for, on plain sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socketserver
import threading
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
import pytest

from prompt_sidecar.answers.answer_stream import PIECE_BYTES, AnswerStream
from prompt_sidecar.answers.reported_usage import UsageReader
from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.doors.http.encodings import Unpacker
from prompt_sidecar.doors.http.reading import Source, TurnStream
from prompt_sidecar.doors.http.turns import RATE_BOUND, StreamPace
from tests.client.calls_in_pieces import OURS
from tests.client.provider import SHAPES, Says
from tests.doors.http.agents import TOOL
from tests.doors.http.path_models import WAYS, pieces
from tests.doors.http.serving import Proxied, opened, options, proxied
from tests.doors.http.test_passing import TOOLS, _post
from tests.doors.http.test_pieces_of_calls import DONE, call, chunk, ends
from tests.doors.http.upstream import scripted

STREAM: Final = b"content-type: text/event-stream\r\n"
JSON: Final = b"content-type: application/json\r\n"
CLOSES: Final = b"HTTP/1.0 200 OK\r\n"
HIDDEN: Final = b"".join([call("a", OURS, '{"query":"x"}'), *ends()])
THEIRS: Final = b"".join([call("a", TOOL, "{}"), *ends()])


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[tuple[Proxied, list[bytes]]]:
    """A door before a server that sends these bytes and closes; and the requests that it got."""
    left, got = list(answers), []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.rfile.readline()
            length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
            got.append(self.rfile.read(int(length.split(b":")[1])))
            self.wfile.write(left.pop(0))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with proxied(scripted(), window=60_000, max_body_bytes=100_000) as here:
            url = f"http://127.0.0.1:{server.server_address[1]}"
            try:
                # A second door on the same core, before the plain socket.
                with opened(options(url, max_body_bytes=100_000), here.core) as door:
                    yield Proxied(door, here.upstream, here.core), got
            finally:
                server.shutdown()


def ask(here: Proxied, *, stream: bool = True, path: str = "/v2/chat/completions") -> tuple[int, bytes, Any]:
    """Ask as an agent with a tool."""
    body: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "Which build failed?"}]}
    body |= {"tools": [TOOLS["openai_chat"]], "stream": stream}
    if "converse" in path:
        body = {"messages": [{"role": "user", "content": [{"text": "Which build failed?"}]}]}
    return asyncio.run(_post(here.url + path, json.dumps(body).encode(), authorization="Bearer k"))


def _raw_deflate(raw: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(raw) + packer.flush()


PACKED: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": _raw_deflate,
}


@pytest.mark.parametrize("encoding", PACKED)
def test_our_calls_are_found_in_packed_streams(encoding: str) -> None:
    """Though the provider was asked not to pack; the agent gets them unpacked."""
    head = CLOSES + STREAM + f"content-encoding: {encoding}\r\n\r\n".encode()
    with answering(head + PACKED[encoding](HIDDEN), head + PACKED[encoding](b"".join(DONE))) as (here, got):
        status, answer, headers = ask(here)

    assert 200 == status
    assert b"Done." in answer
    assert OURS.encode() not in answer
    assert "content-encoding" not in headers
    assert 2 == len(got)


def _json(says: Says) -> bytes:
    return json.dumps(SHAPES["chat/completions"](says, 1)).encode()


def test_our_calls_are_found_in_packed_answers() -> None:
    """An answer that the sidecar has no business with stays packed."""
    head = CLOSES + JSON + b"content-encoding: gzip\r\n\r\n"
    ours = _json(Says("", [("a", OURS, {"query": "x"})]))
    theirs = _json(Says("", [("b", TOOL, {})]))
    answers = (head + gzip.compress(ours), head + gzip.compress(theirs), head + gzip.compress(theirs))
    with answering(*answers) as (here, got):
        first = ask(here, stream=False)
        second = ask(here, stream=False)

    assert 3 == len(got)
    assert OURS.encode() not in first[1]
    assert TOOL in json.loads(first[1])["choices"][0]["message"]["tool_calls"][0]["function"]["name"]
    assert json.loads(theirs) == json.loads(second[1])


def test_packed_bytes_that_are_too_many_are_502() -> None:
    """A small body that would become a huge one takes no more memory than an answer may."""
    head = CLOSES + JSON + b"content-encoding: gzip\r\n\r\n"
    with answering(head + gzip.compress(b" " * 10_000_000)) as (here, _):
        status, answer, _ = ask(here, stream=False)

    assert 502 == status
    assert b"http.max_body_bytes" in answer


def test_a_packed_stream_that_is_damaged_breaks_off() -> None:
    """As it is cut off; what was read of it goes on before."""
    packed = gzip.compress(THEIRS)
    head = CLOSES + STREAM + b"content-encoding: gzip\r\n\r\n"
    with answering(head + packed[:-12]) as (here, _), pytest.raises(aiohttp.ClientError):
        ask(here)


@pytest.mark.parametrize(
    "more", [b"", b"data: {\n\n", b"\xff\xfe garbage", b": comment\n\n", b"data: [1]\n\ndata: [DONE]\n\n", THEIRS]
)
def test_garbage_behind_the_end_passes(more: bytes) -> None:
    """Byte for byte, over a connection that ends with the answer."""
    with answering(CLOSES + STREAM + b"\r\n" + THEIRS + more) as (here, _):
        status, answer, _ = ask(here)

    assert (200, THEIRS + more) == (status, answer)


def test_garbage_behind_a_hidden_turn_is_not_shown() -> None:
    """The agent's answer is that of the next turn."""
    answers = (CLOSES + STREAM + b"\r\n" + HIDDEN + b"data: {\n\n", CLOSES + STREAM + b"\r\n" + b"".join(DONE))
    with answering(*answers) as (here, got):
        _, answer, _ = ask(here)

    assert b"Done." in answer
    assert OURS.encode() not in answer
    assert 2 == len(got)


def test_an_answer_that_is_shorter_than_its_length_is_an_error() -> None:
    """A whole one is 502; a stream breaks off, as the provider's did."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n"
    with answering(head + JSON + b"\r\n" + _json(Says("Done.")), head + STREAM + b"\r\n" + THEIRS) as (here, _):
        status, answer, _ = ask(here, stream=False)
        with pytest.raises(aiohttp.ClientError):
            ask(here)

    assert 502 == status
    assert b"UPSTREAM_UNREACHABLE" in answer


def test_a_huge_event_passes() -> None:
    """From the bound on, nothing is kept of it."""
    event = b"data: " + b"x" * 1_000_000 + b"\n\n"
    with answering(CLOSES + STREAM + b"\r\n" + THEIRS + event) as (here, _):
        status, answer, _ = ask(here)

    assert (200, THEIRS + event) == (status, answer)


def test_a_stream_that_cannot_be_continued_ends_with_an_error() -> None:
    """A call of the sidecar's was left out, and nobody can read on."""
    begun = call("a", OURS, '{"query":"x"}') + b"data: " + b"x" * 1_000_000 + b"\n\n"
    with answering(CLOSES + STREAM + b"\r\n" + chunk({"content": "Wait."}) + begun) as (here, _):
        status, answer, _ = ask(here)

    first, last = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: ")]
    assert 200 == status
    assert "Wait." == first["choices"][0]["delta"]["content"]
    assert "server_error" == last["error"]["type"]


@pytest.mark.parametrize("at", [0, 9, 20, -1])
def test_broken_frames_pass(at: int) -> None:
    """Byte for byte; Amazon's SDKs say what is wrong with them."""
    whole = bytearray(b"".join(pieces(WAYS["bedrock-stream"], Says("Some text."))))
    whole[at] ^= 1
    kind = b"content-type: application/vnd.amazon.eventstream\r\n\r\n"
    with answering(CLOSES + kind + bytes(whole)) as (here, _):
        status, answer, _ = ask(here, path=WAYS["bedrock-stream"].path)

    assert (200, bytes(whole)) == (status, answer)


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_unpacked_in_pieces(encoding: str, size: int) -> None:
    """However the bytes come, of two packed streams in a row too; each piece is bounded."""
    plain = b"a line of some length\n" * 20_000
    packed = PACKED[encoding](plain) * 2
    unpacker, made = Unpacker(encoding.lower()), []
    for at in range(0, len(packed), size):
        unpacker.take(packed[at : at + size])
        while piece := unpacker.more():
            made.append(piece)

    assert plain * 2 == b"".join(made)
    assert max(map(len, made)) <= 65_536
    assert unpacker.whole


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("padding", [b"\0", bytes(1_000), b"\0odd"])
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_what_follows_the_end_of_a_packed_stream_is_left_out(encoding: str, padding: bytes, size: int) -> None:
    """The answer is whole."""
    plain = b"a line of some length\n" * 2_000
    packed = PACKED[encoding](plain) + padding
    unpacker, made = Unpacker(encoding.lower()), []
    for at in range(0, len(packed), size):
        unpacker.take(packed[at : at + size])
        while piece := unpacker.more():
            made.append(piece)

    assert plain == b"".join(made)
    assert unpacker.whole


def test_a_member_that_is_damaged_behind_another_is_no_padding() -> None:
    """The answer is cut off, not shortened."""
    unpacker = Unpacker("gzip")
    unpacker.take(gzip.compress(b"one") + gzip.compress(b"two")[:12] + bytes(20))

    assert b"one" == unpacker.more()
    with pytest.raises(ValueError, match=r"^$"):
        unpacker.more()


def test_a_byte_order_mark_before_each_turn() -> None:
    """Calls of the sidecar's are found all the same, and no mark stands in the middle of what the agent is sent."""
    head, mark = CLOSES + STREAM + b"\r\n", b"\xef\xbb\xbf"
    with answering(head + mark + HIDDEN, head + mark + b"".join(DONE)) as (here, got):
        status, answer, _ = ask(here)

    assert 200 == status
    assert b"Done." in answer
    assert OURS.encode() not in answer
    assert 0 == answer.rfind(mark)
    assert 2 == len(got)


def test_a_byte_order_mark_before_a_whole_answer() -> None:
    """It is read, and an answer that is not the sidecar's business has the mark still."""
    head, mark = CLOSES + JSON + b"\r\n", b"\xef\xbb\xbf"
    ours, theirs = _json(Says("", [("a", OURS, {"query": "x"})])), _json(Says("Done."))
    with answering(head + mark + ours, head + mark + theirs) as (here, got):
        status, answer, _ = ask(here, stream=False)

    assert (200, 2) == (status, len(got))
    assert answer.startswith(mark + b"{")
    assert "Done." == json.loads(answer)["choices"][0]["message"]["content"]


@pytest.mark.parametrize("passes", [False, True])
def test_many_short_lines_of_a_stream_are_read_at_its_rate(passes: bool) -> None:
    """Each is an event that takes its time; a stream that is forwarded unread has only bytes."""
    reached: list[str] = []
    answer = SimpleNamespace(content=_AtOnce(b":\n\n" * 20_000))

    async def run() -> None:
        dialect = DIALECTS["openai_chat"]
        events = dialect.filter(frozenset(), None)
        events.begin()
        passing = AnswerStream(dialect.splitter(1 << 20), events, 1 << 20)
        passing.passes = passes
        stream = TurnStream(
            Source(cast(aiohttp.ClientResponse, answer), ""),
            passing,
            events,
            UsageReader("openai_chat", 200, "text/event-stream"),
            run=lambda function, _: asyncio.to_thread(function),
            hold=lambda _: None,
            pace=StreamPace(1e12, 1_000_000, reached.append),
        )
        assert 60_000 == sum([len(piece) async for piece in stream.pieces()])

    asyncio.run(run())
    assert ([] if passes else [RATE_BOUND]) == reached


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_other_requests_have_their_turn_within_a_stream(encoding: str) -> None:
    """A provider may send many events at once, or as many empty packed streams."""
    answer = SimpleNamespace(content=_AtOnce(b":\n\n" * 20_000 if not encoding else gzip.compress(b"") * 5_000))

    async def run() -> int:
        source = Source(cast(aiohttp.ClientResponse, answer), encoding)
        dialect = DIALECTS["openai_chat"]
        events = dialect.filter(frozenset(), None)
        events.begin()
        passing = AnswerStream(dialect.splitter(1 << 20), events, 1 << 20)
        reader = UsageReader("openai_chat", 200, "text/event-stream")
        stream = TurnStream(
            source, passing, events, reader, run=lambda function, _: asyncio.to_thread(function), hold=lambda _: None
        )
        turns, over = 0, False

        async def other() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        asked = asyncio.ensure_future(other())
        async for piece in stream.pieces():
            assert PIECE_BYTES >= len(piece)
            await stream.feed(piece)
        over = True
        await asked
        return turns

    assert 10 < asyncio.run(run())


class _AtOnce:
    """An answer's content that is all there."""

    def __init__(self, body: bytes) -> None:
        self._left = body

    async def readany(self) -> bytes:
        found, self._left = self._left, b""
        return found
