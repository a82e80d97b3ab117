"""The circuit breaker: every change of its state, by a clock that is stepped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from prompt_sidecar.client import AsyncClient, InvalidRequest, Unreachable
from prompt_sidecar.client.breaker import FIRST_PAUSE, LONGEST_PAUSE, MISSES, CallBreaker
from prompt_sidecar.client.errors import STORE_UNAVAILABLE
from tests.client.histories import history
from tests.client.serving import silent
from tests.doors.grpc.serving import serving


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """One that stands still."""
    return Clock()


def missing() -> None:
    """A call that finds nobody."""
    raise Unreachable("nobody", code="UNAVAILABLE")


def refused() -> None:
    """A call that is answered with a refusal."""
    raise InvalidRequest("no", code="INVALID_ARGUMENT")


def made(breaker: CallBreaker, call: Callable[[], None]) -> str:
    """Make a call; return the reason of its error."""
    try:
        with breaker.call():
            call()
    except (Unreachable, InvalidRequest) as error:
        return error.reason
    return ""


def opened(clock: Clock) -> CallBreaker:
    """One whose circuit has just opened."""
    breaker = CallBreaker(clock)
    assert ["UNAVAILABLE"] * MISSES == [made(breaker, missing) for _ in range(MISSES)]
    assert "open" == breaker.state
    return breaker


def without_store() -> None:
    """A call that a running sidecar cannot answer without the store that it shares."""
    raise Unreachable("no answer", code="UNAVAILABLE", reason=STORE_UNAVAILABLE)


def test_a_store_that_is_away_opens_no_circuit(clock: Clock) -> None:
    """The sidecar runs, and trims prompts without the store."""
    breaker = CallBreaker(clock)
    assert [STORE_UNAVAILABLE] * 5 == [made(breaker, without_store) for _ in range(5)]
    assert "closed" == breaker.state


def test_misses_in_a_row_open_it(clock: Clock) -> None:
    """Any answer between them, a refusal too, begins the count anew."""
    breaker = CallBreaker(clock)
    for call in (missing, refused, missing, lambda: None, missing):
        made(breaker, call)
    assert "closed" == breaker.state
    made(breaker, missing)
    assert ("open", "CIRCUIT_OPEN") == (breaker.state, made(breaker, lambda: None))


def test_the_pause_grows_within_a_bound(clock: Clock) -> None:
    """1, 2, 4 … 30 seconds, one call each time; an answer closes it, and the next pause is the first again."""
    breaker = opened(clock)
    pauses = []
    for _ in range(8):
        began = clock.now
        while made(breaker, missing) == "CIRCUIT_OPEN":
            clock.now += 0.5
        pauses.append(clock.now - began)
    assert [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0] == pauses
    clock.now += LONGEST_PAUSE
    assert ("", "closed") == (made(breaker, lambda: None), breaker.state)
    for _ in range(MISSES):
        made(breaker, missing)
    clock.now += FIRST_PAUSE
    assert "half_open" == breaker.state


def test_one_call_tries_at_a_time(clock: Clock) -> None:
    """While one does, the others fail at once, on whatever thread."""
    breaker = opened(clock)
    clock.now += FIRST_PAUSE
    reasons: list[str] = []
    with breaker.call():
        threads = [threading.Thread(target=lambda: reasons.append(made(breaker, lambda: None))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ["CIRCUIT_OPEN"] * 4 == reasons
    assert "closed" == breaker.state


def test_a_try_that_is_cancelled_lets_the_next_one_try(clock: Clock) -> None:
    """It tells nothing of the sidecar."""
    breaker = opened(clock)
    clock.now += FIRST_PAUSE
    with pytest.raises(KeyboardInterrupt), breaker.call():
        raise KeyboardInterrupt
    assert ("half_open", "") == (breaker.state, made(breaker, lambda: None))


def test_calls_that_began_before_do_not_lengthen_the_pause(clock: Clock) -> None:
    """Many threads miss together; and one that is answered late closes the circuit."""
    breaker = CallBreaker(clock)
    calls = [breaker.call() for _ in range(5)]
    for call in calls:
        call.__enter__()
    for call in calls[:4]:
        assert not call.__exit__(Unreachable, Unreachable("nobody", code="UNAVAILABLE"), None)
    clock.now += FIRST_PAUSE
    assert "half_open" == breaker.state
    calls[4].__exit__(None, None, None)
    assert "closed" == breaker.state


def test_all_runs_of_an_asyncio_client_share_it(clock: Clock) -> None:
    """Every method goes through it, whichever the run; one that is back is used after the pause."""

    async def work(address: str) -> None:
        async with AsyncClient(address, deadline=0.2, clock=clock) as client:
            for number in range(10):
                await client.run(f"r{number}").trim(history("openai_chat", 1))
            with pytest.raises(Unreachable, match="CIRCUIT_OPEN"):
                await client.get_run("r1")
            assert {"DEADLINE_EXCEEDED": 2, "CIRCUIT_OPEN": 8} == client.untrimmed_by_reason
            assert "open" == client.circuit

    with silent() as address:
        asyncio.run(work(address))


def test_an_asyncio_client_works_in_each_event_loop() -> None:
    """One after the other, and several at once."""
    with serving() as served:
        client = AsyncClient(served.address, deadline=60.0)

        async def work(number: int) -> None:
            runs = [client.run(f"r{number}-{each}") for each in range(4)]
            await asyncio.gather(*(run.trim(history("openai_chat", 1)) for run in runs))

        for number in range(2):
            asyncio.run(work(number))
        threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(2, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(client.close())
        assert (20, {}) == (client.trimmed, client.untrimmed_by_reason)
