"""Histories that nobody would think of: commands lost, delayed, repeated and reordered, processes killed at each step.

The server is a real one, and all that is between it and the archive is what may happen on a network. Two processes
share runs, without threads, so that a history is the same each time that it is played. The store may evict the run
between any two commands. What is held to:

- What was acknowledged is read by a process that begins later, byte for byte, until its run is ended or evicted.
- No read ever gives other bytes than those that were written under the id, in the life of the run that is at hand.
- Nothing of a run is read any more once a process was told that the run is ended.

Most histories are drawn at random, thousands a minute, each from a seed that the failure names. Some are Hypothesis's,
which makes a failing one short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.archived import Batch, Original, StoreReply
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.store import shared
from prompt_sidecar.store.options import StoreOptions
from prompt_sidecar.store.sealing import Sealer
from prompt_sidecar.store.server import Argument, Failure, Server
from prompt_sidecar.store.shared import SharedArchive, SharedPlace
from tests.store.sharing import PATIENT, Valkey

RUN: Final = bytes(32)
"""The key of the run that all processes share."""
OF_CALLER: Final = bytes(range(32))
"""The key of its caller's runs."""
FATES: Final = ("done", "done", "done", "lost", "reply_lost", "delayed", "repeated")
"""What may become of a command. `lost` never arrives, `delayed` arrives later, and `reply_lost` is done unnoticed."""
WHICH: Final = st.integers(0, 1)
SOME_FATES: Final = st.lists(st.sampled_from(FATES), max_size=5)
EXAMPLES: Final = 100
DRAWN: Final = 600
"""Histories that are drawn at random, on each server."""
STEPS: Final = 40


class Network:
    """Between one process and the store: the next commands' fates, and the commands that are still on their way."""

    def __init__(self, server: Server, fates: list[str], late: list[Callable[[], Any]]) -> None:
        self._server, self._fates, self._late = server, fates, late

    def run(self, script: str, name: str, arguments: Sequence[Argument]) -> Any:
        """See `Backend.run`."""
        return self._sent(partial(self._server.run, script, name, arguments))

    def write(self, script: str, name: str, arguments: Sequence[Argument], replicas: int) -> Any:
        """See `Backend.write`."""
        return self._sent(partial(self._server.write, script, name, arguments, replicas))

    def node(self, name: str) -> str:
        """See `Backend.node`."""
        return self._server.node(name)

    def nodes(self) -> Collection[str]:
        """See `Backend.nodes`."""
        return self._server.nodes()

    def close(self) -> None:
        """See `Backend.close`. The connections serve all processes of a history."""

    def _sent(self, command: Callable[[], Any]) -> Any:
        fate = self._fates.pop(0) if self._fates else "done"
        if fate in {"reply_lost", "repeated"}:
            command()
        if fate == "delayed":
            self._late.append(command)
        if fate in {"lost", "reply_lost", "delayed"}:
            raise Failure(StoreReply.UNREACHABLE)
        return command()


@dataclass(slots=True)
class Life:
    """A run from its beginning to its end, as the model has it."""

    written: dict[str, bytes] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Held:
    """A run as a process holds it."""

    place: SharedPlace
    life: Life
    stash: dict[str, bytes] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """What was handed over and is not acknowledged yet."""


@dataclass(slots=True)
class Process:
    """A process with its archive."""

    archive: SharedArchive
    held: Held | None = None


class Replicas(RuleBasedStateMachine):
    """See the file's docstring."""

    valkey: Valkey
    server_of_all: Server | None = None
    """Serves many histories; None: each has one of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.valkey.client.flushall()
        self.now = 0.0
        self.fates: list[str] = []
        self.late: list[Callable[[], Any]] = []
        self.options = StoreOptions(
            url=self.valkey.url,
            durability="acknowledged",
            timeout=PATIENT,
            acknowledge_timeout=0.0,
            queue_bytes=1 << 20,
        )
        self.server = self.server_of_all or Server(self.options)
        self.ids = count()
        self.life = Life()
        self.ended: list[str] = []
        """Ids of lives that are over."""
        self.ends = 0
        self.read = 0
        """Originals that were acknowledged, and read by a new process."""
        self.processes = [self.started(), self.started()]

    def started(self) -> Process:
        """A process that knows nothing."""
        network = Network(self.server, self.fates, self.late)
        return Process(SharedArchive(self.options, network, 3_600.0, clock=lambda: self.now, threads=False))

    def teardown(self) -> None:
        """Let what is on its way arrive, look a last time, and close the connections."""
        for command in self.late:
            command()
        self.a_new_process_reads_what_was_acknowledged()
        if self.server_of_all is None:
            self.server.close()

    # -- what agents and processes do ----------------------------------------------------------------------------------

    @rule(which=WHICH, size=st.integers(1, 5), fates=SOME_FATES, steps=st.integers(0, 4))
    def prompt(self, which: int, size: int, fates: list[str], steps: int) -> None:
        """A prompt brings originals, which its process has and hands over; then the writing goes on for some pieces."""
        process = self.processes[which]
        self.fates[:] = fates
        held = process.held
        if held is None:
            place = process.archive.find(RUN, OF_CALLER)
            held = process.held = Held(place, self.life)
            place.restored(None)
        brought = {f"id{next(self.ids):08}": b"text %d" % next(self.ids) for _ in range(size)}
        held.stash |= brought
        held.life.written |= brought
        if held.life is not self.life:  # another process has ended it
            self.ended += brought
        batch = Batch([original(stash_id, text) for stash_id, text in brought.items()], edits=True)
        held.place.write(batch, partial(everything, held))
        held.waiting += brought
        self.write(process, steps)

    @rule(which=WHICH, fates=SOME_FATES, steps=st.integers(1, 4))
    def writing(self, which: int, fates: list[str], steps: int) -> None:
        """Time passes, and the writing goes on for some pieces."""
        self.now += 6.0  # the breaker lets it try again
        self.fates[:] = fates
        self.write(self.processes[which], steps)

    def write(self, process: Process, steps: int) -> None:
        """Write some pieces, and note what is acknowledged then."""
        for _ in range(steps):
            process.archive.step()
        if process.held is not None:
            self.acknowledge(process.held)

    def acknowledge(self, held: Held) -> None:
        """Note what an answer would have said is kept."""
        try:
            held.place.settle()
        except StoreUnavailable:
            return
        held.life.acknowledged |= set(held.waiting)
        held.waiting.clear()

    @rule(which=WHICH)
    def end(self, which: int) -> None:
        """EndRun at a process that knows the run, when no command to the store fails."""
        process = self.processes[which]
        held, process.held = process.held, None
        if held is None:
            return
        self.fates.clear()
        self.now += 60.0  # the breaker is closed again
        held.place.end()
        if held.place.run.epoch != self.ends:
            # It ended a life that another process had ended before; or it could never ask the store where the run
            # stands, so that nothing is told to it, and what the store has goes with its time.
            return
        self.ends += 1
        self.ended += self.life.written
        self.life = Life()

    @rule(which=WHICH)
    def killed(self, which: int) -> None:
        """A process is killed with all that waits, and another begins in its place."""
        self.processes[which] = self.started()

    @rule()
    def evicted(self) -> None:
        """The store lets the run go, whole, to make room.

        Not a tombstone, nor the epoch of a run that was ended before: that is a store that loses its memory.
        """
        name = Sealer(RUN).name
        if self.valkey.client.hget(name, "e") != b"0":
            return
        self.valkey.client.delete(name)
        self.life.acknowledged.clear()

    @precondition(lambda self: self.late)
    @rule(at=st.integers(0, 99))
    def arrives(self, at: int) -> None:
        """A command that was on its way for long arrives, in any order."""
        command = self.late.pop(at % len(self.late))
        command()

    # -- what is held to -----------------------------------------------------------------------------------------------

    @rule()
    def a_new_process_reads_what_was_acknowledged(self) -> None:
        """See the file's docstring."""
        kept, self.fates[:] = list(self.fates), []
        archive, life = self.started().archive, self.life
        place = archive.find(RUN, OF_CALLER)
        found = place.originals([*life.written, *self.ended])
        assert not set(self.ended) & set(found)
        assert life.acknowledged <= set(found)
        for stash_id, each in found.items():
            assert life.written[stash_id] == each.original
        self.read += len(life.acknowledged)
        recorded = {each.stash_id for each in place.items(lambda: None)} if found else set()
        assert life.acknowledged <= recorded
        self.fates[:] = kept


def original(stash_id: str, text: bytes) -> Original:
    """An original that is recorded."""
    item = HistoryItem(stash_id, Role.TOOL, ItemKind.RESULT, "read", "", 1, 1, len(text), "text/plain")
    return Original(stash_id, text, "text/plain", item)


def everything(held: Held) -> Iterator[Original]:
    """All that a process has of a run."""
    for stash_id, text in list(held.stash.items()):
        yield original(stash_id, text)


def drawn(machine: type[Replicas], seed: int) -> int:
    """Play a history that is drawn from a seed; how many originals were read that had been acknowledged."""
    chance = Random(seed)

    def fates() -> list[str]:
        return chance.choices(FATES, k=chance.randrange(6))

    played = machine()
    try:
        for _ in range(STEPS):
            which = chance.randrange(2)
            match chance.randrange(7):
                case 0:
                    played.prompt(which, chance.randint(1, 5), fates(), chance.randrange(5))
                case 1:
                    played.writing(which, fates(), chance.randint(1, 4))
                case 2:
                    played.end(which)
                case 3:
                    played.killed(which)
                case 4 if played.late:
                    played.arrives(chance.randrange(100))
                case 5:
                    played.evicted()
                case _:
                    played.a_new_process_reads_what_was_acknowledged()
    finally:
        played.teardown()
    return played.read


def test_thousands_of_histories(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as below, many more of them."""
    monkeypatch.setattr(shared, "PIECE_ITEMS", 2)
    options = StoreOptions(url=valkey.url, timeout=PATIENT)
    server = Server(options)
    machine = type("Many", (Replicas,), {"valkey": valkey, "server_of_all": server})
    read = 0
    try:
        for seed in range(DRAWN):
            try:
                read += drawn(machine, seed)
            except Exception as error:
                error.add_note(f"of the history drawn from seed {seed}")
                raise
    finally:
        server.close()
    assert read > DRAWN


def test_any_history_keeps_what_was_acknowledged(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces of two originals, so that most batches can be cut short by a kill."""
    monkeypatch.setattr(shared, "PIECE_ITEMS", 2)
    machine = type("Replicas", (Replicas,), {"valkey": valkey})
    run_state_machine_as_test(machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
