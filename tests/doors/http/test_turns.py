"""Requests begin in fair turns, and a fast stream waits."""

from __future__ import annotations

import asyncio
import random

import pytest

from prompt_sidecar.answers.answer_stream import PIECE_LINES, piece_end
from prompt_sidecar.calls.turns import Owner
from prompt_sidecar.doors.http.turns import (
    BEGINNING_BOUND,
    LINE_BYTES,
    RATE_BOUND,
    Beginnings,
    BeginningTurn,
    StreamPace,
    paced_bytes,
)


def test_another_caller_begins_before_a_burst() -> None:
    """However many requests of one caller wait, that of another is next, and all have their turn."""

    async def run() -> tuple[list[str], list[str], int]:
        reached: list[str] = []
        beginnings, order = Beginnings(4, reached.append), list[str]()

        async def one(caller: str, connection: int) -> None:
            turn = await beginnings.turn(Owner(caller, f"{connection}"))
            order.append(caller)
            await asyncio.sleep(0)
            turn.end()

        burst = [asyncio.ensure_future(one("burst", number)) for number in range(100)]
        await asyncio.sleep(0)
        await asyncio.gather(one("other", 0), *burst)
        return order, reached, beginnings.waiting

    order, reached, waiting = asyncio.run(run())
    assert order.index("other") <= 8
    assert 101 == len(order)
    assert {BEGINNING_BOUND} == set(reached)
    assert 0 == waiting


def test_one_caller_leaves_turns_to_others() -> None:
    """Its requests may take long; another's begins all the same."""

    async def run() -> int:
        beginnings = Beginnings(16)
        waiting = [asyncio.ensure_future(beginnings.turn(Owner("slow", f"{number}"))) for number in range(20)]
        await asyncio.sleep(0)
        await beginnings.turn(Owner("other", "0"))
        begun = sum(each.done() for each in waiting)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return begun

    assert 14 == asyncio.run(run())


@pytest.mark.parametrize("seed", range(8))
def test_no_turn_is_lost(seed: int) -> None:
    """Whatever is cancelled, and whenever, as many begin at once as may in the end, and never more."""
    chance = random.Random(seed)

    async def run() -> None:
        beginnings, running, most = Beginnings(3), 0, 0

        async def one(caller: str) -> None:
            nonlocal running, most
            turn = await beginnings.turn(Owner(caller, caller))
            try:
                running += 1
                most = max(most, running)
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                running -= 1
                turn.end()
                turn.end()

        tasks = [asyncio.ensure_future(one(f"{number % 7}")) for number in range(60)]
        while not all(each.done() for each in tasks):
            await asyncio.sleep(0)
            chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert most <= 3
        assert 0 == beginnings.waiting
        turns = [await beginnings.turn(Owner(f"{number}", "")) for number in range(3)]
        assert 3 == len(turns)

    asyncio.run(run())


def test_a_request_that_has_just_been_cancelled_is_given_no_turn() -> None:
    """Another's turn ends before the cancelled one has noticed: that neither fails nor loses a turn."""

    async def run() -> None:
        beginnings = Beginnings(1)
        first = await beginnings.turn(Owner("one", ""))
        cancelled, next_one = (asyncio.ensure_future(beginnings.turn(Owner(name, ""))) for name in ("two", "three"))
        await asyncio.sleep(0)
        cancelled.cancel()
        first.end()
        (await next_one).end()
        await asyncio.gather(cancelled, return_exceptions=True)
        (await beginnings.turn(Owner("four", ""))).end()
        assert cancelled.cancelled()
        assert 0 == beginnings.waiting

    asyncio.run(run())


def test_a_turn_ends_in_a_thread_that_waits() -> None:
    """Its request goes on later, and the next one begins at once."""

    async def run() -> None:
        beginnings = Beginnings(1)
        first = await beginnings.turn(Owner("one", ""))
        next_one = asyncio.ensure_future(beginnings.turn(Owner("two", "")))
        await asyncio.to_thread(first.end_in_thread)
        (await next_one).end()

    asyncio.run(run())


def test_a_turn_ends_soon_after_its_prompt_is_sent() -> None:
    """Also if the provider does not answer; ending it again changes nothing."""

    async def run() -> int:
        ended: list[None] = []
        over = asyncio.Event()

        def end() -> None:
            ended.append(None)
            over.set()

        turn = BeginningTurn(end)
        turn.end_soon()
        turn.end_soon()
        await over.wait()
        turn.end()
        turn.end_soon()
        return len(ended)

    assert 1 == asyncio.run(run())


def test_a_fast_stream_waits() -> None:
    """A burst does not; from then on it has its rate, and what it did not use before counts up to the burst."""
    reached: list[str] = []
    now = 100.0
    pace = StreamPace(1_000.0, 4_000, reached.append, lambda: now)

    assert 0.0 == pace.wait_after(4_000)
    assert [] == reached
    assert pytest.approx(0.5) == pace.wait_after(500)
    now += 0.5
    assert pytest.approx(2.0) == pace.wait_after(2_000)
    now += 2.0
    assert [RATE_BOUND] == reached
    now += 60.0
    assert 0.0 == pace.wait_after(4_000)
    assert pytest.approx(0.001) == pace.wait_after(1)


def test_a_stream_as_models_send_never_waits() -> None:
    """Two hundred kilobytes a second, in events."""
    now = 0.0
    pace = StreamPace(4_194_304.0, 4_194_304, now=lambda: now)
    for _ in range(2_000):
        now += 0.001
        assert 0.0 == pace.wait_after(200)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_stream_of_short_lines_counts_by_its_lines(end: bytes) -> None:
    """Each takes time of its own, however little it says; long lines count as their bytes, however they end."""
    assert 2_000 * LINE_BYTES == paced_bytes((b": still there" + end * 2) * 1_000)
    assert len(b"data: " + b"a" * 5_000 + end * 2) == paced_bytes(b"data: " + b"a" * 5_000 + end * 2)
    assert 0 == paced_bytes(b"")


def test_events_of_a_fast_model_never_wait() -> None:
    """A thousand tokens a second, each in an event of three lines; an answer of a thousand may come at once."""
    event = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
    now = 0.0
    pace = StreamPace(4_194_304.0, 4_194_304, now=lambda: now)
    assert 0.0 == pace.wait_after(paced_bytes(event * 1_000))
    for _ in range(5_000):
        now += 0.001
        assert 0.0 == pace.wait_after(paced_bytes(event))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_piece_has_few_lines(end: bytes) -> None:
    """The event loop is free again after each of them; an answer's events come in pieces as large as before."""
    event = b'data: {"choices":[{"delta":{"content":" word"}}]}' + end * 2
    for chunk in (b": still there" + end * 2, b":" + end, event, b"data: " + b"a" * 5_000 + end * 2):
        sent = chunk * (100_000 // len(chunk))
        pieces, at = list[bytes](), 0
        while at < len(sent):
            pieces.append(sent[at : (at := piece_end(sent, at))])
        assert sent == b"".join(pieces)
        assert all(piece.count(end) <= PIECE_LINES for piece in pieces)
        assert chunk != event or len(pieces) <= 1 + len(sent) // 4_096
