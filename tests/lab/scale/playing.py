"""One trial: agents work in quiet, then under kills; then all is compared with a sidecar that nobody has killed.

Sidecars share a store, and an Envoy hashes runs over them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from prompt_sidecar.v1 import retrieve_pb2, service_pb2_grpc
from tests.doors.envoy.through import Envoy, balanced, envoy
from tests.lab.harness.processes import free_port
from tests.lab.harness.servers import Server, sidecar
from tests.lab.scale.agents import FLAGS, NEAR, REPLICA, Agent, Agents, Recording, Tally
from tests.store.sharing import Valkey, running_valkey

KEY: Final = "the key of all replicas"
UNSHARED: Final = {"TELEMETRY__METRICS_LISTEN": ""}
"""Settings of a sidecar that has no store."""


@dataclass(slots=True)
class Replica:
    """A sidecar that is started again at the same address."""

    settings: dict[str, str]
    port: int = field(default_factory=free_port)
    idle: int = 0
    """Bytes that it took when it was ready."""
    running: Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; return once it is ready."""
        self.running = sidecar({"KEY": KEY, **self.settings}, listen=self.address)
        self.idle = self.resident()

    def kill(self) -> None:
        """SIGKILL."""
        assert self.running is not None
        self.running.kill()

    def resident(self) -> int:
        """Bytes of memory that it takes now; 0 where the system does not tell."""
        assert self.running is not None
        return self.running.resident()


@dataclass(frozen=True, slots=True)
class Deployment:
    """What runs."""

    replicas: Sequence[Replica]
    proxy: Envoy
    store: Valkey

    def stored(self) -> dict[str, int]:
        """The store's figures."""
        info: Any = self.store.client.info("all")
        return {
            "memory": int(info["used_memory"]),
            "received": int(info["total_net_input_bytes"]),
            "commands": sum(info.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval")),
        }


@contextmanager
def deployed(folder: Path, number: int, **more: str) -> Iterator[Deployment]:
    """Run so many replicas; all ends with the context."""
    with ExitStack() as stack:
        store = stack.enter_context(running_valkey())
        settings = {**UNSHARED, "STORE__URL": store.url, **more}
        replicas = [Replica(settings) for _ in range(number)]
        for replica in replicas:
            replica.start()
            stack.callback(replica.kill)
        config = balanced([replica.port for replica in replicas])
        connections = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        shown = {REPLICA: "%UPSTREAM_REMOTE_ADDRESS%", FLAGS: "%RESPONSE_FLAGS%"}
        headers = [{"header": {"key": name, "value": value}} for name, value in shown.items()]
        connections["route_config"]["response_headers_to_add"] = headers
        yield Deployment(replicas, stack.enter_context(envoy(folder, config)), store)


CHANNELS: Final = 8
"""Connections to Envoy, so that each of its threads has some."""
AT_ONCE: Final = 16
"""Originals that are asked for at a time."""
PLENTY: Final = 1_000_000
"""A window in which nothing is trimmed."""
WIDE: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # else all channels would share a connection
]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of what."""

    agents: int
    think: float
    quiet: float
    """Seconds without a kill."""
    killed: float
    """Seconds with kills."""
    every: float
    """Seconds between two kills."""
    ids: int
    """Most ids that are asked for after a kill."""
    compared: int
    """Most runs that are compared."""
    window: int = 16_000
    settled: float = 5.0
    """Seconds before a kill by which an id must have been returned to be asked for after it."""
    durability: str = "local"


@dataclass(slots=True)
class Trial:
    """What was found with so many replicas."""

    replicas: int
    plan: Plan
    quiet: Tally = field(default_factory=Tally)
    killed: Tally = field(default_factory=Tally)
    runs: int = 0
    """Runs that were begun in quiet."""
    quiet_seconds: float = 0.0
    kills: int = 0
    resident: int = 0
    """Bytes that the replicas took beyond what they take idle, at the end of the quiet."""
    stored: dict[str, int] = field(default_factory=dict)
    """The store's figures then, less those at the beginning."""
    bodies: int = 0
    """Prompts that were compared."""
    wrong_bodies: int = 0
    originals: int = 0
    """Originals that were compared."""
    wrong_originals: int = 0

    @property
    def sound(self) -> bool:
        """Whether everything that is promised held."""
        tallies = (self.quiet, self.killed)
        broken = self.wrong_bodies or self.wrong_originals or any(each.lost or each.missing for each in tallies)
        return bool(self.bodies and not broken)


def play(plan: Plan, replicas: int, runs: Sequence[Recording], folder: Path, **more: str) -> Trial:
    """Play a trial in a folder of its own; `more` are settings of the sidecars."""
    trial = Trial(replicas, plan)
    with deployed(folder, replicas, STORE__DURABILITY=plan.durability, **more) as deployment:
        agents = asyncio.run(_work(trial, deployment, runs))
    _compare(trial, agents)
    return trial


async def _work(trial: Trial, deployment: Deployment, runs: Sequence[Recording]) -> list[Agent]:
    plan = trial.plan
    target = f"127.0.0.1:{deployment.proxy.port}"
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options=WIDE)) for _ in range(CHANNELS)
        ]
        agents = Agents(channels, runs, plan.agents, plan.think, plan.window, f"of-{trial.replicas}", tally=trial.quiet)
        await asyncio.to_thread(_warm, deployment.replicas, runs[0])
        before = deployment.stored()
        async with asyncio.TaskGroup() as group:
            group.create_task(agents.live())
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(plan.quiet)
            await agents.answered()
            trial.quiet_seconds = asyncio.get_running_loop().time() - began
            trial.stored = {name: value - before[name] for name, value in deployment.stored().items()}
            trial.resident = sum(replica.resident() - replica.idle for replica in deployment.replicas)
            trial.runs = len(agents.all)
            agents.tally = trial.killed
            await _kill(trial, deployment.replicas, agents, group)
            agents.over.set()
    return agents.all


def _warm(replicas: Sequence[Replica], run: Recording) -> None:
    """Have each sidecar load what its first prompt needs, so that it is in no run's memory."""
    for number, replica in enumerate(replicas):
        agent = Agent(f"warm-{number}", run, run.beginnings[0], PLENTY, carries=False)
        with grpc.insecure_channel(replica.address, options=WIDE) as channel:
            service_pb2_grpc.SidecarServiceStub(channel).TrimPrompt(agent.request())
        replica.idle = replica.resident()


async def _kill(trial: Trial, replicas: Sequence[Replica], agents: Agents, group: asyncio.TaskGroup) -> None:
    """Kill one replica after the other, and start each again; then ask for what its runs were given."""
    loop = asyncio.get_running_loop()
    over = loop.time() + trial.plan.killed
    while loop.time() + NEAR < over:
        victim = replicas[trial.kills % len(replicas)]
        now = loop.time()
        agents.kills.append(now)
        due = agents.due(victim.address, now - trial.plan.settled, trial.plan.ids)
        await asyncio.to_thread(victim.kill)
        trial.kills += 1
        group.create_task(_ask(agents, due))
        await asyncio.to_thread(victim.start)
        await asyncio.sleep(max(now + trial.plan.every - loop.time(), 0))


async def _ask(agents: Agents, due: Iterable[tuple[Agent, str]]) -> None:
    some = asyncio.Semaphore(AT_ONCE)

    async def ask(agent: Agent, stash_id: str) -> None:
        async with some:
            await agents.retrieve(agent, stash_id)

    async with asyncio.TaskGroup() as group:
        for each in due:
            group.create_task(ask(*each))


def _compare(trial: Trial, agents: Sequence[Agent]) -> None:
    """Send the same prompts to a sidecar without store and kills: bodies and originals must be the same bytes."""
    asked = sorted(agents, key=lambda agent: len(agent.originals), reverse=True)[: trial.plan.compared]
    with ExitStack() as stack:
        reference = Replica(UNSHARED)
        reference.start()
        stack.callback(reference.kill)
        channel = stack.enter_context(grpc.insecure_channel(reference.address, options=WIDE))
        stub = service_pb2_grpc.SidecarServiceStub(channel)
        for agent in asked:
            compare_run(trial, agent, stub)


def compare_run(trial: Trial, agent: Agent, stub: Any) -> None:
    """Count what differs in a run from what this sidecar gives."""
    again = Agent(agent.run_id, agent.recording, 0, agent.window, carries=False)
    for given in agent.given:
        again.turn = given.turn
        trial.bodies += 1
        trial.wrong_bodies += sha256(stub.TrimPrompt(again.request()).json_body).digest() != given.digest
    for stash_id, digest in agent.originals.items():
        asked = retrieve_pb2.RetrieveContentRequest(run_id=agent.run_id, stash_id=stash_id, page_tokens=100_000)
        trial.originals += 1
        trial.wrong_originals += sha256(stub.RetrieveContent(asked).content).digest() != digest
