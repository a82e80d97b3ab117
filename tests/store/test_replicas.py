"""What one replica has seen, another answers from the store, and no other caller can read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prompt_sidecar.errors import RunUnknown
from prompt_sidecar.facts.figures import StoreFigures
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.facts.task_calls import CreateTasksCall, TaskStatus, UpdateTaskCall
from prompt_sidecar.facts.usage_calls import UsageCall, UsageOutcome
from prompt_sidecar.recall.found import SearchOutcome
from prompt_sidecar.recall.outcome import Outcome
from tests.engine.runs.making import FORMATS, OPENAI_CHAT, result_text, send
from tests.promises.engine import CALLER, RUN_ID, Engine
from tests.store.sharing import Stepped, Valkey, replica

ITERATIONS = 12


def grown(valkey: Valkey, format: str = OPENAI_CHAT) -> tuple[Engine, Stepped]:
    """A replica that was sent a history as it grew, and has written all of it."""
    engine, archive = replica(valkey)
    for number in range(ITERATIONS + 1):
        send(engine, format, number)
    archive.drain()
    return engine, archive


@pytest.mark.parametrize("format", FORMATS)
def test_every_original_is_retrieved_elsewhere(valkey: Valkey, format: str) -> None:
    """Whatever id an answer named, a replica that has never seen the run gives the same bytes."""
    first, _ = grown(valkey, format)
    ids = [trim.stash_id for trim in send(first, format, ITERATIONS).trimmed.trims if trim.stash_id]
    second, _ = replica(valkey)

    assert ids
    for stash_id in ids:
        assert first.original(stash_id) == second.original(stash_id)
        assert second.original(stash_id) is not None


def test_a_made_up_id_is_not_found_elsewhere(valkey: Valkey) -> None:
    """The run is known by the store, so the answer is final."""
    grown(valkey)
    second, _ = replica(valkey)

    assert Outcome.NOT_FOUND is second.retrieve("aaaaaaaaaa").outcome


def test_an_unknown_run_stays_unknown(valkey: Valkey) -> None:
    """A store that has nothing of a run changes nothing."""
    second, archive = replica(valkey)

    assert Outcome.RUN_UNKNOWN is second.retrieve("aaaaaaaaaa").outcome
    assert SearchOutcome.RUN_UNKNOWN is second.search("module").outcome
    with pytest.raises(RunUnknown):
        second.figures()
    archive.drain()
    assert [] == valkey.client.keys("ps:*")


def test_a_search_finds_the_same_elsewhere(valkey: Valkey) -> None:
    """The index is built from the store's records."""
    first, _ = grown(valkey)
    second, _ = replica(valkey)

    for query in ("value_3", "module_7 warning", "Find the bug"):
        expected, found = first.search(query), second.search(query)
        assert expected.matching_items == found.matching_items
        assert SearchOutcome.FOUND is found.outcome
        assert (expected.first_iteration, expected.last_iteration) == (found.first_iteration, found.last_iteration)
    for bounds in ({"first_iteration": 3}, {"first_iteration": 3, "last_iteration": 5}):
        expected, found = first.search("value_4", **bounds), second.search("value_4", **bounds)
        assert (SearchOutcome.FOUND, expected.matching_items) == (found.outcome, found.matching_items)
    assert result_text(3) in [snippet.text for snippet in second.search("value_3", snippet_tokens=2_000).snippets]


def test_tasks_are_known_elsewhere(valkey: Valkey) -> None:
    """A task that was made at one replica is completed at another, and a retry of either changes nothing."""
    first, writing = replica(valkey)
    second, also = replica(valkey)
    create = CreateTasksCall(CALLER, RUN_ID, ["look", "mend"], request_id="a")
    first.runs.recalling.create_tasks(create)
    writing.drain()

    assert ["look", "mend"] == [task.text for task in second.runs.recalling.create_tasks(create)]
    second.runs.recalling.update_task(UpdateTaskCall(CALLER, RUN_ID, 1, TaskStatus.COMPLETED, "b"))
    also.drain()
    assert [TaskStatus.COMPLETED, TaskStatus.PENDING] == [
        task.status for task in first.runs.recalling.list_tasks(CALLER, RUN_ID)
    ]
    first.runs.recalling.update_task(UpdateTaskCall(CALLER, RUN_ID, 1, TaskStatus.PENDING, "b"))
    writing.drain()
    assert TaskStatus.COMPLETED is second.runs.recalling.list_tasks(CALLER, RUN_ID)[0].status


def test_the_figures_are_known_elsewhere(valkey: Valkey) -> None:
    """GetRun says at another replica what it says at the first."""
    first, _ = grown(valkey)
    second, _ = replica(valkey)
    expected, found = first.figures(), second.figures()

    same = ("run_id", "calls", "iteration", "messages", "tokens", "cache", "tokens_sent_total", "trimmed_items", "size")
    assert [getattr(expected, name) for name in same] == [getattr(found, name) for name in same]
    assert expected.stash.entries == found.stash.entries
    assert expected.history.items == found.history.items


def test_how_the_run_stands_in_the_store(valkey: Valkey) -> None:
    """What waits to be written, and whether another replica has ended the run."""
    first, archive = grown(valkey)
    assert StoreFigures(reachable=True, waiting_calls=0, detached=False) == first.figures().store
    send(first, OPENAI_CHAT, ITERATIONS + 1)
    assert StoreFigures(reachable=True, waiting_calls=1, detached=False) == first.figures().store
    archive.drain()
    assert StoreFigures(reachable=True, waiting_calls=0, detached=False) == first.figures().store
    second, _ = replica(valkey)
    second.runs.end(CALLER, RUN_ID)
    send(first, OPENAI_CHAT, ITERATIONS + 2)
    archive.drain()
    found = first.figures().store
    assert found is not None
    assert found.detached


def test_figures_go_on_where_they_were(valkey: Valkey) -> None:
    """A run's sums at the end are those of all its replicas."""
    first, _ = grown(valkey)
    second, _ = replica(valkey)
    before = first.figures()
    answer = send(second, OPENAI_CHAT, ITERATIONS + 1)
    after = second.figures()

    assert before.calls + 1 == after.calls
    assert before.tokens_sent_total + answer.tokens.before == after.tokens_sent_total
    assert before.started == after.started


def test_the_model_can_recall_elsewhere(valkey: Valkey) -> None:
    """The tools of a replica that has not seen the run answer too; it reads the original alone, and not whose it is."""
    first, _ = grown(valkey)
    stash_id = next(trim.stash_id for trim in send(first, OPENAI_CHAT, ITERATIONS).trimmed.trims if trim.stash_id)
    second, _ = replica(valkey)

    asked = ("recall_elided_content", {"id": stash_id})
    expected, found = first.call(*asked).recalled, second.call(*asked).recalled
    assert expected is not None
    assert replace(expected, tool="") == found


def test_no_other_caller_reads_a_run(valkey: Valkey) -> None:
    """The same run id of another caller is another place with another cipher; the bytes moved there are not opened."""
    first, _ = grown(valkey)
    stash_id = next(trim.stash_id for trim in send(first, OPENAI_CHAT, ITERATIONS).trimmed.trims if trim.stash_id)
    (name,) = valkey.client.keys("ps:*")
    second, archive = replica(valkey)
    call = RetrieveCall("somebody else", RUN_ID, stash_id)

    assert Outcome.RUN_UNKNOWN is second.runs.recalling.retrieve(call).outcome
    send(second, OPENAI_CHAT, 0, caller="somebody else")
    archive.drain()
    (other,) = set(valkey.client.keys("ps:*")) - {name}
    valkey.client.hset(other, f"o{stash_id}", valkey.client.hget(name, f"o{stash_id}"))
    assert Outcome.NOT_FOUND is second.runs.recalling.retrieve(call).outcome
    assert 1 == sum(archive.store.lost.values())


def test_the_store_learns_no_text(valkey: Valkey) -> None:
    """Neither keys, fields nor values hold anything of a prompt, of the caller or of the run's name."""
    grown(valkey)
    (name,) = valkey.client.keys("ps:*")
    (of_caller,) = valkey.client.keys("pc:*")
    noted = b"".join(valkey.client.zrange(of_caller, 0, -1))
    everything = name + b"".join(key + value for key, value in valkey.client.hgetall(name).items()) + of_caller + noted

    for word in (b"module", b"Find the bug", CALLER.encode(), RUN_ID.encode(), b"read"):
        assert word not in everything


def test_a_moved_value_is_not_opened(valkey: Valkey) -> None:
    """Each value is bound to its field: one that is put in another's place is not answered in its stead."""
    first, _ = grown(valkey)
    one, other = [trim.stash_id for trim in send(first, OPENAI_CHAT, ITERATIONS).trimmed.trims if trim.stash_id][:2]
    (name,) = valkey.client.keys("ps:*")
    valkey.client.hset(name, f"o{one}", valkey.client.hget(name, f"o{other}"))
    second, _ = replica(valkey)

    assert second.original(one) is None
    assert first.original(other) == second.original(other)


def test_an_ended_run_does_not_come_back(valkey: Valkey) -> None:
    """EndRun at one replica ends the run for all, and what another has yet to write of it is refused."""
    first, writing = grown(valkey)
    send(first, OPENAI_CHAT, ITERATIONS + 1)  # waits to be written
    second, _ = replica(valkey)
    figures = second.runs.end(CALLER, RUN_ID)
    assert figures is not None
    assert ITERATIONS + 1 == figures.calls
    writing.drain()
    third, _ = replica(valkey)

    assert Outcome.RUN_UNKNOWN is third.retrieve("aaaaaaaaaa").outcome
    (name,) = valkey.client.keys("ps:*")
    assert {b"e": b"1", b"x": b"1"} == valkey.client.hgetall(name)
    assert valkey.client.pttl(name) > 0


def test_a_run_begins_again_after_its_end(valkey: Valkey) -> None:
    """The same name later is a new run: it is written and read, and nothing of the old one with it."""
    first, writing = grown(valkey)
    first.runs.end(CALLER, RUN_ID)
    send(first, OPENAI_CHAT, 1)
    writing.drain()
    second, _ = replica(valkey)

    assert 1 == second.figures().calls
    assert 1 == second.figures().iteration - 1


def test_an_evicted_run_is_unknown(valkey: Valkey) -> None:
    """A run goes as a whole, so no answer claims that an id was never there."""
    first, _ = grown(valkey)
    stash_id = next(trim.stash_id for trim in send(first, OPENAI_CHAT, ITERATIONS).trimmed.trims if trim.stash_id)
    valkey.client.flushall()
    second, _ = replica(valkey)

    assert Outcome.RUN_UNKNOWN is second.retrieve(stash_id).outcome


def test_a_store_that_restarts_empty_is_filled_again(valkey: Valkey) -> None:
    """The next prompt of a run writes all of it, not only what the prompt has brought."""
    first, writing = grown(valkey)
    valkey.client.flushall()
    valkey.client.script_flush()
    answer = send(first, OPENAI_CHAT, ITERATIONS + 1)
    writing.drain()
    second, _ = replica(valkey)

    for trim in answer.trimmed.trims:
        assert first.original(trim.stash_id) == second.original(trim.stash_id)
    assert first.figures().calls == second.figures().calls


def test_the_time_to_live_slides(valkey: Valkey) -> None:
    """One expiry for all of a run, renewed by a write and by a read at another replica."""
    first, writing = grown(valkey)
    (name,) = valkey.client.keys("ps:*")
    valkey.client.pexpire(name, 60_000)
    send(first, OPENAI_CHAT, ITERATIONS + 1)
    writing.drain()
    assert 60_000 < valkey.client.pttl(name)

    valkey.client.pexpire(name, 60_000)
    replica(valkey)[0].figures()
    assert 60_000 < valkey.client.pttl(name)


@pytest.mark.parametrize("format", FORMATS)
def test_a_replica_goes_on_with_the_same_decisions(valkey: Valkey, format: str) -> None:
    """The limit has changed on the way, the agent carries no revision, and the next prompts are the same bytes."""
    first, writing = replica(valkey)
    for number in range(ITERATIONS):
        send(replace_limit(first, 6_000 if number < 10 else 9_000), format, number)
    writing.drain()
    second, _ = replica(valkey)
    alone = Engine(limit=9_000, policy=first.policy)
    differs = False
    for number in range(ITERATIONS, ITERATIONS + 5):
        expected = send(replace_limit(first, 9_000), format, number)
        found = send(replace_limit(second, 9_000), format, number)
        assert expected.prompt.body == found.prompt.body
        assert list(expected.trimmed.trims) == list(found.trimmed.trims)
        differs |= expected.prompt.body != send(alone, format, number).prompt.body
    assert differs  # without the store they would be others


def replace_limit(engine: Engine, limit: int) -> Engine:
    """The engine, with another limit from now on."""
    engine.limit = limit
    return engine


def test_a_dry_run_leaves_the_decisions_for_the_prompt(valkey: Valkey) -> None:
    """What is only asked for uses the last revision, and so does the prompt that comes after it."""
    first, writing = replica(valkey)
    for number in range(ITERATIONS):
        send(replace_limit(first, 6_000 if number < 10 else 9_000), OPENAI_CHAT, number)
    writing.drain()
    second, _ = replica(valkey)
    expected = send(first, OPENAI_CHAT, ITERATIONS)

    asked = send(replace_limit(second, 9_000), OPENAI_CHAT, ITERATIONS, dry_run=True)
    assert expected.prompt.body == asked.prompt.body
    assert expected.prompt.body == send(second, OPENAI_CHAT, ITERATIONS).prompt.body


def test_without_a_store_nothing_is_handed_over() -> None:
    """A run of a process without one collects nothing."""
    engine = Engine(limit=6_000)
    answer = send(engine, OPENAI_CHAT, ITERATIONS)

    assert answer.trimmed.trims
    assert engine.runs.totals().store is None
    (run,) = engine.runs.table._runs.values()  # noqa: SLF001
    assert run.archived.outbox is None


def test_what_was_reported_counts_elsewhere(valkey: Valkey) -> None:
    """The sums go along; a prompt can be reported to the process that returned it, and to no other."""
    first, archive = grown(valkey)
    last = send(first, OPENAI_CHAT, ITERATIONS)
    usage = UsageCall(
        CALLER, RUN_ID, input_tokens=last.tokens.after + 99, cached_tokens=7, revision=last.prompt.revision
    )
    first.runs.report_usage(usage)
    archive.drain()
    second, _ = replica(valkey)
    expected = first.figures().comparison
    assert (1, expected) == (expected.reported, second.figures().comparison)
    assert UsageOutcome.PROMPT_UNKNOWN is second.runs.report_usage(usage).outcome
    assert expected == second.figures().comparison
