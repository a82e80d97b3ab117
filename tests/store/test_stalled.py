"""A store that stalls: what cannot be asked of it is not said to be unknown, and what waited is written soon after."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

import grpc
import pytest

from prompt_sidecar.engine.runs.archive import Archive
from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import StoreCommand, StoreReply
from prompt_sidecar.facts.recall_calls import RetrieveAnswer
from prompt_sidecar.facts.tool_calls import CREATE_TASKS, RECALL
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.store import shared as shared_archive
from prompt_sidecar.store.breaker import FIRST_PAUSE, LONGEST_PAUSE
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.server import Argument, Failure, Server
from prompt_sidecar.store.shared import FAILED_PAUSE, SharedArchive
from prompt_sidecar.trim.ids import caller_key
from prompt_sidecar.v1 import run_pb2
from tests.cli.running import PATIENCE
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, ROOM, send
from tests.promises.engine import CALLER, KEY, RUN_ID, Clock, Engine
from tests.store.sharing import LIFE, PATIENT, Valkey, one_kind, replica
from tests.store.test_killed import Replica, shared
from tests.waiting import until

ITERATIONS: Final = 12
SHORT: Final = 0.05
"""Seconds for a command to a store that is stopped."""
PROMISED: Final = 1.5
"""Seconds from when the store is back until what waits is written, as docs/store.md says."""
AT_ONCE: Final = 12
"""Commands that are on their way at the same time."""
TAKES: Final = 0.25
"""Seconds, by a clock that is stepped, of a command that is not answered."""


@contextmanager
def stalled(valkey: Valkey) -> Iterator[None]:
    """A server that takes connections and answers nothing meanwhile."""
    process = int(valkey.client.info("server")["process_id"])
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def written(valkey: Valkey) -> list[str]:
    """Have a run in the store; the ids that its last prompt names."""
    engine, archive = replica(valkey)
    ids = [trim.stash_id for trim in send(engine, OPENAI_CHAT, ITERATIONS).trimmed.trims if trim.stash_id]
    archive.drain()
    return ids


def impatient(valkey: Valkey, clock: Clock) -> SharedArchive:
    """An archive of a process that gives a command little time."""
    settings = StoreOptions(url=valkey.url, timeout=SHORT)
    return SharedArchive(settings, Server(settings), LIFE, clock=clock, threads=False)


def again(engine: Engine, stash_id: str, clock: Clock) -> RetrieveAnswer:
    """What a process answers when the store is back; it is asked anew where a busy machine's store was slow."""
    late = monotonic() + PATIENCE
    while True:
        clock.now += LONGEST_PAUSE
        try:
            return engine.retrieve(stash_id)
        except StoreUnavailable:
            assert monotonic() < late


def engine_of(archive: Archive) -> Engine:
    """A process that begins."""
    return Engine(limit=LIMIT, policy=ROOM, archive=archive)


def test_a_run_is_not_reported_as_unknown_while_the_store_cannot_be_asked(valkey: Valkey) -> None:
    """Whether it was asked in vain or not at all; once it answers, so does the process."""
    ids, clock = written(valkey), Clock()
    archive = impatient(valkey, clock)
    second = engine_of(archive)
    asks: list[Callable[[], Any]] = [
        lambda: second.retrieve(ids[0]),
        lambda: second.search("value_3"),
        lambda: second.call(RECALL, {"id": ids[0]}),
        second.figures,
        lambda: second.runs.recalling.list_tasks(CALLER, RUN_ID),
        lambda: second.runs.end(CALLER, RUN_ID),
    ]
    with stalled(valkey):
        for ask in asks:  # the last of them when it is not asked any more
            with pytest.raises(StoreUnavailable):
                ask()
        assert archive.totals().commands[StoreCommand.READ, StoreReply.SKIPPED]
        second.run_id = "another"
        assert not second.call(CREATE_TASKS, {"tasks": ["look"]}).is_error  # it begins a run
        second.run_id = RUN_ID
    assert Outcome.HIT is again(second, ids[0], clock).outcome


def test_an_id_is_not_reported_as_unknown_while_the_store_was_never_asked(valkey: Valkey) -> None:
    """A run's first prompt came meanwhile: another process may have had more of it than the prompt holds."""
    ids, clock = written(valkey), Clock()
    second = engine_of(impatient(valkey, clock))
    with stalled(valkey):
        send(second, OPENAI_CHAT, 1)
        with pytest.raises(StoreUnavailable):
            second.retrieve(ids[-1])
    assert Outcome.HIT is again(second, ids[-1], clock).outcome


def test_what_fails_together_is_one_failure(valkey: Valkey) -> None:
    """A store that stalls once while many commands are on their way is tried again after the first pause."""
    ids = written(valkey)
    clock, together = Clock(), threading.Barrier(AT_ONCE)
    settings = StoreOptions(url=valkey.url, timeout=SHORT)
    archive = SharedArchive(settings, Together(settings, together), LIFE, clock=clock, threads=False)

    def ask() -> None:
        with suppress(StoreUnavailable):
            archive.end_all(caller_key(KEY, CALLER), lambda: None)

    with stalled(valkey):
        threads = [threading.Thread(target=ask) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {(StoreCommand.READ, StoreReply.SLOW): AT_ONCE} == archive.totals().commands
    clock.now += FIRST_PAUSE
    with suppress(StoreUnavailable):  # a busy machine's store is slow
        assert Outcome.HIT is engine_of(archive).retrieve(ids[0]).outcome
    assert AT_ONCE < sum(archive.totals().commands.values())
    assert (StoreCommand.READ, StoreReply.SKIPPED) not in archive.totals().commands


class Together(Server):
    """A connection whose first commands are on their way at the same time."""

    def __init__(self, settings: StoreOptions, together: threading.Barrier) -> None:
        super().__init__(settings)
        self._together = together
        self._sent = 0

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """See `Backend.run`."""
        if self._sent < AT_ONCE:
            self._sent += 1
            self._together.wait(PATIENCE)
        return super().run(script, name, arguments)


class Away(Server):
    """A connection that is down for a time; each command that is not answered takes its whole timeout."""

    def __init__(self, settings: StoreOptions, clock: Clock, back: float) -> None:
        super().__init__(settings)
        self._clock, self._back, self._limit = clock, back, settings.timeout

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """See `Backend.run`."""
        self._ask()
        return super().run(script, name, arguments)

    def write(self, script: str, name: str, arguments: Sequence[Argument], replicas: int) -> Any:
        """See `Backend.write`."""
        self._ask()
        return super().write(script, name, arguments, replicas)

    def _ask(self) -> None:
        if self._clock.now < self._back:
            self._clock.now += TAKES
            raise Failure(StoreReply.UNREACHABLE)


@pytest.mark.parametrize("away", [0.01, 0.3, 0.9, 1.4, 2.2, 7.0, 20.3, 60.9, 333.3])
def test_what_waits_is_written_soon_after_the_store_is_back(valkey: Valkey, away: float) -> None:
    """However long it was away: within the longest pause, a command that is under way and a pause of the writing."""
    clock = Clock()
    back = clock.now + away
    settings = StoreOptions(url=valkey.url, timeout=PATIENT)
    archive = SharedArchive(settings, Away(settings, clock, back), LIFE, clock=clock, threads=False)
    engine = engine_of(archive)
    send(engine, OPENAI_CHAT, ITERATIONS)
    while archive.totals().queued_bytes:  # as the thread that writes does
        if not archive.step():
            clock.now += FAILED_PAUSE

    assert clock.now - back <= PROMISED
    assert engine.figures().calls == replica(valkey)[0].figures().calls


def test_the_end_of_the_process_waits_for_a_store_that_is_back(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the last command was not answered."""
    monkeypatch.setattr(shared_archive, "LAST_SECONDS", PATIENCE)
    settings = StoreOptions(url=valkey.url, timeout=SHORT)
    archive = SharedArchive(settings, Server(settings), LIFE)
    engine = engine_of(archive)
    with stalled(valkey):
        send(engine, OPENAI_CHAT, ITERATIONS)
        until(lambda: not archive.totals().reachable)
        calls = engine.figures().calls
    archive.close()

    assert calls == replica(valkey)[0].figures().calls


@one_kind
def test_a_stall_costs_a_killed_server_nothing_that_it_had_time_to_write(valkey: Valkey, tmp_path: Path) -> None:
    """While the store stalls, the next server says that it cannot tell; after that it answers every id."""
    quick = shared(valkey, STORE__DURABILITY="local", STORE__TIMEOUT="50ms", STORE__FIRST_WAIT="1ms")
    with ExitStack() as stack:
        first = Replica(stack, tmp_path / "first", **quick)
        second = Replica(stack, tmp_path / "second", **quick)
        first.trim(OPENAI_CHAT, 1)
        with stalled(valkey):
            trims = [trim for iterations in range(2, ITERATIONS) for trim in first.trim(OPENAI_CHAT, iterations).trims]
            ids = {trim.stash_id for trim in trims if trim.stash_id}
            until(lambda: not store_of(first).reachable)
            with pytest.raises(grpc.RpcError) as refused:
                second.original(min(ids))
            assert grpc.StatusCode.UNAVAILABLE is refused.value.code()
        until(lambda: not store_of(first).waiting_calls)
        expected = {stash_id: first.original(stash_id) for stash_id in ids}
        first.kill()

        assert ids
        assert expected == {stash_id: in_time(second, stash_id) for stash_id in ids}


def store_of(replica: Replica) -> Any:
    """What a server says of the store."""
    return replica.stub.GetRun(run_pb2.GetRunRequest(run_id="r")).run.store


def in_time(replica: Replica, stash_id: str) -> bytes:
    """An original, from a server that is asked anew until the store has answered it in time."""
    late = monotonic() + PATIENCE
    while True:
        try:
            return replica.original(stash_id)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or monotonic() > late:
                raise
