"""What runs keep beside the stash is bounded; a run that had to forget answers as before."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from prompt_sidecar.engine.runs.budget import MemoryBudget, Over, RunOverhead
from prompt_sidecar.engine.steps import memory
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.prompt.items import MAX_PARTS
from prompt_sidecar.recall.outcome import Outcome
from tests.engine.runs.making import FORMATS, LIMIT, OPENAI_CHAT, ROOM, Engine, send

ONE, TWO, THREE = ("c", "one"), ("c", "two"), ("c", "three")


def test_the_run_used_least_recently_forgets_first() -> None:
    """Over the budget, runs forget their caches in the order of their last use, and never the one in use."""
    budget = MemoryBudget(100)
    assert Over() == budget.use(ONE, RunOverhead(40, 5))
    assert Over() == budget.use(TWO, RunOverhead(40, 5))
    assert Over() == budget.use(ONE, RunOverhead(45, 5))
    assert Over(forget=[TWO]) == budget.use(THREE, RunOverhead(30, 5))
    assert 90 == budget.total
    budget.drop(ONE)
    budget.drop(TWO)
    budget.drop(THREE)
    assert 0 == budget.total


def test_a_run_is_forgotten_where_facts_alone_are_too_much() -> None:
    """What nobody can make again goes only with its run, the one idle for longest, and not for another's caches."""
    budget = MemoryBudget(100)
    budget.use(ONE, RunOverhead(20, 30))
    budget.use(TWO, RunOverhead(10, 30))
    assert Over(forget=[ONE, TWO]) == budget.use(THREE, RunOverhead(10, 30))
    assert Over() == budget.use(THREE, RunOverhead(500, 40))
    assert Over(remove=[ONE]) == budget.use(THREE, RunOverhead(500, 41))
    assert Over(remove=[TWO]) == budget.use(THREE, RunOverhead(0, 1_000))
    assert 1_000 == budget.total


def test_what_grows_without_use_is_counted_and_stays_where_it_was() -> None:
    """An index that was built in between counts at once, others give up for it, and its run is no younger for it."""
    budget = MemoryBudget(100)
    budget.use(ONE, RunOverhead(10, 5))
    budget.use(TWO, RunOverhead(10, 5))
    assert Over() == budget.grow(ONE, RunOverhead(60, 5))
    assert Over(forget=[ONE]) == budget.use(THREE, RunOverhead(40, 5))
    assert Over(forget=[TWO, THREE]) == budget.grow(ONE, RunOverhead(85, 5))
    assert Over() == budget.grow(("c", "unknown"), RunOverhead(1_000, 1_000))
    assert Over() == budget.grow(ONE, RunOverhead(0, 5))
    assert 15 == budget.total


def test_what_a_run_keeps_grows_with_what_it_holds() -> None:
    """Body, messages and items each count; after it has forgotten, its facts alone."""
    engine = Engine(limit=LIMIT)
    small = _kept(engine, 2)
    large = _kept(engine, 12)
    assert small.caches < large.caches
    assert small.facts < large.facts
    run = engine.runs.table.known("promises", "run")
    assert run is not None
    run.forget_caches()
    assert RunOverhead(0, large.facts) == run.kept()


def test_a_prompt_that_is_sent_again_and_again_leaves_nothing_more() -> None:
    """What a run keeps of its history grows with the history, not with the calls."""
    engine = Engine(limit=LIMIT)
    only_memory = tracemalloc.Filter(inclusive=True, filename_pattern=memory.__file__)
    sizes = []
    tracemalloc.start()
    try:
        for _ in range(2):
            for _ in range(300):
                send(engine, OPENAI_CHAT, 2, run_id="run")
            taken = tracemalloc.take_snapshot().filter_traces([only_memory])
            sizes.append(sum(trace.size for trace in taken.traces))
    finally:
        tracemalloc.stop()
    assert abs(sizes[1] - sizes[0]) < 1_000


def _kept(engine: Engine, iterations: int) -> RunOverhead:
    send(engine, OPENAI_CHAT, iterations, run_id="run")
    while engine.runs.work_off():
        pass
    run = engine.runs.table.known("promises", "run")
    assert run is not None
    assert run.kept().total == engine.runs.totals().memory_bytes
    return run.kept()


TIGHT = 150_000
"""Bytes: room for what is known of two runs' items, and for the caches of one."""


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_that_forgot_answers_as_before(format: str) -> None:
    """Two runs that have room for one take turns: each answer is that of a run alone, and originals can be fetched."""
    tight = Engine(limit=LIMIT, policy=ROOM, limits=Limits(memory_bytes=TIGHT))
    alone = Engine(limit=LIMIT, policy=ROOM)
    for iterations in range(1, 13):
        for run_id in ("one", "two"):
            expected = send(alone, format, iterations, run_id=run_id)
            found = send(tight, format, iterations, run_id=run_id)
            assert expected.prompt.body == found.prompt.body
            assert list(expected.trimmed.trims) == list(found.trimmed.trims)
            assert expected.prompt.revision == found.prompt.revision
    assert found.trimmed.trims
    assert tight.runs.totals().bounds["limits.memory_bytes"] > 0
    assert 2 == tight.runs.totals().runs
    got = tight.runs.recalling.retrieve(RetrieveCall("promises", "two", found.trimmed.trims[0].stash_id))
    assert Outcome.HIT is got.outcome


def test_caches_go_before_originals() -> None:
    """Near what the process may take, caches go first, of the run idle for longest; originals only for what is missing.

    A run whose caches went answers as before.
    """
    engine, alone = Engine(limit=LIMIT), Engine(limit=LIMIT)
    for run_id in ("one", "two"):
        send(engine, OPENAI_CHAT, 12, run_id=run_id)
    before = engine.runs.totals()
    one, two = (engine.runs.table.known("promises", run_id) for run_id in ("one", "two"))
    assert one is not None
    assert two is not None

    engine.runs.shed(1)
    assert (0, True) == (one.kept().caches, two.kept().caches > 0)
    assert before.stash.held_bytes == engine.runs.totals().stash.held_bytes

    engine.runs.shed(two.kept().caches + 1)
    after = engine.runs.totals()
    assert (0, 0) == (one.kept().caches, two.kept().caches)
    assert one.kept().facts + two.kept().facts == after.memory_bytes
    assert 0 < after.stash.entries < before.stash.entries
    assert 2 == after.bounds["limits.process_bytes"]
    assert (
        send(alone, OPENAI_CHAT, 12, run_id="two").prompt.body
        == send(engine, OPENAI_CHAT, 12, run_id="two").prompt.body
    )


def test_too_many_items() -> None:
    """More items than the bound are refused, and the bound is named; so are more parts in one message than any has."""
    engine = Engine(limit=LIMIT, limits=Limits(run_items=20))
    send(engine, OPENAI_CHAT, 2)
    with pytest.raises(TooLarge, match="run_items"):
        send(engine, OPENAI_CHAT, 20)
    parts = [{"type": "text", "text": "a"}] * (MAX_PARTS + 1)
    with pytest.raises(TooLarge, match="content has 10,001 elements") as caught:
        engine.trim(OPENAI_CHAT, json.dumps([{"role": "user", "content": parts}]).encode())
    assert "json.body.messages[0].content" == caught.value.field
    assert send(engine, OPENAI_CHAT, 2).fits
