"""EndRuns with a store: what other replicas have stored of the caller's runs goes too, and nobody else's."""

from __future__ import annotations

import pytest

from prompt_sidecar.errors import RunUnknown, StoreUnavailable
from prompt_sidecar.facts.archived import StoreLoss
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.store.sealing import Sealer, caller_name
from prompt_sidecar.trim.ids import caller_key, run_key
from tests.engine.runs.making import OPENAI_CHAT, send
from tests.lab.harness.processes import free_port
from tests.promises.engine import CALLER, KEY, RUN_ID, Engine
from tests.store.sharing import Stepped, Valkey, one_kind, replica

OTHER = "somebody else"


def known(valkey: Valkey, caller: str, run_id: str) -> bool:
    """Whether a replica that has seen nothing finds the run."""
    try:
        return bool(replica(valkey)[0].runs.figures(caller, run_id))
    except RunUnknown:
        return False


def writing(valkey: Valkey, *runs: tuple[str, str]) -> tuple[Engine, Stepped]:
    """A replica that has stored these callers' runs."""
    engine, archive = replica(valkey)
    for caller, run_id in runs:
        send(engine, OPENAI_CHAT, 9, caller=caller, run_id=run_id)
    archive.drain()
    return engine, archive


def test_runs_of_all_replicas_go(valkey: Valkey) -> None:
    """Those that this process has seen and those that it has not; each is counted once, and a tombstone is left."""
    writing(valkey, (CALLER, "one"), (CALLER, "two"))
    here, _ = writing(valkey, (CALLER, "three"))
    assert 3 == here.runs.end_all(CALLER)
    assert not any(known(valkey, CALLER, run_id) for run_id in ("one", "two", "three"))
    assert [{b"e": b"1", b"x": b"1"}] * 3 == [valkey.client.hgetall(name) for name in valkey.client.keys("ps:*")]
    assert [] == valkey.client.keys("pc:*")
    assert 0 == here.runs.end_all(CALLER)


@one_kind
def test_more_runs_than_one_command_names(valkey: Valkey) -> None:
    """All go, however many there are."""
    writing(valkey, *((CALLER, f"run-{number}") for number in range(150)))
    assert 150 == replica(valkey)[0].runs.end_all(CALLER)
    assert [] == valkey.client.keys("pc:*")


def test_no_other_caller_s_run_goes(valkey: Valkey) -> None:
    """Of the same name, of a name that begins alike, or stored by the same replica."""
    engine, _ = writing(valkey, (CALLER, RUN_ID), (OTHER, RUN_ID), (f"{CALLER}x", RUN_ID))
    assert 1 == replica(valkey)[0].runs.end_all(CALLER)
    assert not known(valkey, CALLER, RUN_ID)
    assert known(valkey, OTHER, RUN_ID)
    assert known(valkey, f"{CALLER}x", RUN_ID)
    assert 1 == engine.runs.figures(OTHER, RUN_ID).calls


def test_what_another_replica_has_yet_to_write_is_not_written(valkey: Valkey) -> None:
    """It had the run before it was ended, so its writes come too late, whenever they come."""
    first, waiting = writing(valkey, (CALLER, RUN_ID))
    send(first, OPENAI_CHAT, 12)
    replica(valkey)[0].runs.end_all(CALLER)
    waiting.drain()
    assert not known(valkey, CALLER, RUN_ID)
    assert waiting.store.lost[StoreLoss.ENDED]


def test_a_run_whose_first_write_is_on_its_way_goes(valkey: Valkey) -> None:
    """It is noted before it is written, and what comes after its end finds a tombstone."""
    run = Sealer(run_key(KEY, CALLER, RUN_ID)).name
    valkey.client.zadd(caller_name(caller_key(KEY, CALLER)), {run: 1e15})
    first, waiting = replica(valkey)
    send(first, OPENAI_CHAT, 9)
    (place,) = [each.archived.place for each in first.runs.table._runs.values()]  # noqa: SLF001 - it has looked
    assert place is not None
    place.restored(None)
    assert 0 == replica(valkey)[0].runs.end_all(CALLER)
    waiting.drain()
    assert not known(valkey, CALLER, RUN_ID)


def test_a_run_begins_again_after_its_end(valkey: Valkey) -> None:
    """At any replica, with nothing of the run before; and it can be ended again."""
    writing(valkey, (CALLER, RUN_ID))
    ending, _ = replica(valkey)
    ending.runs.end_all(CALLER)
    writing(valkey, (CALLER, RUN_ID))
    assert 1 == replica(valkey)[0].figures().calls
    assert 1 == replica(valkey)[0].runs.end_all(CALLER)
    assert Outcome.RUN_UNKNOWN is replica(valkey)[0].retrieve("aaaaaaaaaa").outcome


def test_a_store_that_was_emptied_is_noted_again(valkey: Valkey) -> None:
    """A run that goes on is written again, and can be ended from elsewhere."""
    first, archive = writing(valkey, (CALLER, RUN_ID))
    valkey.client.flushall()
    send(first, OPENAI_CHAT, 12)
    archive.drain()
    assert 1 == replica(valkey)[0].runs.end_all(CALLER)
    assert not known(valkey, CALLER, RUN_ID)


def test_runs_under_a_key_before_go(valkey: Valkey) -> None:
    """What was stored before the key was replaced is the same caller's."""
    writing(valkey, (CALLER, "before"))
    after, archive = replica(valkey, key=bytes(32), previous_keys=[KEY])
    send(after, OPENAI_CHAT, 9, run_id="after")
    archive.drain()
    assert 2 == after.runs.end_all(CALLER)
    assert not known(valkey, CALLER, "before")
    with pytest.raises(RunUnknown):
        after.runs.figures(CALLER, "after")


def test_a_store_that_does_not_answer_is_reported(valkey: Valkey) -> None:
    """What is here is forgotten; the caller learns that the rest may not be, and asks again."""
    here, archive = writing(valkey, (CALLER, "here"))
    writing(valkey, (CALLER, "elsewhere"))
    valkey.client.replicaof("127.0.0.1", free_port())
    try:
        with pytest.raises(StoreUnavailable):
            here.runs.end_all(CALLER)
    finally:
        valkey.client.replicaof("NO", "ONE")
    assert 0 == len(here.runs)
    archive.drain()
    here.runs.end_all(CALLER)
    assert not known(valkey, CALLER, "here")
    assert not known(valkey, CALLER, "elsewhere")
