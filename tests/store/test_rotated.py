"""The key is replaced while agents are at work: two real servers, a real store, and nothing that an agent notices."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import pytest

from prompt_sidecar.errors import RunUnknown
from prompt_sidecar.facts.task_calls import CreateTasksCall
from prompt_sidecar.v1 import retrieve_pb2, service_pb2_grpc, trim_pb2
from tests.cli.running import PATIENCE, program
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, body, history, send
from tests.promises.engine import CALLER, KEY, RUN_ID
from tests.store.sharing import Valkey, one_kind, replica
from tests.store.test_killed import shared
from tests.store.test_replicas import grown

OLD, NEW = "the key before, of enough characters", "the key after, of enough characters"
AGENTS: Final = 4
BEFORE, AFTER = 10, 20
"""Iterations of an agent when the key is replaced, at least, and at its end."""


@dataclass(slots=True)
class Service:
    """What agents connect to: the server that is there now."""

    stub: service_pb2_grpc.SidecarServiceStub
    replaced: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Agent:
    """One agent at work."""

    service: Service
    run_id: str
    carries: bool
    """Whether it carries the revision."""
    begun: threading.Event = field(default_factory=threading.Event)
    revision: bytes = b""
    ids: dict[tuple[int, int], str] = field(default_factory=dict)
    """By place, of each item that was trimmed."""

    def work(self) -> None:
        """Iterate; stay where the key is to be replaced until it is, at work."""
        for iterations in range(AFTER):
            self.turn(iterations)
            while iterations == BEFORE and not self.service.replaced.is_set():
                self.begun.set()
                self.turn(iterations)
        assert self.ids

    def turn(self, iterations: int) -> None:
        """Send the history; every id that any answer named is of the same item, and its original is there."""
        prompt = trim_pb2.JsonPrompt(
            format=trim_pb2.FORMAT_OPENAI_CHAT, body=body(OPENAI_CHAT, history(OPENAI_CHAT, iterations))
        )
        request = trim_pb2.TrimPromptRequest(run_id=self.run_id, json=prompt, context_window=LIMIT)
        if self.carries:
            request.revision = self.revision
        answer = self.service.stub.TrimPrompt(request, wait_for_ready=True, timeout=PATIENCE)
        self.revision = answer.revision
        for trim in answer.trims:
            if trim.stash_id:
                place = trim.message_index, trim.item_index
                assert trim.stash_id == self.ids.setdefault(place, trim.stash_id)
        for stash_id in [*self.ids.values()][:3]:
            wanted = retrieve_pb2.RetrieveContentRequest(run_id=self.run_id, stash_id=stash_id)
            found = self.service.stub.RetrieveContent(wanted, wait_for_ready=True, timeout=PATIENCE)
            assert retrieve_pb2.RETRIEVE_OUTCOME_HIT == found.outcome


def test_what_was_stored_with_the_key_before_is_found(valkey: Valkey) -> None:
    """By each question that a run can be asked, and an end that is its end."""
    first, archive = grown(valkey)
    first.runs.recalling.create_tasks(CreateTasksCall(CALLER, RUN_ID, ["look"]))
    ids = [trim.stash_id for trim in send(first, OPENAI_CHAT, 12).trimmed.trims if trim.stash_id]
    archive.drain()

    for ask in (
        lambda engine: engine.original(ids[0]),
        lambda engine: engine.search("value_2").snippets[0].item.stash_id,
        lambda engine: [task.text for task in engine.runs.recalling.list_tasks(CALLER, RUN_ID)],
        lambda engine: engine.figures().messages,
    ):
        after, _ = replica(valkey, key=bytes(32), previous_keys=[KEY])
        assert ask(first) == ask(after)
    after, written = replica(valkey, key=bytes(32), previous_keys=[KEY])
    assert after.runs.end(CALLER, RUN_ID) is not None
    written.drain()
    another, _ = replica(valkey)
    with pytest.raises(RunUnknown):
        another.figures()


def test_without_the_key_before_nothing_stored_is_found(valkey: Valkey) -> None:
    """A run of the same name is another one."""
    grown(valkey)
    after, _ = replica(valkey, key=bytes(32))
    with pytest.raises(RunUnknown):
        after.figures()


@one_kind
@pytest.mark.parametrize("carries", [True, False], ids=["with_revision", "without_revision"])
def test_a_key_is_replaced_under_load(valkey: Valkey, tmp_path: Path, carries: bool) -> None:
    """Ids stay and are answered, whether the revision shows the key of a run or only the store does."""
    with ExitStack() as stack:

        def started(name: str, **keys: str) -> service_pb2_grpc.SidecarServiceStub:
            socket = tmp_path / name
            server = stack.enter_context(program("--listen", "", "--socket", str(socket), **shared(valkey), **keys))
            server.wait_for("ready: listening on")
            server.keep_reading()
            channel = stack.enter_context(grpc.insecure_channel(f"unix:{socket}"))
            return service_pb2_grpc.SidecarServiceStub(channel)

        service = Service(started("before", KEY=OLD))
        agents = [Agent(service, f"run-{number}", carries) for number in range(AGENTS)]
        with ThreadPoolExecutor(AGENTS) as pool:
            working = [pool.submit(agent.work) for agent in agents]
            try:
                assert all(agent.begun.wait(PATIENCE) for agent in agents)
                service.stub = started("after", KEY=NEW, PREVIOUS_KEYS=OLD)
            finally:
                service.replaced.set()
            for each in working:
                each.result(PATIENCE)
