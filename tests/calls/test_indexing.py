"""The indexing thread: it works until nothing waits, lets calls go first, survives failures, and ends."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator

import pytest

from prompt_sidecar.calls import indexing
from prompt_sidecar.calls.indexing import CALM_SECONDS, Indexer, rest_after
from prompt_sidecar.calls.pool import InFlight
from tests.doors.grpc.serving import PATIENCE

START = Callable[[Callable[[], int]], Indexer]


class Panic(BaseException):
    """As native code raises: not an Exception."""


class Work:
    """Bytes that wait to be indexed, in slices; says when it has been found that none do."""

    def __init__(self, *slices: int) -> None:
        self.slices = list(slices)
        self.idle = threading.Semaphore(0)
        self.done = 0

    def __call__(self) -> int:
        """Do a slice."""
        if not self.slices:
            self.idle.release()
            return 0
        size = self.slices.pop(0)
        self.done += size
        return size


@pytest.fixture
def in_flight() -> InFlight:
    """The calls in flight: none."""
    return InFlight()


@pytest.fixture
def start(in_flight: InFlight) -> Iterator[START]:
    """Starts indexers, and sees that each ends."""
    started: list[Indexer] = []

    def start(index_some: Callable[[], int]) -> Indexer:
        started.append(Indexer(index_some, in_flight))
        return started[-1]

    yield start
    for indexer in started:
        indexer.end()
        assert indexer.join(PATIENCE)


def test_it_works_until_nothing_waits(start: START) -> None:
    """One wake is enough for any number of slices, and each further wake looks again."""
    work = Work(1, 20, 300)
    indexer = start(work)
    for more in ([], [4_000], [], [50_000, 600_000]):
        work.slices += more
        indexer.wake()
        assert work.idle.acquire(timeout=PATIENCE)
    assert 654_321 == work.done


def test_it_sleeps_until_it_is_woken(start: START) -> None:
    """Without a wake nothing is looked for, also while the server stops."""
    work = Work(1)
    indexer = start(work)
    indexer.end()
    assert indexer.join(PATIENCE)
    assert [1] == work.slices


def test_a_wake_while_it_works_is_not_lost(start: START) -> None:
    """What is brought while a slice is worked on, and after it was looked for, is found by the wake that follows."""
    reached, go_on, idle = threading.Event(), threading.Event(), threading.Semaphore(0)

    def index_some() -> int:
        if not reached.is_set():
            reached.set()
            assert go_on.wait(PATIENCE)
        idle.release()
        return 0

    indexer = start(index_some)
    indexer.wake()
    assert reached.wait(PATIENCE)
    indexer.wake()
    go_on.set()
    for _ in range(2):
        assert idle.acquire(timeout=PATIENCE)


def test_calls_in_flight_go_first(start: START, in_flight: InFlight, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice begins only when no call is in flight, if that comes soon."""
    # On a busy machine this thread may stand still between two lines for longer than a slice waits.
    monkeypatch.setattr(indexing, "PATIENCE_SECONDS", PATIENCE)
    seen: list[bool] = []
    idle = threading.Semaphore(0)

    def index_some() -> int:
        seen.append(in_flight.wait_for_none(0))
        idle.release()
        return 0

    indexer = start(index_some)
    for _ in range(20):
        in_flight.add()
        indexer.wake()
        in_flight.remove()
        assert idle.acquire(timeout=PATIENCE)
    assert [True] * 20 == seen


def test_a_server_that_is_never_idle_indexes_too(start: START, in_flight: InFlight) -> None:
    """With a call in flight for ever, slices get through all the same."""
    in_flight.add()
    work = Work(1, 2, 3)
    start(work).wake()
    assert work.idle.acquire(timeout=PATIENCE)
    assert 6 == work.done


@pytest.mark.parametrize("worked", [0.0001, 0.001, 0.004, 2.0])
def test_it_rests_as_long_as_calls_come(worked: float) -> None:
    """An eleventh of the time is its share then, of slices as long as ordinary ones; without calls it goes on."""
    rest = rest_after(worked, 0.0)

    assert 0.0 == rest_after(worked, CALM_SECONDS)
    assert rest == rest_after(worked, CALM_SECONDS / 2)
    assert rest <= indexing.PATIENCE_SECONDS
    assert rest == pytest.approx(10 * worked) or worked > 0.005


def test_only_calls_in_flight_and_just_ended_are_no_calm(in_flight: InFlight) -> None:
    """A server that has just started is calm, and one that serves a call is not, however long that takes."""
    assert math.inf == in_flight.calm
    in_flight.add()
    assert 0.0 == in_flight.calm
    in_flight.remove()
    assert 0.0 <= in_flight.calm < PATIENCE


def test_a_rest_ends_with_the_server(start: START, in_flight: InFlight, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice that was followed by a rest is the last one of a server that stops."""
    monkeypatch.setattr(indexing, "PATIENCE_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(indexing, "REST", math.inf)
    in_flight.add()
    in_flight.remove()
    worked, work = threading.Event(), Work(1, 2)

    def index_some() -> int:
        worked.set()
        return work()

    indexer = start(index_some)
    indexer.wake()
    assert worked.wait(PATIENCE)
    indexer.end()
    assert indexer.join(PATIENCE)
    assert [2] == work.slices


@pytest.mark.parametrize("kind", [ValueError, MemoryError, Panic])
def test_a_failure_is_reported_and_does_not_end_it(
    start: START, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """What a slice raises is logged without its text, and the next wake tries again."""
    idle = threading.Semaphore(0)
    failures = [kind("the prompt's secret text")]

    def index_some() -> int:
        idle.release()
        if failures:
            raise failures.pop()
        return 0

    with caplog.at_level(logging.ERROR):
        indexer = start(index_some)
        for _ in range(2):
            indexer.wake()
            assert idle.acquire(timeout=PATIENCE)
        indexer.end()
        assert indexer.join(PATIENCE)
    assert "indexing failed" in caplog.text
    assert kind.__name__ in caplog.text
    assert "secret" not in caplog.text


def test_it_ends_between_two_slices(start: START) -> None:
    """However much waits, no further slice begins once it is to end; one that is worked on is waited for in vain."""
    reached, go_on = threading.Event(), threading.Event()
    slices = 0

    def index_some() -> int:
        nonlocal slices
        slices += 1
        reached.set()
        assert go_on.wait(PATIENCE)
        return 1

    indexer = start(index_some)
    indexer.wake()
    assert reached.wait(PATIENCE)
    indexer.end()
    assert not indexer.join(0)
    go_on.set()
    assert indexer.join(PATIENCE)
    assert 1 == slices
