"""Where many calls are refused most of the refusals wait, so that others are served meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prompt_sidecar.doors.grpc.refusing import AT_ONCE
from tests.doors.grpc.frames import TRIM, Peer, message, peer
from tests.doors.grpc.serving import PATIENCE, Serving, request, serving
from tests.doors.grpc.test_hostile_calls import OPTIONS, TOKEN, Bounds

HELD = 100
KNOWN = (("authorization", f"Bearer {TOKEN}"),)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Serving]:
    """A server that wants a token, and that sends no refusals after the first ones until a test says so."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice:{TOKEN}\n")
    tokens.chmod(0o600)
    with serving(replace(OPTIONS, max_streams=1_000, slow_messages=4, tokens_file=str(tokens)), Bounds()) as found:
        found.server.door._refusing._a_second = 0.0  # noqa: SLF001
        yield found


@pytest.fixture
def flood(served: Serving) -> Iterator[tuple[Peer, list[int]]]:
    """A connection with many calls that are refused, and those that wait; the first ones have their status.

    gRPC hands calls over in an order of its own.
    """
    with peer(served.address) as attacker:
        streams = [attacker.call(TRIM) for _ in range(AT_ONCE + HELD)]
        attacker.ended_some(streams, AT_ONCE)
        _wait_for_held(served, HELD)
        yield attacker, [stream for stream in streams if stream not in attacker.over]


def _wait_for_held(served: Serving, count: int) -> None:
    for _ in range(int(PATIENCE / 0.01)):
        if served.server.door._refusing.held == count:  # noqa: SLF001
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{served.server.door._refusing.held} are held, not {count}")  # noqa: SLF001


def _send(served: Serving, count: int) -> None:
    """Let so many refusals be sent."""
    served.server.door._refusing._left = float(count)  # noqa: SLF001


def test_after_the_first_ones_refusals_wait(served: Serving, flood: tuple[Peer, list[int]]) -> None:
    """A client that sends a new call for each refused one cannot send as fast as it is refused; others are served."""
    assert flood
    assert served.stub.TrimPrompt(request(), timeout=PATIENCE, metadata=KNOWN).fits
    _wait_for_held(served, HELD)


def test_methods_that_are_not_served_are_refused_as_slowly(served: Serving, flood: tuple[Peer, list[int]]) -> None:
    """No name of a method is a way around it."""
    flood[0].call("/no.such.Service/Method")
    _wait_for_held(served, HELD + 1)


def test_connections_take_turns(served: Serving, flood: tuple[Peer, list[int]]) -> None:
    """A caller that is refused once has its status before those that a flood still waits for."""
    assert flood
    with peer(served.address) as other:
        stream = other.call(TRIM)
        _wait_for_held(served, HELD + 1)
        _send(served, 2)
        assert b"authorization: Bearer" in other.ended(stream)
        assert HELD - 1 <= served.server.door._refusing.held  # noqa: SLF001


def test_what_waits_is_forgotten_with_its_connection(served: Serving, flood: tuple[Peer, list[int]]) -> None:
    """Or when its client cancels it."""
    flood[0].socket.close()
    _wait_for_held(served, 0)


def test_a_call_whose_message_is_being_read_is_refused_at_once(served: Serving, flood: tuple[Peer, list[int]]) -> None:
    """Else gRPC would keep all of the messages of refused calls, of whatever size, for as long as refusals wait."""
    assert flood
    with peer(served.address) as slow:
        streams = [slow.call(TRIM, message(b"x" * 10, 1_000_000), metadata=KNOWN) for _ in range(8)]
        assert b"server.slow_messages" in slow.ended_some(streams, 4)
        _wait_for_held(served, HELD)


def test_what_waits_is_bounded(served: Serving, flood: tuple[Peer, list[int]]) -> None:
    """Of the connection that has the most, the oldest call is cut off without a status, and the bound is reported."""
    attacker, streams = flood
    served.server.door._refusing._most = HELD  # noqa: SLF001
    with peer(served.address) as other:
        other.call(TRIM)
        attacker.ended_some(streams, 1)
        _wait_for_held(served, HELD)
    bounds = served.server.shared.observer
    assert isinstance(bounds, Bounds)
    assert {"server.held_refusals"} == set(bounds.seen)


def test_a_stop_sends_all_that_wait(served: Serving, flood: tuple[Peer, list[int]]) -> None:
    """And refuses what comes after it at once."""
    attacker, streams = flood
    stopping = threading.Thread(target=served.server.stop, args=(PATIENCE,))
    stopping.start()
    attacker.ended(*streams)
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
