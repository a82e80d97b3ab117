"""EndRuns: all runs of a caller are forgotten, and nobody else's."""

from __future__ import annotations

import pytest

from prompt_sidecar.engine.runs import pace
from prompt_sidecar.errors import DeadlinePassed, RunUnknown
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.facts.task_calls import CreateTasksCall
from prompt_sidecar.recall.outcome import Outcome
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, grown, ids, send
from tests.guard.test_masks import masked
from tests.guard.test_refusing import ENFORCE
from tests.promises.engine import CALLER, RUN_ID, Engine

OTHER = "another caller"


def test_every_run_of_the_caller_goes() -> None:
    """Prompted or only planned: figures, originals and values of masks are gone, and each is counted once."""
    engine, answer = grown(OPENAI_CHAT, 12, guard=ENFORCE)
    mask = masked(Engine(limit=LIMIT, guard=ENFORCE))
    masked(engine)
    for number in range(3):
        engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, f"planned-{number}", ["look"]))
    assert 4 == engine.runs.end_all(CALLER)
    assert 0 == len(engine.runs)
    with pytest.raises(RunUnknown):
        engine.figures()
    assert Outcome.RUN_UNKNOWN is engine.retrieve(ids(answer)[0]).outcome
    assert 1 == engine.restore("deploy", f'{{"token": "{mask}"}}'.encode()).unknown
    totals = engine.runs.totals()
    assert 0 == totals.stash.entries
    assert 0 == totals.vault.values
    assert 0 == engine.runs.end_all(CALLER)


def test_no_other_caller_s_run_goes() -> None:
    """Not even one of the same name."""
    engine, _ = grown(OPENAI_CHAT, 12)
    theirs = send(engine, OPENAI_CHAT, 12, caller=OTHER)
    assert 1 == engine.runs.end_all(CALLER)
    assert 1 == engine.runs.figures(OTHER, RUN_ID).calls
    for stash_id in filter(None, ids(theirs)):
        found = engine.runs.recalling.retrieve(RetrieveCall(caller=OTHER, run_id=RUN_ID, stash_id=stash_id))
        assert Outcome.HIT is found.outcome


def test_a_run_begins_again_under_its_name() -> None:
    """As one that has never been."""
    engine, _ = grown(OPENAI_CHAT, 12)
    engine.runs.end_all(CALLER)
    again = send(engine, OPENAI_CHAT, 12)
    assert send(Engine(limit=LIMIT, policy=ROOM), OPENAI_CHAT, 12).prompt.body == again.prompt.body
    assert 1 == engine.figures().calls


def test_a_call_that_had_to_end_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline passes in the middle: what was forgotten stays forgotten, and the next call forgets the rest."""
    monkeypatch.setattr(pace, "ASK_EVERY", 0.0)  # the deadline is looked at before every run
    engine = Engine(limit=LIMIT)
    for number in range(6):
        engine.runs.recalling.create_tasks(CreateTasksCall(CALLER, f"planned-{number}", ["look"]))
    left = iter(range(2))

    def check() -> None:
        if next(left, None) is None:
            raise DeadlinePassed("the deadline has passed")

    with pytest.raises(DeadlinePassed):
        engine.runs.end_all(CALLER, check)
    kept = len(engine.runs)
    assert 0 < kept < 6
    assert kept == engine.runs.end_all(CALLER)
