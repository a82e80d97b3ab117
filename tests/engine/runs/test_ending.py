"""EndRun beside other calls of the run: whatever the order, nothing of the run is kept that nobody will forget."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.task_calls import CreateTasksCall
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, Engine, ids, send

PATIENCE = 20.0
ENDED = ("promises", "run-1")
STEPS = 400
"""Ends that race a prompt; of as many runs 39 left originals behind before such a prompt began a new run."""


class Pause:
    """Holds a thread at the end of the function `name`, the first time that it gets there."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.reached, self.go = threading.Event(), threading.Event()

    def watch(self) -> None:
        """Look out in the current thread."""
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == self._name and not self.reached.is_set():
            sys.setprofile(None)
            self.reached.set()
            assert self.go.wait(PATIENCE)


def while_found(work: Callable[[], Any], meanwhile: Callable[[], Any]) -> Any:
    """Do `meanwhile` when `work` has found its run and not yet its lock."""
    pause = Pause("begun")

    def watched() -> Any:
        pause.watch()
        return work()

    with ThreadPoolExecutor(1) as pool:
        done: Future[Any] = pool.submit(watched)
        assert pause.reached.wait(PATIENCE)
        meanwhile()
        pause.go.set()
        return done.result(PATIENCE)


def left(engine: Engine) -> tuple[int, int, int]:
    """Runs in the table, runs in the stash, and originals."""
    totals = engine.runs.totals()
    return len(engine.runs), totals.stash.runs, totals.stash.entries


def test_a_prompt_that_meets_its_runs_end_begins_a_new_run() -> None:
    """The prompt waited while the run was ended: its originals are in a run that is known, and go when that ends."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    send(engine, OPENAI_CHAT, 12)
    answer = while_found(lambda: send(engine, OPENAI_CHAT, 13), lambda: engine.runs.end(*ENDED))
    assert 1 == engine.runs.figures(*ENDED).calls
    for stash_id in ids(answer):
        assert engine.retrieve(stash_id).page.content
    assert engine.runs.end(*ENDED) is not None
    assert (0, 0, 0) == left(engine)


def test_tasks_that_meet_their_runs_end_begin_a_new_run() -> None:
    """Tasks written down while the run was ended are a new run's."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    send(engine, OPENAI_CHAT, 12)
    call = CreateTasksCall(caller=ENDED[0], run_id=ENDED[1], items=("look",), append=True, request_id="")
    while_found(lambda: engine.runs.recalling.create_tasks(call), lambda: engine.runs.end(*ENDED))
    assert ["look"] == [task.text for task in engine.runs.recalling.list_tasks(*ENDED)]
    assert engine.runs.end(*ENDED) is not None
    assert (0, 0, 0) == left(engine)


def test_an_end_during_a_prompt_leaves_nothing() -> None:
    """The run is ended while its prompt is at work: the end waits, and then the run is gone."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    pause = Pause("take")  # in the prompt's thread, with the run's lock held

    def prompt() -> None:
        pause.watch()
        send(engine, OPENAI_CHAT, 12)

    with ThreadPoolExecutor(2) as pool:
        trimmed = pool.submit(prompt)
        assert pause.reached.wait(PATIENCE)
        ended = pool.submit(engine.runs.end, *ENDED)
        pause.go.set()
        trimmed.result(PATIENCE)
        assert ended.result(PATIENCE) is not None or engine.runs.end(*ENDED) is not None
    assert (0, 0, 0) == left(engine)


def test_prompts_and_ends_in_any_order_leave_nothing() -> None:
    """Prompts, tasks and ends of one run at the same time, again and again; after a last end nothing is left."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    for step in range(STEPS):
        barrier = threading.Barrier(3)

        def prompt(iterations: int, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(PATIENCE)
            send(engine, OPENAI_CHAT, iterations)

        def end(barrier: threading.Barrier = barrier) -> None:
            barrier.wait(PATIENCE)
            engine.runs.end(*ENDED)

        works = [lambda: prompt(2), end, lambda: prompt(3)]
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        engine.runs.end(*ENDED)
        assert (0, 0, 0) == left(engine), f"after {step} steps"


@pytest.mark.parametrize("runs", [1, 2])
def test_a_run_that_a_call_works_on_is_not_one_too_many(runs: int) -> None:
    """Other runs begin until there are too many while a prompt is at work: what it says it keeps, it keeps."""
    engine = Engine(limit=LIMIT, policy=ROOM, limits=replace(Limits(), runs=runs))
    pause = Pause("take")

    def prompt() -> Any:
        pause.watch()
        return send(engine, OPENAI_CHAT, 12)

    with ThreadPoolExecutor(1) as pool:
        trimmed = pool.submit(prompt)
        assert pause.reached.wait(PATIENCE)
        for number in range(runs + 1):
            send(engine, OPENAI_CHAT, 2, run_id=f"other-{number}")
        pause.go.set()
        answer = trimmed.result(PATIENCE)
    assert ids(answer)
    for stash_id in ids(answer):
        assert engine.retrieve(stash_id).page.content
