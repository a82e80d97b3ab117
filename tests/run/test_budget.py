"""What runs keep beside the stash is bounded; a run that had to forget answers as before."""

from __future__ import annotations

import json

import pytest

from sidecar.errors import TooLarge
from sidecar.prompt.items import MAX_PARTS
from sidecar.run.budget import MemoryBudget, weight
from sidecar.run.calls import Outcome, RetrieveCall
from sidecar.run.limits import Limits
from tests.run.making import FORMATS, LIMIT, OPENAI_CHAT, ROOM, Engine, send


def test_the_run_used_least_recently_gives_first() -> None:
    """Over the budget, runs forget in the order of their last use, and never the one in use."""
    budget = MemoryBudget(100)
    assert [] == budget.use(("c", "one"), 40)
    assert [] == budget.use(("c", "two"), 40)
    assert [] == budget.use(("c", "one"), 50)
    assert [("c", "two")] == budget.use(("c", "three"), 30)
    assert [("c", "one"), ("c", "three")] == budget.use(("c", "four"), 500)
    assert (500, 3) == (budget.total, budget.forgotten)
    budget.drop(("c", "four"))
    assert 0 == budget.total


def test_a_weight_grows_with_body_and_messages() -> None:
    """The estimate counts the body twice and every message."""
    assert weight(1_000, 10) < weight(2_000, 10) < weight(2_000, 20)


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_that_forgot_answers_as_before(format: str) -> None:
    """Two runs that have room for one take turns: each answer is that of a run alone, and originals can be fetched."""
    tight = Engine(limit=LIMIT, policy=ROOM, limits=Limits(memory_bytes=1))
    alone = Engine(limit=LIMIT, policy=ROOM)
    for iterations in range(1, 13):
        for run_id in ("one", "two"):
            expected = send(alone, format, iterations, run_id=run_id)
            found = send(tight, format, iterations, run_id=run_id)
            assert expected.body == found.body
            assert list(expected.trims) == list(found.trims)
            assert expected.revision == found.revision
    assert found.trims
    got = tight.runs.retrieve(RetrieveCall("promises", "two", found.trims[0].stash_id))
    assert Outcome.HIT is got.outcome


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
