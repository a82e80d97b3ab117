"""Runs in a real cluster of Valkey servers: on all of its nodes, and still there when one of them dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from prompt_sidecar.config.settings import SettingsError, load
from prompt_sidecar.facts.archived import StoreCommand, StoreReply
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.place import RunPlace
from prompt_sidecar.store.server import Server
from prompt_sidecar.store.shared import SharedArchive, SharedPlace
from tests.cli.running import PATIENCE
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, send
from tests.promises.engine import CALLER, Engine
from tests.store.clustered import Nodes, running_cluster
from tests.store.sharing import LIFE, Stepped
from tests.waiting import until

RUNS = 24
ITERATIONS = 12


def replica(url: str) -> tuple[Engine, Stepped]:
    """An engine of its own, with what it shares."""
    archive = Stepped(url, cluster=True)
    return Engine(limit=LIMIT, policy=ROOM, archive=archive), archive


def grown(engine: Engine, run_id: str) -> list[str]:
    """Send a run as it grows; ids of what was trimmed."""
    engine.run_id = run_id
    for number in range(ITERATIONS):
        answer = send(engine, OPENAI_CHAT, number)
    return [trim.stash_id for trim in answer.trimmed.trims if trim.stash_id]


@contextmanager
def filled(nodes: Nodes) -> Iterator[tuple[Engine, Stepped, dict[str, list[str]]]]:
    """A replica that has written many runs; the ids of each."""
    engine, archive = replica(nodes.urls[0])
    ids = {run_id: grown(engine, run_id) for run_id in map("run-{}".format, range(RUNS))}
    archive.drain()
    yield engine, archive, ids


def originals(engine: Engine, ids: dict[str, list[str]]) -> dict[str, list[bytes | None]]:
    """What an engine has of the runs."""
    found = {}
    for run_id, of_run in ids.items():
        engine.run_id = run_id
        found[run_id] = [engine.original(stash_id) for stash_id in of_run]
    return found


def test_runs_are_on_all_nodes_and_any_replica_reads_them() -> None:
    """By the name of any node; a run that is ended is gone for all."""
    with running_cluster() as nodes, filled(nodes) as (first, _, ids):
        assert all(client.dbsize() for client in nodes.clients)
        wanted = originals(first, ids)
        for url in nodes.urls:
            second, _ = replica(url)
            assert wanted == originals(second, ids)
        first.runs.end("promises", "run-0")
        third, _ = replica(nodes.urls[1])
        third.run_id = "run-0"
        assert Outcome.RUN_UNKNOWN is third.retrieve(ids["run-0"][0]).outcome


def test_slots_move() -> None:
    """The cluster's answers say where a key is now; no command is lost."""
    with running_cluster() as nodes, filled(nodes) as (first, archive, ids):
        wanted = originals(first, ids)
        source, target = nodes.clients[:2]
        names = [client.execute_command("CLUSTER MYID") for client in (source, target)]
        for slot in sorted({source.execute_command("CLUSTER KEYSLOT", name) for name in source.keys("*")}):
            target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[0])
            source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[1])
            keys = source.execute_command("CLUSTER GETKEYSINSLOT", slot, 1_000)
            source.migrate("127.0.0.1", nodes.servers[1].port, keys, 0, 60_000)
            for client in (target, source):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[1])
        assert 0 == source.dbsize()
        second, _ = replica(nodes.urls[2])
        assert wanted == originals(second, ids)
        grown(first, "another")
        archive.drain()
        assert {StoreReply.DONE, StoreReply.OUTDATED} >= {reply for _, reply in archive.store.commands}


def test_a_node_dies_and_its_replica_takes_its_place() -> None:
    """What it had passed on is there after it, and what came meanwhile is written in the end."""
    with running_cluster(replicas=1) as nodes, filled(nodes) as (first, archive, ids):
        wanted = originals(first, ids)
        assert nodes.clients[0].wait(1, 0)
        nodes.servers[0].terminate()
        late = {run_id: grown(first, run_id) for run_id in map("late-{}".format, range(RUNS))}
        until(lambda: written(archive))
        assert archive.store.commands[StoreCommand.WRITE, StoreReply.UNREACHABLE]
        second, _ = replica(nodes.urls[1])
        assert wanted == originals(second, ids)
        assert originals(first, late) == originals(second, late)


@pytest.mark.parametrize("noting", [False, True])
def test_a_node_that_does_not_answer_holds_up_its_own_runs_alone(noting: bool) -> None:
    """Those of other nodes are written and read meanwhile, whichever came first; its own are when it is back.

    New runs of a caller also wait for the node where the caller's runs are noted, and that is the node if `noting`.
    """
    with running_cluster() as nodes:
        engine, archive, server = impatient(nodes.urls[0])
        ids = {run_id: grown(engine, run_id) for run_id in map("old-{}".format, range(RUNS))}
        assert written(archive)
        home = server.node(place_of(engine, "old-0").caller_name)
        gone = next(name for name in server.nodes() if name and (name == home) is noting)
        with stopped(nodes, gone):
            ids |= {run_id: grown(engine, run_id) for run_id in map("new-{}".format, range(RUNS))}
            for number in range(RUNS):
                engine.run_id = f"old-{number}"
                send(engine, OPENAI_CHAT, ITERATIONS)
            held = {
                run_id
                for run_id in ids
                if server.node(place_of(engine, run_id).sealer.name) == gone or (noting and run_id.startswith("new"))
            }
            assert held
            others = ids.keys() - held
            until(lambda: written(archive) or not any(waits(engine, archive, run_id) for run_id in others))
            assert all(waits(engine, archive, run_id) for run_id in held)
            assert not archive.totals().reachable
            second, _, _ = impatient(next(url for url in nodes.urls if not url.endswith(gone)))
            there = {run_id: ids[run_id] for run_id in others}
            assert originals(engine, there) == originals(second, there)
            assert {True} == {archive.figures(place_of(engine, run_id)).reachable for run_id in others}
        until(lambda: written(archive))
        assert archive.totals().reachable
        third, _ = replica(nodes.urls[0])
        assert originals(engine, ids) == originals(third, ids)


def impatient(url: str) -> tuple[Engine, SharedArchive, Server]:
    """As `replica`, with as little time for a command as by default."""
    settings = StoreOptions(url=url, cluster=True)
    server = Server(settings)
    archive = SharedArchive(settings, server, LIFE, threads=False)
    return Engine(limit=LIMIT, policy=ROOM, archive=archive), archive, server


def place_of(engine: Engine, run_id: str) -> RunPlace:
    """A run's place in the store."""
    run = engine.runs.table.known(CALLER, run_id)
    assert run is not None
    assert isinstance(run.archived.place, SharedPlace)
    return run.archived.place.run


def waits(engine: Engine, archive: SharedArchive, run_id: str) -> bool:
    """Whether something of a run is not written."""
    return bool(archive.figures(place_of(engine, run_id)).waiting_calls)


@contextmanager
def stopped(nodes: Nodes, name: str) -> Iterator[None]:
    """A node that takes connections and answers nothing meanwhile."""
    (client,) = [client for url, client in zip(nodes.urls, nodes.clients, strict=True) if url.endswith(name)]
    process = int(client.info("server")["process_id"])
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_cluster_that_was_down_is_found_again() -> None:
    """Though the library forgets all nodes while none of them answers."""
    with running_cluster(masters=1) as nodes:
        url = nodes.urls[0]
        engine, archive = replica(url)
        ids = {"before": grown(engine, "before")}
        archive.drain()
        nodes.servers[0].stop(PATIENCE)
        ids["meanwhile"] = grown(engine, "meanwhile")
        assert not written(archive)
        nodes.servers[0].start(PATIENCE)
        until(lambda: written(archive))
        second, _ = replica(url)
        assert originals(engine, {"meanwhile": ids["meanwhile"]}) == originals(second, {"meanwhile": ids["meanwhile"]})


def written(archive: SharedArchive) -> bool:
    """Go on with what waits; whether all of it is written."""
    while archive.step():
        pass
    return not archive.totals().queued_bytes


@pytest.mark.parametrize("url", ["valkey://127.0.0.1:6379/1", "unix:///run/valkey.sock"])
def test_a_cluster_has_one_database_and_no_socket(url: str) -> None:
    """Setting them with a cluster stops the start."""
    with pytest.raises(SettingsError, match=r"store\.cluster"):
        load({}, flags={"store.url": url, "store.cluster": "true", "key": "k" * 64})
