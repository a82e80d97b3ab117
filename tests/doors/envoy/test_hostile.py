"""The external processor under a peer that does not keep to Envoy's protocol."""

from __future__ import annotations

import itertools
import json
import queue
import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import grpc
import pytest

from prompt_sidecar.answers.answer_stream import PIECE_LINES, piece_end
from prompt_sidecar.answers.restored_answers import RestoredStream
from prompt_sidecar.doors.envoy import messages
from prompt_sidecar.doors.envoy.door import SERVICE
from prompt_sidecar.doors.envoy.exchange import EnvoyExchange, SendAnswer
from prompt_sidecar.doors.envoy.options import EnvoyOptions
from prompt_sidecar.doors.envoy.processor import ProcessedRequest
from prompt_sidecar.doors.envoy.v1 import ext_proc_pb2 as wire
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.envoy_calls import EnvoyOutcome
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.guard.options import GuardOptions
from tests.doors.envoy.test_door import Asked, body, door, headers
from tests.doors.envoy.through import PATIENCE, chat
from tests.doors.grpc.serving import WIDE, core_of
from tests.waiting import until

PROMPT = chat(1, "a")
MASK = "⟦github_token:aaaaaaaaaa⟧"
TRAILERS = wire.ProcessingRequest(request_trailers=wire.HttpTrailers())
RESPONSE_TRAILERS = wire.ProcessingRequest(response_trailers=wire.HttpTrailers())


def _response_headers(**named: str) -> wire.ProcessingRequest:
    pairs = [wire.HeaderValue(key=name.replace("_", "-"), raw_value=value.encode()) for name, value in named.items()]
    return wire.ProcessingRequest(response_headers=wire.HttpHeaders(headers=wire.HeaderMap(headers=pairs)))


def _response_body(piece: bytes, *, last: bool = False) -> wire.ProcessingRequest:
    return wire.ProcessingRequest(response_body=wire.HttpBody(body=piece, end_of_stream=last))


EVENTS = _response_headers(**{":status": "200", "content_type": "text/event-stream"})


@pytest.mark.parametrize(
    ("sent", "answered", "outcomes"),
    [
        ([body(PROMPT)], 0, [EnvoyOutcome.UNREADABLE]),
        ([wire.ProcessingRequest()], 0, [EnvoyOutcome.UNREADABLE]),
        ([TRAILERS, headers()], 0, [EnvoyOutcome.UNREADABLE]),
        ([_response_body(b"{}"), headers()], 0, [EnvoyOutcome.UNREADABLE]),
        ([EVENTS, headers(), body(PROMPT)], 0, [EnvoyOutcome.UNREADABLE]),
        ([headers(), headers(), body(PROMPT)], 1, [EnvoyOutcome.UNREADABLE]),
        ([headers(), TRAILERS, body(PROMPT)], 2, [EnvoyOutcome.UNREADABLE]),
        ([headers(), body(PROMPT), body(PROMPT)], 2, [EnvoyOutcome.ANSWERED]),
        ([headers(), body(PROMPT), headers(), body(PROMPT)], 2, [EnvoyOutcome.ANSWERED]),
        ([headers(), body(PROMPT), EVENTS, EVENTS], 3, [EnvoyOutcome.ANSWERED]),
        ([headers(), body(PROMPT), EVENTS, _response_body(b"x", last=True), EVENTS], 4, [EnvoyOutcome.ANSWERED]),
        ([headers(), body(PROMPT), EVENTS, RESPONSE_TRAILERS, _response_body(b"x")], 4, [EnvoyOutcome.ANSWERED]),
        ([wire.ProcessingRequest(request_headers=wire.HttpHeaders())], 1, [EnvoyOutcome.NOT_A_PROMPT]),
        ([headers(path="")], 1, [EnvoyOutcome.NOT_A_PROMPT]),
        ([headers(path="/v1/" + "x" * 100_000 + "/chat/completions")], 1, [EnvoyOutcome.NOT_A_PROMPT]),
    ],
)
def test_messages_out_of_order_end_the_stream(
    sent: list[wire.ProcessingRequest], answered: int, outcomes: list[EnvoyOutcome]
) -> None:
    """What was in order is answered, nothing is trimmed twice, and Envoy goes on by itself."""
    with door() as asked:
        answers = asked.process(*sent)
        until(lambda: asked.door.streams == 0)

    assert answered == len(answers)
    assert outcomes == asked.observer.outcomes


@pytest.mark.parametrize("method", ["GET", "HEAD", "CONNECT", "OPTIONS", "post", ""])
def test_other_methods_are_no_prompts(method: str) -> None:
    """Whatever the path is."""
    request = headers()
    for each in request.request_headers.headers.headers:
        if each.key == ":method":
            each.raw_value = method.encode()
    with door() as asked:
        answers = asked.process(request)

    assert ["request_headers"] == [answer.WhichOneof("response") for answer in answers]
    assert [EnvoyOutcome.NOT_A_PROMPT] == asked.observer.outcomes


def test_bytes_that_are_no_message_end_the_stream() -> None:
    """They are counted as a failure."""
    with door() as asked:
        call: Any = asked.channel.stream_stream(f"/{SERVICE}/Process", request_serializer=bytes)
        answers = list(call(iter([b"\xff\xff\xff"])))

    assert [] == answers
    assert [EnvoyOutcome.FAILED] == asked.observer.outcomes


def test_bytes_that_are_no_message_behind_a_prompt_count_no_second_time() -> None:
    """What became of the request is known by then."""
    sent = [headers().SerializeToString(), body(PROMPT).SerializeToString(), b"\xff\xff\xff"]
    with door() as asked:
        call: Any = asked.channel.stream_stream(f"/{SERVICE}/Process", request_serializer=bytes)
        answers = list(call(iter(sent)))

    assert 2 == len(answers)
    assert [EnvoyOutcome.ANSWERED] == asked.observer.outcomes


def test_a_body_that_trailers_follow_is_trimmed() -> None:
    """It is whole where Envoy says that it buffers, though it is not the end of the request."""
    request = wire.ProcessingRequest(request_body=wire.HttpBody(body=PROMPT))
    with door() as asked:
        answers = asked.process(headers(), request, TRAILERS)

    assert ["request_headers", "request_body", "request_trailers"] == [each.WhichOneof("response") for each in answers]
    assert [EnvoyOutcome.ANSWERED] == asked.observer.outcomes


def _many(count: int) -> wire.ProcessingRequest:
    request = headers()
    request.request_headers.headers.headers.extend([wire.HeaderValue(key="x", raw_value=b"y" * 100)] * count)
    return request


def test_a_huge_header_map_is_not_looked_at() -> None:
    """A request with more headers than any has passes; as many as are taken are joined."""
    with door() as asked:
        answers = asked.process(_many(100_000))

    assert [] == answers
    assert [EnvoyOutcome.UNREADABLE] == asked.observer.outcomes
    assert 900 * 102 - 2 == len(messages.headers_of(_many(900).request_headers)["x"])


def test_a_duplicated_content_type_is_of_no_kind() -> None:
    """Nobody knows which of both the agent takes."""
    exchange = EnvoyExchange(usage=True, answer_bytes=1_024)
    exchange.take(headers())
    exchange.take(body(PROMPT))
    twice = _response_headers(**{":status": "200", "content_type": "application/json"})
    twice.response_headers.headers.headers.append(wire.HeaderValue(key="Content-Type", raw_value=b"text/event-stream"))
    exchange.take(twice)

    assert not exchange.reads


@contextmanager
def _left_open(asked: Asked, count: int) -> Iterator[list[Any]]:
    """Open streams that send the beginning of a request and then nothing."""
    over: queue.SimpleQueue[None] = queue.SimpleQueue()

    def messages() -> Iterator[wire.ProcessingRequest]:
        yield headers()
        over.get()

    process = asked.channel.stream_stream(
        f"/{SERVICE}/Process",
        request_serializer=wire.ProcessingRequest.SerializeToString,
        response_deserializer=wire.ProcessingResponse.FromString,
    )
    calls = [process(messages()) for _ in range(count)]
    for call in calls:
        assert next(call).HasField("request_headers")
    try:
        yield calls
    finally:
        for call in calls:
            call.cancel()
            over.put(None)


def test_streams_that_are_left_open_are_bounded_in_number_and_time() -> None:
    """Those beyond envoy.max_exchanges end at once; each ends after envoy.exchange_age, and makes room."""
    options = EnvoyOptions(listen="127.0.0.1:0", max_exchanges=5, exchange_age=1.0)
    with door(options) as asked, _left_open(asked, 5) as calls:
        full = asked.process(headers(), body(PROMPT))
        ended = [list(call) for call in calls]
        answers = asked.process(headers(), body(PROMPT))

    assert ([], [[]] * 5) == (full, ended)
    assert 2 == len(answers)
    assert [EnvoyOutcome.BUSY, EnvoyOutcome.ANSWERED] == asked.observer.outcomes


def test_cancelled_streams_leave_nothing() -> None:
    """Their places are free again."""
    with door(EnvoyOptions(listen="127.0.0.1:0", max_exchanges=50)) as asked:
        with _left_open(asked, 50):
            assert 50 == asked.door.streams
        until(lambda: asked.door.streams == 0)
        answers = asked.process(headers(), body(PROMPT))

    assert 2 == len(answers)


def test_two_hundred_streams_at_once_are_all_trimmed() -> None:
    """Envoy opens one for each request."""
    with door(EnvoyOptions(listen="127.0.0.1:0", max_prompts=1_000)) as asked:
        process = asked.channel.stream_stream(
            f"/{SERVICE}/Process",
            request_serializer=wire.ProcessingRequest.SerializeToString,
            response_deserializer=wire.ProcessingResponse.FromString,
        )
        calls = [process(iter([headers(x_prompt_sidecar_run=str(number)), body(PROMPT)])) for number in range(200)]
        answers = [[each for each in call if each.WhichOneof("response")] for call in calls]

    assert [2] * 200 == list(map(len, answers))
    assert [EnvoyOutcome.ANSWERED] * 200 == asked.observer.outcomes


def test_a_peer_that_is_gone_without_a_word_is_noticed() -> None:
    """A machine that loses its power closes no connection; its streams end when it answers no ping."""
    with (
        door(bounds={"keepalive": 1.0, "keepalive_timeout": 1.0}) as asked,
        _Relay(asked.door.port) as relay,
        grpc.insecure_channel(f"127.0.0.1:{relay.port}", options=WIDE) as channel,
        _left_open(Asked(channel, asked.observer, asked.door), 3),
    ):
        assert 3 == asked.door.streams
        relay.stop_relaying()
        until(lambda: asked.door.streams == 0)


class _Relay:
    """Passes bytes of one connection on until it is told to pass none, and keeps it open."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._target = port
        self._silent = threading.Event()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in [self._listener, *self._open]:
            each.close()

    def stop_relaying(self) -> None:
        """Pass nothing on from now on."""
        self._silent.set()

    def _accept(self) -> None:
        one, _ = self._listener.accept()
        other = socket.create_connection(("127.0.0.1", self._target), PATIENCE)
        self._open += [one, other]
        for source, target in ((one, other), (other, one)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(65_536):
                if not self._silent.is_set():
                    target.sendall(piece)
        except OSError:
            pass


def test_trailers_behind_pieces_that_are_owed_an_answer() -> None:
    """The pieces are answered first, with all that has waited, and masks in it restored."""
    exchange = EnvoyExchange(usage=False, answer_bytes=1_000_000)
    exchange.take(headers())
    exchange.take(body(PROMPT))
    exchange.trimmed(
        ProcessedRequest(EnvoyOutcome.ANSWERED, b"", restore=lambda _, arguments: arguments.replace(MASK, "value"))
    )
    exchange.take(EVENTS)
    call = {"index": 0, "id": "c", "function": {"name": "deploy", "arguments": json.dumps([MASK], ensure_ascii=False)}}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    event = b"data: " + json.dumps({"id": "1", "choices": [choice]}, ensure_ascii=False).encode()  # without its end

    owed = [exchange.take(_response_body(piece)) for piece in (event[:50], event[50:-9], event[-9:])]
    answer = exchange.take(RESPONSE_TRAILERS)

    assert [SendAnswer(None, owed=True)] * 3 == owed
    assert isinstance(answer, SendAnswer)
    assert (2, True, messages.response_trailers()) == (answer.before, answer.last, answer.then)
    reply = wire.ProcessingResponse.FromString(answer.reply or b"").response_body.response.body_mutation.body
    assert event.replace(MASK.encode(), b"value") == reply.rstrip(b"\n")


KEY = "ghp_" + "FaKe0rNoTrEaL1bUtLo0kSlIkEiT2wHeNrEa"


_LONG_CALL = json.dumps(
    {
        "choices": [
            {"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '"' + "\\" * 1_000_000}}]}}
        ]
    }
)


@pytest.mark.parametrize(
    "piece", [b"data:1\n\n" * 250_000, f"data: {_LONG_CALL}\n\n".encode()], ids=["many events", "a long event"]
)
def test_others_have_their_turn_while_a_piece_is_searched(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many events it has, or how long one is: another exchange is answered meanwhile."""
    begun, over = threading.Event(), threading.Event()
    feed = RestoredStream.feed

    def begins(stream: RestoredStream, part: bytes, *, last: bool = False) -> bytes:
        begun.set()
        return feed(stream, part, last=last)

    monkeypatch.setattr(RestoredStream, "feed", begins)
    with door(core=_restoring()) as asked:
        requests, answers = _masked(asked)
        next(answers), next(answers)
        requests.put(EVENTS)
        next(answers)
        requests.put(_response_body(piece, last=True))

        def wait() -> None:
            next(answers)
            over.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert begun.wait(PATIENCE)
        assert 1 == len(asked.process(headers("/health")))
        assert not over.is_set()
        requests.put(None)
        thread.join(PATIENCE)
    assert over.is_set()


def test_a_long_piece_is_taken_in_parts() -> None:
    """What goes on is the same as of the whole, with values in place of masks."""
    call = {"index": 0, "id": "c", "function": {"name": "deploy", "arguments": json.dumps([MASK], ensure_ascii=False)}}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    event = f"data: {json.dumps({'id': '1', 'choices': [choice]}, ensure_ascii=False)}\n\n".encode()
    for piece in (event * 100, b"data: 1\n\n" * 2_000):
        exchange = EnvoyExchange(usage=True, answer_bytes=1_000_000)
        exchange.take(headers())
        exchange.take(body(PROMPT))
        exchange.trimmed(
            ProcessedRequest(EnvoyOutcome.ANSWERED, b"", restore=lambda _, arguments: arguments.replace(MASK, "value"))
        )
        exchange.take(EVENTS)
        ends = [0]
        while (end := piece_end(piece, ends[-1])) < len(piece):
            ends.append(end)
        assert len(ends) - 1 == sum(1 for _ in exchange.take_ahead(_response_body(piece)))
        assert len(ends) >= max(len(piece) // 4_096, piece.count(b"\n") // PIECE_LINES)
        answer = exchange.take(_response_body(piece))
        made = piece.replace(MASK.encode(), b"value")
        assert SendAnswer(messages.response_body(None if made == piece else made)) == answer


def _masked(asked: Asked) -> tuple[queue.Queue[wire.ProcessingRequest | None], Iterator[wire.ProcessingResponse]]:
    """An exchange whose prompt holds a secret: what it is sent, until None, and what it answers."""
    requests: queue.Queue[wire.ProcessingRequest | None] = queue.Queue()
    requests.put(headers())
    requests.put(body(chat(1, "a", question=f"Deploy with {KEY}.")))
    call = asked.channel.stream_stream(
        f"/{SERVICE}/Process",
        request_serializer=wire.ProcessingRequest.SerializeToString,
        response_deserializer=wire.ProcessingResponse.FromString,
    )
    return requests, (each for each in call(iter(requests.get, None)) if each.WhichOneof("response"))


def _restoring() -> Runs:
    """A core that masks, and restores what it masked."""
    guard = GuardOptions(mode="enforce", restore=("deploy:github_token",))
    limits = Limits(default_window=100_000)
    return core_of(Runs, limits=limits, guard=guard)


@pytest.mark.parametrize("cuts", [(), (50,), (50, -9), (30, 60, -60, -9)])
@pytest.mark.parametrize("ended", [False, True], ids=["cut", "ended"])
def test_trailers_behind_pieces_over_grpc(cuts: tuple[int, ...], *, ended: bool) -> None:
    """Each piece and the trailers have their answer in that order, and together the pieces are the answer, restored."""
    with door(core=_restoring()) as asked:
        requests, answers = _masked(asked)
        next(answers)
        sent = json.loads(next(answers).request_body.response.body_mutation.body)
        found = re.search("⟦github_token:[a-z0-9]{10}⟧", json.dumps(sent, ensure_ascii=False))
        assert found is not None
        arguments = json.dumps({"token": found[0]}, ensure_ascii=False)
        made = {"index": 0, "id": "c", "function": {"name": "deploy", "arguments": arguments}}
        choice = {"index": 0, "delta": {"tool_calls": [made]}, "finish_reason": "tool_calls"}
        event = b"data: " + json.dumps({"id": "1", "choices": [choice]}, ensure_ascii=False).encode()
        event += b"\n\n" * ended
        places = [0, *(cut % len(event) for cut in cuts), len(event)]
        requests.put(EVENTS)
        for at, end in itertools.pairwise(places):
            requests.put(_response_body(event[at:end]))
        requests.put(RESPONSE_TRAILERS)
        got = list(answers)
        requests.put(None)

    kinds = [each.WhichOneof("response") for each in got]
    assert ["response_headers", *["response_body"] * (len(cuts) + 1), "response_trailers"] == kinds
    pieces = iter(event[at:end] for at, end in itertools.pairwise(places))
    bodies = [each.response_body.response for each in got[1:-1]]
    whole = b"".join(
        each.body_mutation.body if each.HasField("body_mutation") else piece
        for each, piece in zip(bodies, pieces, strict=True)
    )
    assert event.replace(found[0].encode(), KEY.encode()).rstrip(b"\n") == whole.rstrip(b"\n")
    assert [EnvoyOutcome.ANSWERED] == asked.observer.outcomes


def _silent(address: str) -> socket.socket:
    """A connection on which nothing is said."""
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), PATIENCE)
    made.settimeout(PATIENCE)
    return made


def test_connections_beyond_the_bound_are_closed() -> None:
    """Each takes a file descriptor, and all doors of the process need some."""
    with ExitStack() as stack, door(bounds={"max_connections": 2, "handshake_timeout": 600.0}) as asked:
        waiting = {stack.enter_context(_silent(asked.door.address)) for _ in range(9)}
        while len(waiting) > 2:
            for each in select.select(list(waiting), [], [], PATIENCE)[0]:
                if not each.recv(4_096):  # what comes before its end are the door's HTTP/2 settings
                    waiting.remove(each)


def test_a_connection_that_says_nothing_ends() -> None:
    """Envoy speaks HTTP/2 at once."""
    with door(bounds={"handshake_timeout": 0.1}) as asked, _silent(asked.door.address) as silent:
        while silent.recv(4_096):
            pass
