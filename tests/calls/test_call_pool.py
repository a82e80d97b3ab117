"""Calls run in a few threads at once, and no owner has all of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Lock
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar import slots
from prompt_sidecar.calls import call_pool
from prompt_sidecar.calls.call_pool import LARGE, CallPool
from prompt_sidecar.calls.pool import NO_THREAD, WorkerPool
from prompt_sidecar.calls.turns import Owner

PATIENCE: Final = 60.0
SOON: Final = 0.05
"""Seconds in which what must not happen would have happened, nearly always."""


class Work:
    """Functions that a test holds, and what has begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.changed = threading.Condition()
        self._going: set[str] = set()

    def run(self, name: str) -> str:
        """Wait until `end` is called with the name."""
        with self.changed:
            self.begun.append(name)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: name in self._going, PATIENCE)
        return name

    def rest(self, name: str) -> str:
        """As `run`, without a slot."""
        with slots.waiting():
            return self.run(name)

    def end(self, *names: str) -> None:
        """Let these end."""
        with self.changed:
            self._going.update(names)
            self.changed.notify_all()

    def wait_for(self, *names: str) -> None:
        """Wait until these have begun, and no others."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= len(names), PATIENCE), self.begun
            self.changed.wait_for(lambda: len(self.begun) > len(names), SOON)
            assert sorted(names) == sorted(self.begun)


@pytest.fixture
def work() -> Iterator[Work]:
    """Work that ends with the test."""
    made = Work()
    yield made
    made.end(*(f"{owner}{number}" for owner in "abcd" for number in range(20)))


def _owner(name: str) -> Owner:
    return Owner(name, name)


def _submit(pool: CallPool, work: Work, *names: str, rests: bool = False, size: int = 0) -> list[Future[str]]:
    """Submit work whose owner is the first letter of its name."""
    return [pool.submit_for(_owner(name[0]), size, work.rest if rests else work.run, name) for name in names]


def test_a_few_run_at_once(work: Work) -> None:
    """The next one begins when one ends."""
    pool = CallPool(8, 2, "t")
    done = _submit(pool, work, "a0", "b0", "c0")
    work.wait_for("a0", "b0")
    assert 3 == pool.pending
    work.end("b0")
    work.wait_for("a0", "b0", "c0")
    work.end("a0", "c0")
    assert ["a0", "b0", "c0"] == [each.result(PATIENCE) for each in done]
    pool.shutdown()
    assert 0 == pool.pending


def test_one_that_waits_lets_another_run(work: Work) -> None:
    """And goes on at once when it has waited, however many run then."""
    pool = CallPool(8, 1, "t")
    first = _submit(pool, work, "a0", rests=True)
    work.wait_for("a0")
    others = _submit(pool, work, "b0", "b1")
    work.wait_for("a0", "b0")
    work.end("a0")
    assert "a0" == first[0].result(PATIENCE)
    work.wait_for("a0", "b0")
    work.end("b0", "b1")
    assert ["b0", "b1"] == [each.result(PATIENCE) for each in others]


def test_no_owner_has_all_threads(work: Work) -> None:
    """One has half of them, though all its work waits without a slot; a second one a third; a third still finds one."""
    pool = CallPool(8, 1, "t")
    mine = [f"a{number}" for number in range(12)]
    _submit(pool, work, *mine, rests=True)
    work.wait_for(*mine[:4])
    theirs = [f"b{number}" for number in range(12)]
    _submit(pool, work, *theirs, rests=True)
    work.wait_for(*mine[:4], *theirs[:2])
    _submit(pool, work, "c0", rests=True)
    work.wait_for(*mine[:4], *theirs[:2], "c0")


def test_owners_take_turns(work: Work) -> None:
    """However much one of them has submitted before."""
    pool = CallPool(8, 1, "t")
    _submit(pool, work, *(f"a{number}" for number in range(10)), "b0", "b1", "c0")
    order = ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
    for place, name in enumerate(order):
        work.wait_for(*order[: place + 1])
        work.end(name)
    assert order == work.begun[: len(order)]


def test_one_large_message_at_a_time_leaves_slots_to_small_ones(work: Work) -> None:
    """Until its call waits for the first time, or takes turns with other long ones."""
    pool = CallPool(16, 3, "t")
    _submit(pool, work, "a0", "b0", "c0", size=LARGE)
    work.wait_for("a0")
    _submit(pool, work, "d0", "d1", "d2", size=LARGE - 1)
    work.wait_for("a0", "d0", "d1")
    work.end("d0", "d1", "d2")
    work.wait_for("a0", "d0", "d1", "d2")
    work.end("a0")
    work.wait_for("a0", "d0", "d1", "d2", "b0")

    def take_turns(name: str) -> str:
        slots.take_turns()
        return work.run(name)

    pool.submit_for(_owner("d"), LARGE, take_turns, "d3")
    work.end("b0")
    work.wait_for("a0", "d0", "d1", "d2", "b0", "c0")
    work.end("c0")
    work.wait_for("a0", "d0", "d1", "d2", "b0", "c0", "d3")
    _submit(pool, work, "d4", size=LARGE)
    work.wait_for("a0", "d0", "d1", "d2", "b0", "c0", "d3", "d4")


def test_what_is_cancelled_is_not_begun(work: Work) -> None:
    """And its place is the next one's."""
    pool = CallPool(4, 1, "t")
    first, second, third = _submit(pool, work, "a0", "a1", "a2")
    work.wait_for("a0")
    assert second.cancel()
    work.end("a0", "a2")
    assert ("a0", "a2") == (first.result(PATIENCE), third.result(PATIENCE))
    pool.shutdown()
    assert (["a0", "a2"], 0) == (work.begun, pool.pending)


def test_an_error_is_the_results() -> None:
    """Whoever waits gets it, and the thread serves the next one."""
    pool = CallPool(1, 1, "t")

    def fail() -> None:
        raise LookupError("not there")

    with pytest.raises(LookupError, match="not there"):
        pool.submit_for(_owner("a"), 0, fail).result(PATIENCE)
    assert 1 == pool.submit(int, "1").result(PATIENCE)


def test_what_cannot_be_begun_says_so(work: Work) -> None:
    """After the end of the pool; what waits then, too."""
    pool = CallPool(1, 1, "t")
    _, waits = _submit(pool, work, "a0", "a1")
    work.wait_for("a0")
    pool.shutdown(wait=False)
    work.end("a0")
    with pytest.raises(RuntimeError, match="cannot be begun"):
        waits.result(PATIENCE)
    with pytest.raises(RuntimeError, match="cannot be begun"):
        pool.submit_for(_owner("b"), 0, int).result(PATIENCE)
    assert 0 == pool.pending


def test_without_memory_for_a_thread_those_that_are_there_do_the_work(
    monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    """What was submitted is done later."""
    pool = CallPool(4, 4, "t")
    _submit(pool, work, "a0")
    work.wait_for("a0")

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    second = _submit(pool, work, "b0")[0]
    work.end("a0", "b0")
    assert "b0" == second.result(PATIENCE)


@pytest.mark.parametrize("kind", [WorkerPool, CallPool])
def test_a_pool_that_gets_too_few_threads_does_not_wait_for_them(
    kind: type[WorkerPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To start with fewer than it was asked for is an error, at once."""
    start, started = threading.Thread.start, itertools.count()

    def failing(thread: threading.Thread) -> None:
        if next(started) >= 2:
            raise RuntimeError(NO_THREAD)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", failing)
    pool = CallPool(4, 2, "few") if kind is CallPool else WorkerPool(4, "few")
    with pytest.raises(RuntimeError, match=NO_THREAD):
        pool.warm(lambda: None)
    pool.shutdown()


@given(
    workers=st.integers(1, 5),
    running=st.integers(1, 4),
    owners=st.lists(st.sampled_from("abc"), max_size=40),
    locks=st.integers(1, 2),
)
def test_all_work_ends(workers: int, running: int, owners: list[str], locks: int) -> None:
    """Whatever holds a lock while it waits for another one's turn: nothing waits for ever."""
    pool, held = CallPool(workers, running, "t"), [Lock() for _ in range(locks)]

    def hold(number: int) -> int:
        with slots.holding(held[number % locks]), slots.waiting():
            return number

    futures = [
        pool.submit_for(_owner(owner), LARGE if number % 3 else 0, hold, number) for number, owner in enumerate(owners)
    ]
    assert list(range(len(owners))) == [each.result(PATIENCE) for each in futures]
    pool.shutdown()
    assert 0 == pool.pending


class Standing:
    """A clock that tells what it is set to."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def _gives_way(pool: CallPool, work: Work, clock: Standing, seconds: float) -> Future[str]:
    """Submit a heavy call that gives way after so many seconds of work, and then lets "a1" end."""

    def heavy() -> str:
        work.begun.append("heavy")
        clock.now += seconds
        slots.give_way()
        work.end("a1")
        return "heavy"

    return pool.submit_for(_owner("a"), LARGE, heavy)


def test_a_heavy_call_waits_while_short_ones_have_work(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on when the last of them has ended, begun to wait, or run for so long that it is a heavy one itself."""
    clock = Standing()
    monkeypatch.setattr(call_pool, "perf_counter", clock)
    monkeypatch.setattr(call_pool, "GIVES_WAY", PATIENCE)
    pool = CallPool(8, 4, "t")

    def rest(name: str) -> str:
        work.run(name)
        with slots.waiting():
            return work.run(name + "waits")

    def long(name: str) -> str:
        work.run(name)
        slots.take_turns()
        return work.run(name + "turns")

    short = [
        *_submit(pool, work, "b0"),
        pool.submit_for(_owner("c"), 0, rest, "c0"),
        pool.submit_for(_owner("d"), 0, long, "d0"),
    ]
    work.wait_for("b0", "c0", "d0")
    heavy = _gives_way(pool, work, clock, PATIENCE)
    work.wait_for("b0", "c0", "d0", "heavy")
    for name in ("b0", "c0"):
        work.end(name)
        assert not heavy.done()
    work.end("d0")
    assert "heavy" == heavy.result(PATIENCE)
    work.end("c0waits", "d0turns")
    assert ["b0", "c0waits", "d0turns"] == [each.result(PATIENCE) for each in short]


def test_a_heavy_call_gives_way_for_half_of_its_time(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the others have work: it waits no longer than it has worked, and not for a moment at the start."""
    clock = Standing()
    monkeypatch.setattr(call_pool, "perf_counter", clock)
    monkeypatch.setattr(call_pool, "GIVES_WAY", 0.001)
    pool = CallPool(8, 4, "t")
    short = _submit(pool, work, "a1")  # ends after the heavy one has gone on
    work.wait_for("a1")
    for seconds in (0.0, 1.0):
        assert "heavy" == _gives_way(pool, work, clock, seconds).result(PATIENCE)
    assert ["a1"] == [each.result(PATIENCE) for each in short]
