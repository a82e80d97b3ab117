"""A store that is down, full, a replica or slow: prompts do not depend on it, and nothing is made up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import StoreCommand, StoreLoss, StoreReply
from prompt_sidecar.facts.figures import StoreFigures
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Server
from prompt_sidecar.store.shared import SharedArchive
from prompt_sidecar.trim.ids import caller_key
from prompt_sidecar.v1 import retrieve_pb2
from tests.cli.running import PATIENCE
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, body, history, send
from tests.lab.harness.processes import free_port
from tests.promises.engine import CALLER, KEY, RUN_ID, Engine
from tests.store.sharing import LIFE, PATIENT, Stepped, Valkey, replica, running_valkey
from tests.store.test_killed import Replica, shared
from tests.waiting import until

ITERATIONS = 12


@contextmanager
def threaded(url: str, **options: Any) -> Iterator[Engine]:
    """An engine whose archive writes by itself."""
    settings = StoreOptions(url=url, **({"timeout": PATIENT} | options))
    archive = SharedArchive(settings, Server(settings), LIFE)
    try:
        yield Engine(limit=LIMIT, policy=ROOM, archive=archive)
    finally:
        archive.close()


def elided(engine: Engine) -> list[str]:
    """The ids that the run's last prompt names."""
    return [trim.stash_id for trim in send(engine, OPENAI_CHAT, ITERATIONS).trimmed.trims if trim.stash_id]


def times(archive: Stepped, reply: StoreReply) -> int:
    """Commands with this outcome."""
    return sum(number for (_, of), number in archive.store.commands.items() if of is reply)


def test_prompts_do_not_depend_on_a_store_that_is_down() -> None:
    """The same bytes as without one; after some failures it is not asked any more, nor is a run said to be unknown."""
    archive = Stepped(f"valkey://127.0.0.1:{free_port()}/0", clock=lambda: 0.0)  # its pauses do not end meanwhile
    engine, alone = Engine(LIMIT, policy=ROOM, archive=archive), Engine(LIMIT, policy=ROOM)
    for number in range(ITERATIONS + 1):
        assert send(alone, OPENAI_CHAT, number).prompt.body == send(engine, OPENAI_CHAT, number).prompt.body
        archive.step()

    assert not archive.store.reachable
    assert StoreFigures(reachable=False, waiting_calls=ITERATIONS + 1, detached=False) == engine.figures().store
    assert alone.figures().store is None
    assert times(archive, StoreReply.UNREACHABLE) < ITERATIONS
    assert engine.original(elided(engine)[0]) is not None
    engine.run_id = "another"
    with pytest.raises(StoreUnavailable):
        engine.retrieve("aaaaaaaaaa")
    assert times(archive, StoreReply.SKIPPED)


def test_what_waited_is_written_when_the_store_is_back() -> None:
    """A run that began while the store was down is known to other replicas once it is up."""
    port = free_port()
    with threaded(f"valkey://127.0.0.1:{port}/0") as engine:
        ids = elided(engine)
        with running_valkey(port) as valkey:
            until_written(valkey)
            second, _ = replica(valkey)
            assert [engine.original(each) for each in ids] == [second.original(each) for each in ids]


def until_written(valkey: Valkey) -> None:
    """Wait for the figures of a run, which are written with what came before them."""
    gives_up, until = threading.Event(), time.monotonic() + PATIENCE
    while not any(valkey.client.hexists(name, "si") for name in valkey.client.scan_iter("ps:*")):
        assert time.monotonic() < until, "what waited was never written"
        gives_up.wait(0.02)


def test_a_taken_over_run_says_that_the_store_is_missing() -> None:
    """An id that only the store can know is not said to be unknown while the store cannot be asked."""
    port = free_port()
    with running_valkey(port) as valkey:
        first, writing = replica(valkey)
        ids = elided(first)
        writing.drain()
        second, archive = replica(valkey)
        assert second.original(ids[0]) is not None
    with pytest.raises(StoreUnavailable):
        second.retrieve(ids[1])
    with pytest.raises(StoreUnavailable):
        second.search("value_3")
    assert second.original(ids[0]) is not None
    assert not archive.step()


def test_a_full_store_is_counted_and_read() -> None:
    """Writes wait, reads go on; with room again all is written."""
    with running_valkey(config={"maxmemory": "64mb", "maxmemory-policy": "noeviction"}) as valkey:
        first, writing = replica(valkey)
        ids = elided(first)
        writing.drain()
        valkey.client.config_set("maxmemory", 1)
        send(first, OPENAI_CHAT, ITERATIONS + 1)
        assert not writing.step()
        assert 1 == times(writing, StoreReply.FULL)
        second, _ = replica(valkey)
        assert second.original(ids[0]) == first.original(ids[0])
        valkey.client.config_set("maxmemory", 0)
        writing.drain()
        assert first.figures().calls == replica(valkey)[0].figures().calls


def test_an_id_that_a_full_store_did_not_take_is_not_reported_as_unknown() -> None:
    """Neither by a replica that has only the store, nor by one that knows the run as it was before; then its own."""
    with running_valkey(config={"maxmemory-policy": "noeviction"}) as valkey:
        first, writing = replica(valkey)
        known = elided(first)
        writing.drain()
        before, _ = replica(valkey)
        send(before, OPENAI_CHAT, ITERATIONS)
        valkey.client.config_set("maxmemory", 1)
        later = [trim.stash_id for trim in send(first, OPENAI_CHAT, 2 * ITERATIONS).trimmed.trims]
        (run,) = valkey.client.scan_iter(_type="hash")
        lacking = next(each for each in later if each and not valkey.client.hexists(run, f"o{each}"))
        assert not writing.step()
        second, _ = replica(valkey)
        for engine in (second, before):
            assert engine.original(known[0]) is not None
            with pytest.raises(StoreUnavailable):
                engine.retrieve(lacking)
        valkey.client.config_set("maxmemory", 0)
        for engine in (second, before):  # the first one may have ended, and what it had with it
            with pytest.raises(StoreUnavailable, match="was full") as lost:
                engine.retrieve(lacking)
            assert "is lost if that process has ended" in lost.value.message
            assert engine.original(known[0]) is not None
        send(second, OPENAI_CHAT, 2 * ITERATIONS)
        assert second.original(lacking) == first.original(lacking)
        writing.drain()
        assert before.original(lacking) == first.original(lacking)
        for engine in (first, second, before):
            assert Outcome.NOT_FOUND is engine.retrieve("nowhere000").outcome


def test_what_a_killed_process_could_not_write_is_not_reported_as_unknown(tmp_path: Path) -> None:
    """The store was full, has room again, and the only process that had the original is dead."""
    with running_valkey(config={"maxmemory-policy": "noeviction"}) as valkey, ExitStack() as stack:
        settings = shared(valkey, STORE__DURABILITY="local")
        first = Replica(stack, tmp_path / "first", **settings)
        second = Replica(stack, tmp_path / "second", **settings)
        first.trim(OPENAI_CHAT, 1)
        until_written(valkey)
        (run,) = valkey.client.keys("ps:*")
        assert valkey.client.hexists(run, "c")
        valkey.client.config_set("maxmemory", 1)
        ids = [trim.stash_id for trim in first.trim(OPENAI_CHAT, ITERATIONS).trims if trim.stash_id]
        until(lambda: not valkey.client.hexists(run, "c"))
        lost = next(each for each in ids if not valkey.client.hexists(run, f"o{each}"))
        first.kill()
        valkey.client.config_set("maxmemory", 0)
        request = retrieve_pb2.RetrieveContentRequest(run_id="r", stash_id=lost)
        with pytest.raises(grpc.RpcError) as refused:
            second.stub.RetrieveContent(request)
        assert grpc.StatusCode.UNAVAILABLE is refused.value.code()
        assert "is lost if that process has ended" in str(refused.value.details())
        second.trim(OPENAI_CHAT, ITERATIONS)
        assert second.original(lost)


def test_an_acknowledged_answer_says_that_the_store_is_full() -> None:
    """Within its time, and with the word for it; its retry is answered once there is room."""
    quick = {"durability": "acknowledged", "acknowledge_timeout": 0.2}
    with (
        running_valkey(config={"maxmemory-policy": "noeviction"}) as valkey,
        threaded(valkey.url, **quick) as engine,
    ):
        send(engine, OPENAI_CHAT, 1)
        valkey.client.config_set("maxmemory", 1)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as refused:
            send(engine, OPENAI_CHAT, ITERATIONS)
        assert time.monotonic() - began < PATIENCE
        assert StoreReply.FULL.value in refused.value.message
        assert "store.acknowledge_timeout" == refused.value.bound
        valkey.client.config_set("maxmemory", 0)
        until = time.monotonic() + PATIENCE
        answer = None
        while answer is None and time.monotonic() < until:
            with suppress(StoreUnavailable):
                answer = send(engine, OPENAI_CHAT, ITERATIONS)
        assert answer is not None


def test_a_replica_in_the_primarys_place_takes_no_writes(valkey: Valkey) -> None:
    """As during a failover: what is written waits for the primary."""
    first, writing = replica(valkey)
    send(first, OPENAI_CHAT, ITERATIONS)
    valkey.client.replicaof("127.0.0.1", free_port())
    try:
        assert not writing.step()
        assert 1 == writing.store.commands[StoreCommand.WRITE, StoreReply.FAILED]
    finally:
        valkey.client.replicaof("NO", "ONE")
    writing.drain()
    assert first.figures().calls == replica(valkey)[0].figures().calls


def test_a_full_queue_is_made_good_from_the_stash(valkey: Valkey) -> None:
    """What it has no room for is counted, and written once the store takes writes again."""
    archive = Stepped(valkey.url, queue_bytes=1 << 20)
    first = Engine(limit=1_000_000, archive=archive)
    for number in range(4):
        text = f"{number}" * 600_000
        first.trim(OPENAI_CHAT, body(OPENAI_CHAT, [*history(OPENAI_CHAT, 1), {"role": "user", "content": text}]))
    assert archive.store.queued_bytes <= 1 << 20
    assert archive.store.lost[StoreLoss.QUEUE_FULL]
    assert archive.store.bounds["store.queue_bytes"]
    archive.drain()
    second, _ = replica(valkey)

    for number in range(4):
        assert second.search(f"{number}" * 100).snippets or second.search("module").matching_items
    assert first.figures().history.items == len(archive.find(*keys_of(first)).items(lambda: None))


def test_how_far_the_writing_is_behind(valkey: Valkey) -> None:
    """The age of the oldest that waits; nothing once all is written."""
    now = 100.0
    archive = Stepped(valkey.url, clock=lambda: now)
    engine = Engine(limit=1_000_000, archive=archive)
    assert 0.0 == archive.store.lag
    for number in range(2):
        engine.trim(OPENAI_CHAT, body(OPENAI_CHAT, history(OPENAI_CHAT, number + 1)))
        now += 7.0
    assert 14.0 == archive.store.lag
    archive.drain()
    assert 0.0 == archive.store.lag


def keys_of(engine: Engine) -> tuple[bytes, bytes]:
    """The key of the engine's run, and that of its caller's runs."""
    ((_, run),) = engine.runs.table._runs.items()  # noqa: SLF001
    return run.key, caller_key(KEY, CALLER)


def test_a_large_original_stays_with_its_process(valkey: Valkey) -> None:
    """It is counted, and the rest of its run is written."""
    archive = Stepped(valkey.url, item_bytes=1 << 10)
    first = Engine(limit=LIMIT, policy=ROOM, archive=archive)
    ids = elided(first)
    archive.drain()
    second, _ = replica(valkey)

    assert archive.store.lost[StoreLoss.TOO_LARGE]
    assert first.figures().calls == second.figures().calls
    large = [each for each in ids if len(first.original(each) or b"") > 1 << 10]
    assert large
    assert [None] * len(large) == [second.original(each) for each in large]


def test_an_acknowledged_edit_waits_for_the_store() -> None:
    """Without the store an answer that leaves out something new is UNAVAILABLE; its retry is as it would have been."""
    port = free_port()
    alone = Engine(LIMIT, policy=ROOM)
    quick = {"durability": "acknowledged", "acknowledge_timeout": 0.05}
    with threaded(f"valkey://127.0.0.1:{port}/0", **quick) as engine:
        assert (
            send(alone, OPENAI_CHAT, 1).prompt.body == send(engine, OPENAI_CHAT, 1).prompt.body
        )  # it leaves out nothing
        with pytest.raises(StoreUnavailable) as refused:
            send(engine, OPENAI_CHAT, ITERATIONS)
        assert "store.acknowledge_timeout" == refused.value.bound
        with running_valkey(port) as valkey:
            until = time.monotonic() + PATIENCE
            while True:  # the breaker lets commands pass again after a while
                try:
                    answer = send(engine, OPENAI_CHAT, ITERATIONS)
                except StoreUnavailable:
                    assert time.monotonic() < until, "the store's acknowledgement never came"
                    continue
                break
            assert send(alone, OPENAI_CHAT, ITERATIONS).prompt.body == answer.prompt.body
            second, _ = replica(valkey)
            for trim in answer.trimmed.trims:
                assert engine.original(trim.stash_id) == second.original(trim.stash_id)


def test_an_acknowledged_edit_waits_for_replicas(valkey: Valkey) -> None:
    """A write that no replica has is none; with a replica that follows it is."""
    port = int(valkey.client.connection_pool.connection_kwargs["port"])
    patient = {"durability": "acknowledged", "replicas": 1}
    with threaded(valkey.url, acknowledge_timeout=0.05, **patient) as engine, pytest.raises(StoreUnavailable):
        send(engine, OPENAI_CHAT, ITERATIONS)
    with (
        running_valkey(config={"replicaof": f"127.0.0.1 {port}"}) as follower,
        threaded(valkey.url, acknowledge_timeout=60.0, **patient) as engine,
    ):
        answer = send(engine, OPENAI_CHAT, ITERATIONS)
        follower.client.replicaof("NO", "ONE")  # the primary is lost
        second, _ = replica(follower)
        for trim in answer.trimmed.trims:
            assert engine.original(trim.stash_id) == second.original(trim.stash_id)


def test_figures_of_another_version_leave_the_run_known(valkey: Valkey) -> None:
    """During an upgrade: originals are answered, though GetRun cannot say what was counted."""
    first, writing = replica(valkey)
    ids = elided(first)
    writing.drain()
    (name,) = valkey.client.keys("ps:*")
    sealer = writing.find(*keys_of(first)).run.sealer
    valkey.client.hset(name, "s", sealer.seal(b"s", 0, b"\xc3"))
    second, archive = replica(valkey)

    assert first.original(ids[0]) == second.original(ids[0])
    assert 1 == second.figures().calls
    assert archive.store.lost[StoreLoss.UNREADABLE]


def test_another_key_knows_nothing(valkey: Valkey) -> None:
    """Two deployments may share a store by mistake: neither sees the other's runs."""
    first, writing = replica(valkey)
    ids = elided(first)
    writing.drain()
    second, _ = replica(valkey, key=b"another key that is configured, of thirty-two bytes")

    assert Outcome.RUN_UNKNOWN is second.retrieve(ids[0]).outcome


def test_what_waited_too_long_is_not_written(valkey: Valkey) -> None:
    """A write that is older than its originals' time to live could outlive the tombstone of its run."""
    now = 0.0
    settings = StoreOptions(url=valkey.url, timeout=PATIENT)
    archive = SharedArchive(settings, Server(settings), LIFE, clock=lambda: now, threads=False)
    send(Engine(LIMIT, policy=ROOM, archive=archive), OPENAI_CHAT, ITERATIONS)
    now = LIFE + 1.0
    while archive.step():
        pass

    assert [] == valkey.client.keys("ps:*")
    assert archive.totals().lost[StoreLoss.TOO_OLD]


def test_an_end_that_the_store_did_not_hear_is_sent_again(valkey: Valkey) -> None:
    """The run is over for its process at once, and for the others when the store is back; a new one may begin."""
    first, writing = replica(valkey)
    send(first, OPENAI_CHAT, ITERATIONS)
    writing.drain()
    valkey.client.replicaof("127.0.0.1", free_port())
    try:
        first.runs.end(CALLER, RUN_ID)
        send(first, OPENAI_CHAT, 1)
    finally:
        valkey.client.replicaof("NO", "ONE")
    writing.drain()

    assert 1 == replica(valkey)[0].figures().calls
