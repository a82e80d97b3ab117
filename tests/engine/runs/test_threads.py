"""Many threads: calls on one run are answered one after the other, calls on many runs do not mix."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Any

import pytest

from prompt_sidecar.errors import CallCancelled
from prompt_sidecar.facts.trim_calls import TrimCall
from tests.engine.runs.making import FORMATS, LIMIT, OPENAI_CHAT, ROOM, Engine, body, history, ids, send

THREADS = 8
formats = pytest.mark.parametrize("format", FORMATS)


def together(work: Callable[[int], Any]) -> list[Any]:
    """Do the work in threads that begin at the same time."""
    barrier = Barrier(THREADS)

    def begin(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


@formats
def test_many_runs(format: str) -> None:
    """Each thread's run is answered as it would be alone, and fetches its own originals."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    alone = {n: send(Engine(limit=LIMIT, policy=ROOM), format, 11, run_id=f"run-{n}") for n in range(THREADS)}

    def work(number: int) -> None:
        for iterations in range(12):
            answer = send(engine, format, iterations, run_id=f"run-{number}")
        assert (alone[number].prompt.body, alone[number].trimmed.trims) == (answer.prompt.body, answer.trimmed.trims)
        for stash_id in ids(answer):
            assert engine.retrieve(stash_id, run_id=f"run-{number}").page.content

    together(work)
    assert THREADS == len(engine.runs)


@formats
def test_one_run(format: str) -> None:
    """Threads that send the same prompts of one run all get the answer that one alone would get."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    expected = send(Engine(limit=LIMIT, policy=ROOM), format, 12)

    def work(_: int) -> bytes | None:
        send(engine, format, 12)
        return send(engine, format, 12).prompt.body

    assert {expected.prompt.body} == set(together(work))
    assert 2 * THREADS == engine.runs.figures("promises", "run-1").calls


@formats
def test_one_run_at_different_points(format: str) -> None:
    """Threads that send one run's history at different lengths do it no harm: it ends as a whole one does."""
    engine = Engine(limit=LIMIT, policy=ROOM)

    def work(number: int) -> None:
        for step in range(4):
            answer = send(engine, format, 4 * step + number)
            assert answer.fits
            assert 4 * step + number + 1 == answer.iteration

    together(work)
    answer = send(engine, format, 20)
    for stash_id in ids(answer):
        assert None is not engine.original(stash_id)


def test_ending_and_asking_while_trimming() -> None:
    """Figures, retrievals, sweeps and ends in the middle of calls break nothing."""
    engine = Engine(limit=LIMIT, policy=ROOM)

    def work(number: int) -> None:
        for iterations in range(2, 10):
            answer = send(engine, OPENAI_CHAT, iterations)
            if number == 0:
                engine.runs.end("promises", "run-1")
            elif number == 1:
                engine.runs.sweep()
            for stash_id in ids(answer):
                engine.retrieve(stash_id)

    together(work)
    send(engine, OPENAI_CHAT, 9)
    assert 1 == len(engine.runs)


def test_a_run_survives_a_neighbour_that_fails() -> None:
    """Of several first calls of a run at once, those that fail do not make it forget the one that succeeds."""
    for _ in range(20):
        engine = Engine(limit=LIMIT)
        raw = body(OPENAI_CHAT, history(OPENAI_CHAT, 2))

        def gone() -> None:
            raise CallCancelled("the caller is gone")

        def work(number: int, engine: Engine = engine, raw: bytes = raw) -> None:
            if number == 0:
                send(engine, OPENAI_CHAT, 2)
                return
            call = TrimCall(caller="promises", run_id="run-1", format=OPENAI_CHAT, body=raw, context_window=LIMIT)
            with suppress(CallCancelled):
                engine.runs.trim(call, gone)

        together(work)
        assert 1 == len(engine.runs)
