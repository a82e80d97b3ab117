"""Tests of how calls work along: turns, and what a call does with its turn while it waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from threading import Lock

import pytest

from prompt_sidecar.calls.use_cases import UseCases
from prompt_sidecar.engine.runs.pace import LONG, Lane, Pace
from prompt_sidecar.errors import DeadlinePassed
from prompt_sidecar.facts.trim_calls import TrimAnswer, TrimCall
from tests.cli.running import PATIENCE
from tests.engine.runs.making import OPENAI_CHAT, Engine, history
from tests.promises.engine import CALLER, Clock


def test_a_call_waits_for_a_lock_without_its_turn() -> None:
    """Whoever has the lock may be waiting for the turn: else both would wait for ever."""
    clock = Clock()
    lane, lock = Lane(clock), Lock()
    waits: list[bool] = []

    def check() -> None:
        waits.append(lane.taken)
        if len(waits) > 1:
            lock.release()

    with Pace(check, lane) as pace:
        clock.now += 2 * LONG
        pace()
        assert (True, [False]) == (lane.taken, waits)
        lock.acquire()
        with pace.holding(lock):
            assert [False, False] == waits


def test_a_call_that_only_waits_is_not_long() -> None:
    """Beside long calls a short one takes longer than `LONG`; if it took turns, it would wait for all of them."""
    clock, worked = Clock(), Clock()
    lane = Lane(clock, worked)
    lane.enter(lambda: None)

    def waits() -> None:
        assert not lane.waiting, "a short call waits for its turn among long ones"

    with Pace(waits, lane) as pace:
        for _ in range(9):
            clock.now += LONG
            worked.now += LONG / 10
            pace()
    lane.leave()
    with Pace(waits, lane) as pace:
        clock.now += 2 * LONG
        worked.now += 2 * LONG
        pace()
        assert lane.taken


def test_a_request_is_read_at_its_calls_pace() -> None:
    """Reading a large request takes turns with other long calls, trimming goes on in the same turn, and writing too."""
    clock = Clock()
    engine = Engine(limit=100_000)
    lane = engine.runs._lane = Lane(clock)  # noqa: SLF001
    call = TrimCall(CALLER, "r", OPENAI_CHAT, json.dumps(history(OPENAI_CHAT, 1)).encode())
    turns: list[bool] = []

    def read(pace: Callable[[], None]) -> TrimCall:
        clock.now += 2 * LONG
        pace()
        turns.append(lane.taken)
        return call

    def write(_: TrimCall, answer: TrimAnswer) -> TrimAnswer:
        return answer

    UseCases(engine.runs).trim(call.body, read, lambda: None, write)
    assert ([True], False) == (turns, lane.taken)


def test_a_call_can_end_while_its_request_is_read() -> None:
    """The deadline holds for reading, too, and nothing is left of the turn."""
    engine = Engine(limit=100_000)

    def read(pace: Callable[[], None]) -> TrimCall:
        pace()
        raise AssertionError("the call has ended")

    def passed() -> None:
        raise DeadlinePassed("the deadline has passed")

    with pytest.raises(DeadlinePassed):
        UseCases(engine.runs).trim(b"", read, passed, lambda _, answer: answer)
    assert not engine.runs._lane.taken  # noqa: SLF001


def test_turns_are_given_in_order() -> None:
    """A call that lets the next one go on comes after those that wait, though it asks again at once."""
    lane = Lane(Clock())
    order: list[str] = []
    waits = threading.Semaphore(0)

    def run(name: str) -> None:
        lane.enter(waits.release)
        order.append(name)
        lane.leave()

    lane.enter(lambda: None)
    threads = []
    for name in ("second", "third"):
        threads.append(threading.Thread(target=run, args=(name,)))
        threads[-1].start()
        assert waits.acquire(timeout=PATIENCE)
    lane.leave()
    lane.enter(lambda: None)
    order.append("first again")
    lane.leave()
    for thread in threads:
        thread.join(PATIENCE)
    assert (["second", "third", "first again"], False) == (order, lane.taken)


def test_a_call_that_ends_while_it_waits_leaves_no_turn() -> None:
    """Whether its turn has come by then or not."""
    lane = Lane(Clock())

    def ends() -> None:
        raise DeadlinePassed("the deadline has passed")

    def comes_too_late() -> None:
        lane.leave()
        ends()

    lane.enter(ends)
    with pytest.raises(DeadlinePassed):
        lane.enter(ends)
    assert (0, True) == (lane.waiting, lane.taken)
    with pytest.raises(DeadlinePassed):
        lane.enter(comes_too_late)
    assert (0, False) == (lane.waiting, lane.taken)
