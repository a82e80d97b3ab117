"""Callers that begin calls and do not go on, or do not take their answers: others are answered all the same."""

from __future__ import annotations

import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc

from prompt_sidecar.calls.options import ServerOptions
from prompt_sidecar.doors.grpc.handed import unknown_grpc
from prompt_sidecar.doors.grpc.reception import SLOW_AFTER
from prompt_sidecar.process.descriptors import SPARE, connections
from prompt_sidecar.process.starting import StartError
from prompt_sidecar.telemetry.observer import Observer
from prompt_sidecar.v1 import service_pb2_grpc
from tests.doors.grpc.frames import (
    CHECK,
    DATA,
    END_STREAM,
    FRAME_BYTES,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    SETTINGS,
    TRIM,
    WATCH,
    Peer,
    frame,
    message,
    peer,
)
from tests.doors.grpc.serving import PATIENCE, Serving, failure, request, serving
from tests.doors.grpc.test_callers import certificates

__all__ = ["certificates"]

HOURS = 3_600.0
TOKEN = "alice-token-0123456789"
OPTIONS = ServerOptions(
    listen="127.0.0.1:0", sweep_interval=HOURS, workers=2, message_timeout=HOURS, answer_timeout=HOURS
)
"""Nothing ends by its time, unless a test says so."""


class Bounds(Observer):
    """Hears which bounds were reached."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.reports = threading.Semaphore(0)

    def watch(self, *_: Any, buffers: Callable[[], Mapping[str, int]] | None = None, **__: Any) -> None:
        """What the server keeps is asked for by tests."""
        self.buffers = buffers

    def reached(self, bound: str) -> None:
        """One was."""
        self.seen.append(bound)
        self.reports.release()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is closed at the end."""
    with ExitStack() as found:
        yield found


def _check(channel: grpc.Channel) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status)


def _fits(served: Serving) -> bool:
    return bool(served.stub.TrimPrompt(request(), timeout=PATIENCE).fits)


def _served(served: Serving) -> bool:
    """Whether a call was served and not refused for want of a place."""
    try:
        return _fits(served)
    except grpc.RpcError as error:
        refused: Any = error
        if refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            return False
        raise


def _half() -> bytes:
    raw = request().SerializeToString()
    return message(raw[: len(raw) // 2], len(raw))


def _silent(served: Serving, give: Callable[[], object]) -> Any:
    """A call through gRPC's own client that sends its message once `give` returns."""

    def messages() -> Iterator[bytes]:
        give()
        yield request().SerializeToString()

    call: Any = served.channel.stream_unary(TRIM)
    return call.future(messages(), timeout=PATIENCE)


@pytest.mark.parametrize("sent", [b"", b"\0\0", _half()], ids=["nothing", "half a prefix", "half a message"])
def test_calls_without_a_message_hold_up_nobody(stack: ExitStack, sent: bytes) -> None:
    """As many as there are threads, and many times as many: others are answered, and health is."""
    with serving(OPTIONS) as served:
        for _ in range(4):
            attacker = stack.enter_context(peer(served.address))
            for _ in range(50):
                attacker.call(TRIM, sent)
                attacker.call(CHECK)
            assert _fits(served)
            assert _check(served.channel)


def test_health_checks_without_a_message_hold_up_nobody(stack: ExitStack) -> None:
    """Eighty health checks that never send a message: a real one is answered, and so are calls."""
    with serving(OPTIONS) as served:
        attacker = stack.enter_context(peer(served.address))
        for _ in range(80):
            attacker.call(CHECK)
        assert _check(served.channel)
        assert _fits(served)


def test_one_connection_cannot_take_every_place(stack: ExitStack) -> None:
    """As many silent calls as may run and wait, of one connection: another's call takes a place of theirs."""
    with serving(replace(OPTIONS, max_calls=8, max_streams=64)) as served:
        attacker = stack.enter_context(peer(served.address))
        for _ in range(64):
            attacker.call(TRIM)
        for _ in range(8):
            assert _fits(served)


def test_many_connections_cannot_take_every_place(stack: ExitStack) -> None:
    """Silent calls on a connection each, in all the places: those that are slow give way."""
    with serving(replace(OPTIONS, max_calls=8, slow_messages=100)) as served:
        for _ in range(8):
            attacker = stack.enter_context(peer(served.address))
            attacker.call(TRIM)
        # They are slow after a tenth of a second; before that a new call is refused, and tried again.
        while not _served(served):
            threading.Event().wait(SLOW_AFTER)


def test_without_a_token_nothing_is_read(stack: ExitStack, tmp_path: Path) -> None:
    """A caller without a token is refused on its headers: no message is waited for, and no more of one is taken."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice:{TOKEN}\n")
    tokens.chmod(0o600)
    with serving(replace(OPTIONS, tokens_file=str(tokens))) as served:
        attacker = stack.enter_context(peer(served.address))
        stream = attacker.call(TRIM)
        assert b"authorization: Bearer" in attacker.ended(stream)
        refused = failure(_silent(served, threading.Event().wait).result)  # never sends its message
        assert ("UNAUTHENTICATED", "UNAUTHENTICATED") == (refused.code, refused.reason)
        known = (("authorization", f"Bearer {TOKEN}"),)
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE, metadata=known).fits


def test_a_message_that_does_not_come_ends_the_call() -> None:
    """After server.message_timeout the call ends, with a reason; one whose message comes late but in time is served."""
    with serving(replace(OPTIONS, message_timeout=0.3)) as served:
        late = failure(_silent(served, threading.Event().wait).result)
        assert ("DEADLINE_EXCEEDED", "MESSAGE_LATE") == (late.code, late.reason)
        assert "0.3 s" in late.message
    with serving(OPTIONS) as served:
        go = threading.Event()
        slow = _silent(served, lambda: go.wait(3 * SLOW_AFTER))
        assert slow.result(PATIENCE)


def test_a_slow_message_is_served_beside_slow_attackers(stack: ExitStack) -> None:
    """When too many messages are slow, the connection with the most gives way: one slow call of another one's stays."""
    with serving(replace(OPTIONS, slow_messages=4)) as served:
        go = threading.Event()
        slow = _silent(served, go.wait)
        attacker = stack.enter_context(peer(served.address))
        streams = [attacker.call(TRIM) for _ in range(12)]
        assert b"server.slow_messages" in attacker.ended_some(streams, 9)
        go.set()
        assert slow.result(PATIENCE)


def test_slow_messages_that_there_is_no_memory_for_give_way(stack: ExitStack) -> None:
    """Each may become as large as any: where memory is short, fewer are waited for than the setting allows."""
    with serving(replace(OPTIONS, slow_messages=100)) as served:
        served.server.door._own.room = lambda: 3 * OPTIONS.max_message_bytes  # noqa: SLF001 - as where little is left
        attacker = stack.enter_context(peer(served.address))
        streams = [attacker.call(TRIM) for _ in range(12)]
        assert b"server.slow_messages" in attacker.ended_some(streams, 9)
        assert served.stub.TrimPrompt(request(), timeout=PATIENCE).fits


def test_a_message_of_nothing_and_a_caller_that_goes() -> None:
    """A call that ends without a message is UNIMPLEMENTED, as gRPC has it; one whose connection breaks is forgotten."""
    with serving(replace(OPTIONS, max_calls=4)) as served:
        empty: Any = served.channel.stream_unary(TRIM)
        assert "UNIMPLEMENTED" == failure(lambda: empty(iter(()), timeout=PATIENCE)).code
        for _ in range(8):
            with peer(served.address) as gone:
                for _ in range(4):
                    gone.call(TRIM, _half())
        while not _served(served):
            threading.Event().wait(SLOW_AFTER)
        assert served.server.stop(HOURS)


def test_of_a_message_that_nobody_requests_little_is_taken(stack: ExitStack) -> None:
    """However fast a connection is, a call that waits or is refused has the window of HTTP/2's default, 64 KiB."""
    served = stack.enter_context(serving(OPTIONS))
    fast = stack.enter_context(peer(served.address))
    sent, windows = message(b"x" * 60_000), list[int]()
    for _ in range(20):
        stream = fast.call(TRIM)
        for at in range(0, len(sent), FRAME_BYTES):
            last = at + FRAME_BYTES >= len(sent)
            fast.socket.sendall(frame(DATA, END_STREAM if last else 0, stream, sent[at : at + FRAME_BYTES]))
        for kind, flags, of, payload in fast.frames():
            if kind == SETTINGS:
                windows += [value for name, value in struct.iter_unpack(">HI", payload) if name == INITIAL_WINDOW]
            if of == stream and kind == HEADERS and flags & END_STREAM:
                break
    assert max(windows, default=0) <= 65_535, windows


def test_an_answer_that_is_not_taken_is_let_go(stack: ExitStack) -> None:
    """A caller that takes nothing of its answer is cut off after server.answer_timeout, and the bound is told."""
    bounds = Bounds()
    with serving(replace(OPTIONS, answer_timeout=0.2), bounds) as served:
        reader = stack.enter_context(peer(served.address, window=0))
        stream = reader.call(TRIM, message(request().SerializeToString()), end=True)
        reader.ended(stream)
        assert bounds.reports.acquire(timeout=PATIENCE)
        assert "server.answer_timeout" == bounds.seen[0]
        assert _fits(served)


def test_answers_that_are_not_taken_are_bounded(stack: ExitStack) -> None:
    """There are never more of them than calls may run: the connection that has the most loses its oldest."""
    bounds = Bounds()
    with serving(replace(OPTIONS, max_calls=4, workers=1), bounds) as served:
        reader = stack.enter_context(peer(served.address, window=0))
        asked = message(request().SerializeToString())
        streams = []
        for _ in range(12):
            streams.append(reader.call(TRIM, asked, end=True))
            reader.begun(streams[-1])  # the next one waits for the same thread, so the order is known
            assert _fits(served)
        reader.ended(*streams[:8])
        assert {"server.max_calls"} == set(bounds.seen)


def test_bytes_of_answers_that_are_not_taken_are_bounded(stack: ExitStack) -> None:
    """The connection that has most of them loses its oldest; a single answer may be larger than all may be."""
    bounds = Bounds()
    text = b"0" * 10_000
    sent = request(body=b'[{"role":"user","content":"%s"}]' % text).SerializeToString()
    with serving(replace(OPTIONS, untaken_bytes=35_000, workers=1), bounds) as served:
        small, large = (stack.enter_context(peer(served.address, window=0)) for _ in range(2))
        kept = small.call(TRIM, message(request().SerializeToString()), end=True)
        small.begun(kept)
        assert _fits(served)
        streams = []
        for _ in range(8):
            streams.append(large.call(TRIM, message(sent), end=True))
            large.begun(streams[-1])  # the next one waits for the same thread, so the order is known
            assert _fits(served)
        large.ended(*streams[:5])
        assert {"server.untaken_bytes"} == set(bounds.seen)
        assert bounds.buffers is not None
        assert 20_000 < bounds.buffers()["untaken_answers"] < 35_000
        small.take(kept, 10_000)
        assert b"hello" in small.ended(kept)
    with serving(replace(OPTIONS, untaken_bytes=1_024)) as served:
        answer = served.stub.TrimPrompt(request(body=b'[{"role":"user","content":"%s"}]' % text), timeout=PATIENCE)
        assert text in answer.json_body


def test_health_watches_are_bounded(stack: ExitStack) -> None:
    """Watches stay open for as long as their callers like, but there are only so many."""
    with serving(replace(OPTIONS, max_streams=200)) as served:
        watcher = stack.enter_context(peer(served.address))
        streams = [watcher.call(WATCH, message(b""), end=True) for _ in range(100)]
        watcher.ended_some(streams, 100 - 64)
        assert _check(served.channel)


def test_watchers_that_take_nothing_hold_up_nobody(stack: ExitStack) -> None:
    """Watchers that do not take their first answer, or go in the middle of it: health is told, and calls are served."""
    with serving(OPTIONS) as served:
        for _ in range(4):
            taker = stack.enter_context(peer(served.address, window=0))
            for _ in range(8):
                taker.call(WATCH, message(b""), end=True)
            with peer(served.address) as gone:
                for _ in range(8):
                    gone.call(WATCH, message(b""), end=True)
            assert _check(served.channel)
            assert _fits(served)


def test_open_reflection_streams_end() -> None:
    """Streams that ask nothing hold the threads of reflection only so long; then others are answered."""
    with serving(replace(OPTIONS, message_timeout=0.3)) as served:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(served.channel)

        def ask() -> Iterator[Any]:
            threading.Event().wait(PATIENCE)
            yield from ()

        held = [stub.ServerReflectionInfo(ask(), timeout=PATIENCE) for _ in range(8)]
        for each in held:
            assert "CANCELLED" == failure(partial(next, each)).code


def test_a_stop_does_not_wait_for_messages_that_do_not_come(stack: ExitStack) -> None:
    """With an hour's grace the stop is over as soon as what is silent is known to be slow."""
    with serving(replace(OPTIONS, grace=HOURS)) as served:
        attacker = stack.enter_context(peer(served.address))
        for _ in range(20):
            attacker.call(TRIM, _half())
        assert _fits(served)
        assert served.server.stop()


def test_connections_are_bounded_for_each_listener(stack: ExitStack, tmp_path: Path) -> None:
    """One too many is closed at once; those that are open go on, and the unix socket's are counted apart."""
    path = tmp_path / "s.sock"
    with serving(replace(OPTIONS, max_connections=8, socket=str(path))) as served:
        assert _fits(served)
        taken = [stack.enter_context(peer(served.address)) for _ in range(7)]
        one_too_many = socket.create_connection(("127.0.0.1", served.server.port), PATIENCE)
        stack.enter_context(one_too_many)
        assert b"" == one_too_many.recv(1)
        assert _fits(served)
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(request("u"), timeout=PATIENCE).fits
        assert b"CANCELLED" not in _first(taken[0])


def _silent_until_closed(port: int) -> None:
    """Connect and say nothing until the server ends it; half as long as gRPC would take by itself."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE / 2) as silent:
        while silent.recv(1_024):
            pass


def _first(one: Peer) -> bytes:
    return next(one.frames())[3]


def test_a_connection_that_says_nothing_is_closed(stack: ExitStack) -> None:
    """A connection that does not even begin HTTP/2 is closed after server.handshake_timeout, an idle one after its."""
    with serving(replace(OPTIONS, handshake_timeout=0.3, connection_idle=1.0)) as served:
        _silent_until_closed(served.server.port)
        idle = stack.enter_context(peer(served.address))
        idle.closed()


def test_a_connection_that_begins_no_tls_is_closed(certificates: Path) -> None:
    """The same time holds for TLS, before which there is no HTTP/2 to begin."""
    secured = replace(
        OPTIONS, tls_certificate=str(certificates / "server.pem"), tls_key=str(certificates / "server.key")
    )
    with serving(replace(secured, handshake_timeout=0.3)) as served:
        _silent_until_closed(served.server.port)


def test_a_peer_that_has_gone_without_a_word_is_noticed(stack: ExitStack) -> None:
    """One that does not answer a ping is closed after server.keepalive_timeout."""
    with serving(replace(OPTIONS, keepalive=1.0, keepalive_timeout=1.0)) as served:
        mute = stack.enter_context(peer(served.address))
        _first(mute)  # the settings, which are acknowledged: else their time would end the connection
        mute.call(TRIM)
        while mute.socket.recv(65_536):
            pass  # without an answer to what it reads


def test_a_connection_ends_at_its_age_and_its_calls_do_not(stack: ExitStack) -> None:
    """After server.connection_age a client is told to connect anew; a call that is under way is answered before."""
    with serving(replace(OPTIONS, connection_age=1.0)) as served:
        old = stack.enter_context(peer(served.address))
        stream = old.call(TRIM)
        assert GOAWAY in (kind for kind, *_ in old.frames())
        old.socket.sendall(frame(DATA, END_STREAM, stream, message(request().SerializeToString())))
        assert old.ended(stream)
        old.closed()


def test_one_connection_has_so_many_streams(stack: ExitStack) -> None:
    """The server tells its bound on streams, which clients keep to."""
    with serving(replace(OPTIONS, max_streams=7)) as served:
        settings = _first(stack.enter_context(peer(served.address)))
        setting = {
            settings[at : at + 2]: int.from_bytes(settings[at + 2 : at + 6], "big") for at in range(0, len(settings), 6)
        }
        assert 7 == setting[b"\0\3"]  # SETTINGS_MAX_CONCURRENT_STREAMS


def test_the_installed_grpc_has_what_the_reception_needs() -> None:
    """What is private to gRPC and used all the same is there."""
    assert not unknown_grpc()


def test_connections_leave_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    """The soft limit is raised where that is allowed; else there are fewer connections, with a warning; else none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 1 == connections(1, 2)
    top = soft if hard == resource.RLIM_INFINITY else hard
    if top != resource.RLIM_INFINITY:
        found = connections(top, 2)
        assert (top - SPARE) // 2 == found
        assert "ulimit -n" in caplog.text
        with pytest.raises(StartError, match="ulimit -n"):
            connections(top, top)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
