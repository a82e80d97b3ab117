"""Replicas without a load balancer: the client's gRPC chooses by the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from prompt_sidecar.client import AsyncClient, Client, RunUnknown
from tests.cli.running import PATIENCE, Program, program
from tests.engine.runs.making import LIMIT, OPENAI_CHAT, history

KEY = "a key that all replicas have"
NAMES = [f"run-{number}" for number in range(24)]
"""So many that all at one of two replicas means that nothing is spread."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A sidecar, and a client of it alone."""

    server: Program
    address: str
    client: Client

    def prompts(self, run_id: str) -> int:
        """Prompts of a run that it has answered."""
        try:
            return self.client.get_run(run_id).calls
        except RunUnknown:
            return 0


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    """Two sidecars with the same key, and no store."""
    with ExitStack() as stack:
        made = []
        for _ in range(2):
            server = stack.enter_context(program("--listen", "127.0.0.1:0", KEY=KEY))
            address = server.wait_for(r"ready: listening on (127\.0\.0\.1:\d+)")[1]
            server.keep_reading()
            made.append(Replica(server, address, stack.enter_context(Client(address, deadline=PATIENCE))))
        yield made


def _target(replicas: list[Replica]) -> str:
    return "ipv4:" + ",".join(replica.address for replica in replicas)


def _counts(replicas: list[Replica]) -> list[list[int]]:
    return [[replica.prompts(run_id) for run_id in NAMES] for replica in replicas]


def test_a_run_stays_with_its_sidecar(replicas: list[Replica]) -> None:
    """All of its calls, and both have runs; calls of no run, too, are answered."""
    with Client(_target(replicas), deadline=PATIENCE, fail_open=False, by_run=True) as client:
        assert client.list_tools().tools
        for number in range(3):
            for run_id in NAMES:
                client.trim(run_id, history(OPENAI_CHAT, number), context_window=LIMIT)
    counts = _counts(replicas)
    assert [{0, 3}] * 2 == [{*of_replica} for of_replica in counts]
    assert [3] * len(NAMES) == [sum(each) for each in zip(*counts, strict=True)]


def test_runs_of_a_killed_sidecar_move_and_no_others(replicas: list[Replica]) -> None:
    """Each prompt is answered."""
    with Client(_target(replicas), deadline=PATIENCE, fail_open=False, by_run=True) as client:
        for run_id in NAMES:
            client.trim(run_id, history(OPENAI_CHAT, 0), context_window=LIMIT)
        (first, second) = _counts(replicas)
        replicas[0].server.process.kill()
        replicas[0].server.process.wait(PATIENCE)
        for run_id in NAMES:
            client.trim(run_id, history(OPENAI_CHAT, 1), context_window=LIMIT)
    assert 0 < sum(first) < len(NAMES)
    assert [2 if before else 1 for before in second] == [replicas[1].prompts(run_id) for run_id in NAMES]


async def _trimmed(target: str) -> None:
    async with AsyncClient(target, deadline=PATIENCE, fail_open=False, by_run=True) as client:
        for number in range(3):
            for run_id in NAMES:
                await client.trim(run_id, history(OPENAI_CHAT, number), context_window=LIMIT)


def test_asyncio_takes_the_same_channel_arguments(replicas: list[Replica]) -> None:
    """The same channel arguments."""
    asyncio.run(_trimmed(_target(replicas)))
    assert [{0, 3}] * 2 == [{*of_replica} for of_replica in _counts(replicas)]
