"""Several sidecars behind a real Envoy that hashes the run: a run stays where it is, and survives its sidecar."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import ge
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from prompt_sidecar.client import Client, RunUnknown
from prompt_sidecar.client.errors import answer_was_cut_off
from prompt_sidecar.v1 import service_pb2_grpc
from tests.cli.running import PATIENCE, Program, program
from tests.doors.envoy.through import Envoy, balanced, envoy, envoy_binary
from tests.doors.grpc.serving import request
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, history
from tests.real.needing import need
from tests.store.sharing import Valkey, running_redis, running_valkey

KEY: Final = "a key that all replicas have"
RUNS: Final = 24
"""Runs: so many that all at one of two replicas means that nothing is balanced."""
ITERATIONS: Final = 10
AT_ONCE: Final = 48
"""Calls in progress at the same time: a third of them are the killed sidecar's."""
FEW_RETRIES: Final = 3
"""Retries at a time that Envoy allows by itself."""
LARGE: Final = json.dumps([{"role": "user", "content": "What do these lines say?\n" * 10_000}]).encode()
"""A prompt whose bytes take a while to travel and to be compared."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A sidecar, and a client of it alone."""

    server: Program
    port: int
    client: Client

    def calls(self, run_id: str) -> int:
        """Prompts of a run that it has answered."""
        try:
            return self.client.get_run(run_id).calls
        except RunUnknown:
            return 0


@contextmanager
def replicated(folder: Path, number: int = 2, **settings: str) -> Iterator[tuple[list[Replica], Envoy, Client]]:
    """So many sidecars behind Envoy, and a client that reaches them through it."""
    need(envoy_binary)
    with ExitStack() as stack:
        replicas: list[Replica] = []
        for _ in range(number):
            server = stack.enter_context(program("--listen", "127.0.0.1:0", KEY=KEY, **settings))
            port = int(server.wait_for(r"ready: listening on .*127\.0\.0\.1:(\d+)")[1])
            server.keep_reading()
            client = stack.enter_context(Client(f"127.0.0.1:{port}", deadline=PATIENCE))
            replicas.append(Replica(server, port, client))
        between = stack.enter_context(envoy(folder, balanced([replica.port for replica in replicas])))
        through = Client(f"127.0.0.1:{between.port}", deadline=PATIENCE, fail_open=False)
        yield replicas, between, stack.enter_context(through)


def grow(client: Client, iterations: int, run_id: str) -> list[str]:
    """Send a run's history as it grows; the ids of what is trimmed then."""
    for number in range(iterations + 1):
        made = client.trim(run_id, history(OPENAI_CHAT, number), context_window=LIMIT)
    return [trim.stash_id for trim in made.trims if trim.stash_id]


def test_a_run_stays_with_its_sidecar(tmp_path: Path) -> None:
    """Each run's calls are all answered by one of two, without a store; and both have runs."""
    with replicated(tmp_path) as (replicas, _, client):
        names = [f"run-{number}" for number in range(RUNS)]
        for run_id in names:
            grow(client, 2, run_id)
            client.create_tasks(run_id, ["look"])
            assert 3 == client.get_run(run_id).calls
        counts = [[replica.calls(run_id) for run_id in names] for replica in replicas]
        assert [{0, 3}] * 2 == [{*of_replica} for of_replica in counts]
        assert [3] * RUNS == [sum(each) for each in zip(*counts, strict=True)]


@pytest.fixture(params=[running_valkey, running_redis], ids=["valkey", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[Valkey]:
    """A real store, of either kind."""
    with request.param() as running:
        yield running


def asked(client: Client, run_id: str, ids: list[str]) -> Mapping[str, object]:
    """What a run's memory answers to each question."""
    questions: Mapping[str, Callable[[], object]] = {
        "retrieved": lambda: [client.retrieve(run_id, stash_id, page_tokens=100_000).content for stash_id in ids],
        "found": lambda: client.search(run_id, "value_2 module").snippets[0].stash_id,
        "recalled": lambda: client.call_tool(run_id, "recall_elided_content", {"id": ids[0]}).outcome,
        "tasks": lambda: [task.text for task in client.list_tasks(run_id)],
        "calls": lambda: client.get_run(run_id).calls,
    }
    return {name: question() for name, question in questions.items()}


def test_another_sidecar_answers_when_one_is_killed(store: Valkey, tmp_path: Path) -> None:
    """Retrieval, search, tools, tasks and figures of every run; and the next prompt has the same ids."""
    settings: dict[str, Any] = {
        "STORE__URL": store.url,
        "STORE__DURABILITY": "acknowledged",
        "STORE__FIRST_WAIT": "30s",
        "STORE__TIMEOUT": "10s",
        "STORE__ACKNOWLEDGE_TIMEOUT": "60s",
    }
    with replicated(tmp_path, **settings) as (replicas, _, client):
        before: dict[str, tuple[list[str], Mapping[str, object]]] = {}
        for number in range(6):
            run_id = f"run-{number}"
            ids = grow(client, ITERATIONS, run_id)
            client.create_tasks(run_id, ["look", run_id])
            assert ids
            before[run_id] = ids, asked(client, run_id, ids)
        replicas[0].server.process.kill()
        replicas[0].server.process.wait(PATIENCE)
        for run_id, (ids, expected) in before.items():
            assert expected == asked(client, run_id, ids)
            made = client.trim(run_id, history(OPENAI_CHAT, ITERATIONS), context_window=LIMIT)
            assert ids == [trim.stash_id for trim in made.trims if trim.stash_id]
            assert "value_0" not in json.dumps(made.prompt)


class Callers:
    """Agents that each send the same prompt again and again, each in a run of its own, until they are stopped."""

    def __init__(self, port: int, number: int) -> None:
        """Begin, at a port of this machine."""
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_retries", 0)])
        self._stub = service_pb2_grpc.SidecarServiceStub(self._channel)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self.answered = [0] * number
        """Calls of each."""
        self.lost: list[str] = []
        """The statuses of those that were not answered."""
        self._threads = [threading.Thread(target=self._call, args=(at,)) for at in range(number)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, more: int) -> None:
        """Wait until each has had so many more answers."""
        until = [count + more for count in self.answered]
        with self._changed:
            reached = lambda: all(map(ge, self.answered, until)) or bool(self.lost)  # noqa: E731 - it stands here alone
            assert self._changed.wait_for(reached, PATIENCE)

    def stop(self) -> None:
        """Stop them."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._channel.close()

    def _call(self, at: int) -> None:
        run_id = f"run-{at}"
        sent, metadata = request(run_id, LARGE), (("x-prompt-sidecar-run", run_id),)
        while not self._stopping.is_set():
            for again in (True, False):
                try:
                    self._stub.TrimPrompt(sent, timeout=PATIENCE, metadata=metadata)
                    break
                except grpc.RpcError as error:
                    # An answer that has begun cannot be another sidecar's; our client makes the call once more, too.
                    if not (again and answer_was_cut_off(error)):
                        self.lost.append(f"{error.code()} {error.details()}")
                        break
            with self._changed:
                self.answered[at] += 1
                self._changed.notify_all()


def test_no_call_is_lost_when_one_of_three_is_killed(tmp_path: Path) -> None:
    """All that it had in hand at once are repeated at the others, however many they are."""
    with replicated(tmp_path, 3) as (replicas, between, _):
        callers = Callers(between.port, AT_ONCE)
        try:
            callers.wait_for(3)
            replicas[0].server.process.kill()
            replicas[0].server.process.wait(PATIENCE)
            callers.wait_for(3)
        finally:
            callers.stop()
        retried = between.figure("upstream_rq_retry")

    assert [] == callers.lost
    assert retried > FEW_RETRIES
