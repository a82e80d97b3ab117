"""Runs: bounded in number, told apart, ended on demand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.errors import RunUnknown
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskStatus, UpdateTaskCall
from prompt_sidecar.facts.tool_calls import ToolCall
from prompt_sidecar.facts.totals import Event
from prompt_sidecar.recall.outcome import Outcome
from tests.engine.runs.making import (
    ANTHROPIC_MESSAGES,
    FORMATS,
    LIMIT,
    OPENAI_CHAT,
    ROOM,
    Engine,
    facts,
    grown,
    ids,
    send,
)
from tests.promises.resend import without_own_text

formats = pytest.mark.parametrize("format", FORMATS)


@formats
def test_two_runs_do_not_mix(format: str) -> None:
    """The same history in two runs has two sets of ids, and an id of one names nothing in the other."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    one, other = (send(engine, format, 12, run_id=run_id) for run_id in ("one", "two"))
    assert set() == set(ids(one)) & set(ids(other))
    assert len(one.trimmed.trims) == len(other.trimmed.trims) > 0
    for stash_id in ids(one):
        assert Outcome.HIT == engine.retrieve(stash_id, run_id="one").outcome
        assert Outcome.NOT_FOUND == engine.retrieve(stash_id, run_id="two").outcome
        assert Outcome.RUN_UNKNOWN == engine.retrieve(stash_id, run_id="three").outcome


@formats
def test_two_callers_do_not_mix(format: str) -> None:
    """A run belongs to its caller: another one's run of the same name is another run."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    answer = send(engine, format, 12)
    stolen = engine.runs.recalling.retrieve(RetrieveCall(caller="thief", run_id="run-1", stash_id=ids(answer)[0]))
    assert Outcome.RUN_UNKNOWN == stolen.outcome
    theirs = send(engine, format, 12, caller="thief")
    assert set() == set(ids(answer)) & set(ids(theirs))
    stolen = engine.runs.recalling.retrieve(RetrieveCall(caller="thief", run_id="run-1", stash_id=ids(answer)[0]))
    assert Outcome.NOT_FOUND == stolen.outcome
    assert None is not engine.original(ids(answer)[0])


@formats
def test_a_revision_of_another_run_is_not_taken(format: str) -> None:
    """A revision is good for its own run and caller only; the answer says that it did not match."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    revision = send(engine, format, 12, context_window=3_000).prompt.revision
    plain = send(Engine(limit=LIMIT, policy=ROOM), format, 12, run_id="two")
    other = send(engine, format, 12, run_id="two", revision=revision)
    assert ("mismatched", plain.trimmed.trims) == (other.revision_use.value, other.trimmed.trims)


@formats
@pytest.mark.parametrize("revision", [b"x", b"\0" * 16, b"\xff" * 500])
def test_nonsense_revisions(format: str, revision: bytes) -> None:
    """A revision that nobody signed is not taken, and breaks nothing."""
    answer = send(Engine(limit=LIMIT, policy=ROOM), format, 12, revision=revision)
    plain = send(Engine(limit=LIMIT, policy=ROOM), format, 12)
    assert ("mismatched", plain.prompt.body) == (answer.revision_use.value, answer.prompt.body)


@formats
def test_a_revision_carries_decisions(format: str) -> None:
    """Where inputs changed on the way, a fresh process with the revision answers as the old one would."""
    old, fresh = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    send(old, format, 8, context_window=3_000)
    revision = send(old, format, 10).prompt.revision
    expected = send(old, format, 11)
    answer = send(fresh, format, 11, revision=revision)
    assert "applied" == answer.revision_use.value
    assert expected.trimmed.trims == answer.trimmed.trims
    assert without_own_text(expected) == without_own_text(answer)
    assert [old.original(i) for i in ids(expected)] == [fresh.original(i) for i in ids(answer)]


@formats
def test_a_revision_carries_the_directives(format: str) -> None:
    """Directives never change within a run: a fresh process with the revision writes those of the first call."""
    old, fresh = (Engine(limit=LIMIT, policy=ROOM) for _ in range(2))
    send(old, format, 1, context_window=3_000)
    revision = send(old, format, 2).prompt.revision
    expected = send(old, format, 3)
    assert expected.prompt.own_text == send(fresh, format, 3, revision=revision).prompt.own_text


@formats
def test_run_count_is_bounded(format: str) -> None:
    """Past the bound the run idle for longest is forgotten, with its originals."""
    engine = Engine(limit=LIMIT, policy=ROOM, limits=Limits(runs=3))
    first = send(engine, format, 12, run_id="run-0")
    for number in range(1, 3):
        send(engine, format, 1, run_id=f"run-{number}")
    assert Outcome.HIT == engine.retrieve(ids(first)[0], run_id="run-0").outcome  # which makes run-1 the idlest
    send(engine, format, 1, run_id="run-3")
    assert 3 == len(engine.runs)
    assert Outcome.HIT == engine.retrieve(ids(first)[0], run_id="run-0").outcome
    with pytest.raises(RunUnknown) as caught:
        engine.runs.figures("promises", "run-1")
    assert "run_id" == caught.value.field
    assert 3 == engine.runs.stash.totals().runs


def write_tasks(engine: Engine, run_id: str, *items: str) -> None:
    """Put tasks in the place of a run's."""
    engine.runs.recalling.create_tasks(CreateTasksCall("promises", run_id, items, append=False, request_id=""))


def test_no_tasks_begin_no_run() -> None:
    """Who writes down no tasks in runs that nobody has seen leaves nothing behind."""
    engine = Engine(limit=LIMIT)
    for number in range(100):
        write_tasks(engine, f"run-{number}")
    totals = engine.runs.totals()
    assert (0, 0, 0) == (len(engine.runs), totals.stash.runs, totals.memory_bytes)
    assert 0 == totals.events.get(Event.RUN_STARTED, 0)


def test_runs_whose_tasks_were_removed_are_bounded() -> None:
    """They count as other runs do, and are forgotten as these: in the stash and in the budget, too."""
    engine = Engine(limit=LIMIT, limits=Limits(runs=3))
    for number in range(100):
        write_tasks(engine, f"run-{number}", "look")
        write_tasks(engine, f"run-{number}")
    totals = engine.runs.totals()
    assert (3, 3) == (len(engine.runs), totals.stash.runs)
    assert 97 == totals.bounds["limits.runs"]
    for number in range(97, 100):
        engine.runs.end("promises", f"run-{number}")
    totals = engine.runs.totals()
    assert (0, 0, 0) == (len(engine.runs), totals.stash.runs, totals.memory_bytes)
    assert 100 == totals.events[Event.RUN_STARTED]


@formats
def test_a_runs_figures_are_sums_of_its_answers(format: str) -> None:
    """A run's figures are sums of what its answers said."""
    engine = Engine(limit=LIMIT, policy=ROOM)
    answers = [send(engine, format, number) for number in range(13)]
    figures = engine.runs.figures("promises", "run-1")
    assert (13, 13) == (figures.calls, figures.iteration)
    assert sum(answer.tokens.before for answer in answers) == figures.tokens_sent_total
    assert sum(answer.tokens.after for answer in answers) == figures.tokens_returned_total
    assert (answers[-1].tokens, answers[-1].cache) == (figures.tokens, figures.cache)
    assert len(answers[-1].trimmed.trims) == figures.trimmed_items
    assert figures.stash.entries == figures.history.items > figures.trimmed_items
    assert (1_000.0, 1_000.0) == (figures.started, figures.last_seen)


@formats
def test_an_ended_run_is_unknown(format: str) -> None:
    """An ended run gives its last figures, and is unknown from then on; the next prompt begins it anew."""
    engine, answer = grown(format)
    figures = engine.runs.figures("promises", "run-1")
    assert figures == engine.runs.end("promises", "run-1")
    assert None is engine.runs.end("promises", "run-1")
    assert Outcome.RUN_UNKNOWN == engine.retrieve(ids(answer)[0]).outcome
    assert (0, 0) == (engine.runs.stash.totals().entries, engine.runs.stash.totals().runs)
    again = send(engine, format, 12)
    assert (answer.prompt.body, answer.trimmed.trims) == (again.prompt.body, again.trimmed.trims)
    assert 1 == engine.runs.figures("promises", "run-1").calls


@formats
def test_an_idle_run_is_forgotten_after_twice_its_time(format: str) -> None:
    """A run idle for twice the time to live is forgotten; until then it is known, though its originals expired."""
    engine, answer = grown(format)
    engine.clock.now += 3_601
    engine.runs.sweep()
    assert Outcome.EXPIRED == engine.retrieve(ids(answer)[0]).outcome
    engine.clock.now += 7_201
    engine.runs.sweep()
    assert 0 == len(engine.runs)
    assert Outcome.RUN_UNKNOWN == engine.retrieve(ids(answer)[0]).outcome


@formats
def test_what_runs_share_is_forgotten_once_most_are_over(format: str) -> None:
    """Once, when less than a quarter is kept of what was; the run that stays goes on as if nothing had happened."""
    engine, _ = grown(format)
    others = [f"run-{number}" for number in range(2, 8)]
    for run_id in others:
        send(engine, format, 12, run_id=run_id)
    engine.runs.sweep()
    found = []
    for run_id in others:
        found.append(engine.runs.forget_shared())
        engine.runs.end("promises", run_id)
        engine.runs.sweep()
    found += [engine.runs.forget_shared(), engine.runs.forget_shared()]
    assert [False] * 6 + [True, False] == found
    answer, expected = send(engine, format, 13), grown(format, 13)[1]
    assert (expected.prompt.body, expected.trimmed.trims, expected.tokens) == (
        answer.prompt.body,
        answer.trimmed.trims,
        answer.tokens,
    )


def test_another_format_is_another_history() -> None:
    """A run that goes on in another format begins its history anew."""
    engine, _ = grown(OPENAI_CHAT)
    answer = send(engine, ANTHROPIC_MESSAGES, 12)
    fresh = send(Engine(limit=LIMIT, policy=ROOM), ANTHROPIC_MESSAGES, 12)
    assert (fresh.prompt.body, fresh.trimmed.trims) == (answer.prompt.body, answer.trimmed.trims)


@formats
def test_constant_inputs_need_no_memory(format: str) -> None:
    """A fresh process that is sent the history once answers as one that saw it grow."""
    _, answer = grown(format)
    fresh = send(Engine(limit=LIMIT, policy=ROOM), format, 12)
    assert (answer.prompt.body, answer.trimmed.trims, answer.tokens) == (
        fresh.prompt.body,
        fresh.trimmed.trims,
        fresh.tokens,
    )
    assert facts(answer).prompt.own_text == facts(fresh).prompt.own_text


def ending(engine: Engine) -> Callable[[], None]:
    """A check of a call that waits for a run's lock, which this holds: the run is ended while it waits."""
    run = engine.runs.table.known("promises", "run-1")
    assert run is not None
    run.lock.acquire()

    def end() -> None:
        if run.lock.locked() and not run.ended:
            run.lock.release()
            engine.runs.end("promises", "run-1")

    return end


def test_tasks_of_a_tool_call_that_waited_while_the_run_was_ended() -> None:
    """They are in the run that begins then, not lost with the one that was ended."""
    engine = Engine(limit=LIMIT)
    send(engine, OPENAI_CHAT, 3)
    call = ToolCall("promises", "run-1", "create_tasks", json.dumps({"tasks": ["look"]}))
    engine.runs.recalling.call_tool(call, ending(engine))
    assert ["look"] == [task.text for task in engine.runs.recalling.list_tasks("promises", "run-1")]


def test_calls_that_waited_while_the_run_was_ended() -> None:
    """They get the same answer as calls that come after the end."""
    update = UpdateTaskCall(caller="promises", run_id="run-1", id=1, status=TaskStatus.COMPLETED)
    calls: list[Callable[[Runs, Callable[[], None]], object]] = [
        lambda runs, check: runs.recalling.update_task(update, check),
        lambda runs, check: runs.recalling.list_tasks("promises", "run-1", check),
        lambda runs, check: runs.figures("promises", "run-1", check),
    ]
    for call in calls:
        engine = Engine(limit=LIMIT)
        send(engine, OPENAI_CHAT, 3)
        with pytest.raises(RunUnknown):
            call(engine.runs, ending(engine))
