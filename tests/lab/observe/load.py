"""A load: several agents at once with different models, formats and habits, and callers who get things wrong.

Two sidecars share it. One has room, but forgets soon what nobody sends or asks for: originals expire. The other has
little room: originals are evicted. So an operator sees in the pictures what each of these looks like.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import grpc

from prompt_sidecar.v1 import policy_pb2, service_pb2_grpc
from tests.lab.harness.agents import Agent, Habits
from tests.lab.harness.facts import Facts
from tests.lab.harness.prompts import asked
from tests.lab.observe.stack import Sidecar
from tests.oracle.runs import Run, Shape, recorded, recorded_paths, synthetic
from tests.oracle.shapes import ANTHROPIC_MESSAGES, OPENAI_CHAT


class Tally(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc,unused-ignore]
    """Sees every call of a channel come back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[tuple[str, str]] = Counter()

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Let the call go, and count it by how it ended."""
        outcome = continuation(client_call_details, request)
        path = client_call_details.method
        method = path.rpartition("/")[2]
        with self._lock:
            self._calls[method, outcome.code().name] += 1
        return outcome

    def calls(self) -> list[tuple[tuple[str, str], int]]:
        """The counts so far."""
        with self._lock:
            return sorted(self._calls.items())


LIFE: Final = 3.0
"""Seconds for which the first sidecar keeps an original that nobody sends or asks for."""
FORGETFUL: Final[Mapping[str, str]] = {
    "limits.time_to_live": f"{LIFE:g}s",
    "limits.process_bytes": "1GiB",
    "server.sweep_interval": "0.5s",
}
TIGHT: Final[Mapping[str, str]] = {
    "limits.stash_bytes": "1MiB",
    "limits.run_stash_bytes": "160KiB",
    "limits.original_bytes": "160KiB",
    "limits.process_bytes": "1GiB",
    "server.sweep_interval": "0.5s",
}
"""So little room that a short load fills a run's share of it, and all runs together fill the whole."""
SETTINGS: Final = (FORGETFUL, TIGHT)

_FIRST, _CAP = policy_pb2.PRESET_CACHE_FIRST, policy_pb2.PRESET_CAP_ONLY
_FIT, _LEAN = policy_pb2.PRESET_FIT_ONLY, policy_pb2.PRESET_LEAN
AGENTS: Final = (
    (OPENAI_CHAT, Habits("gpt-4o", 20_000, _FIRST)),
    (ANTHROPIC_MESSAGES, Habits("claude-sonnet-4-5", 48_000, _FIRST, tokenizer=1.18)),
    (OPENAI_CHAT, Habits("gpt-4.1", 24_000, _LEAN, recalls=0.4)),
    (ANTHROPIC_MESSAGES, Habits("claude-opus-4-1", 40_000, _FIT, tokenizer=1.15)),
    (OPENAI_CHAT, Habits("gpt-4o", 12_000, _FIRST, sends_trimmed=True, recalls=0.6, pauses=0.2)),
    (OPENAI_CHAT, Habits("house-model-7b", 90_000, _CAP, tokenizer=0.93, leaves=0.5)),
    (OPENAI_CHAT, Habits("o3", 16_000, _FIRST, sends_trimmed=True, recalls=0.5, pauses=0.1)),
    (ANTHROPIC_MESSAGES, Habits("claude-sonnet-4-5", 40_000, _FIRST, tokenizer=1.18, leaves=0.5, recalls=0.5)),
)
"""The kinds of agents; each even one goes to the first sidecar, each odd one to the second. Their windows are small, so
that minutes show what takes hours with a real one."""
SHAPE: Final = Shape(iterations=24, median=1_500, parallel=2, defects=False)
LARGE: Final = Shape(iterations=30, median=4_000, parallel=2, defects=False)
"""For the sidecar that has little room."""

SMALLEST_WINDOW: Final = 20
"""Tokens: less than a system prompt and a task take."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the load lasts, and how it is spread. Seconds."""

    seconds: float
    think: float = 0.5
    """What a model call takes, on average."""
    agents: int = 8


Unserved: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"


class Failed(Exception):
    """A call failed that should not have."""


class Load:
    """Agents at work; `facts` is what they were told."""

    def __init__(self, sidecars: Sequence[Sidecar], pace: Pace, seed: int) -> None:
        self.facts = Facts()
        self._sidecars = sidecars
        self._pace = pace
        self._seed = seed
        self._over = threading.Event()
        self._until = 0.0
        self._open: list[Agent] = []
        self._channels: list[grpc.Channel] = []
        self._tally = Tally()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Work until the time is up; agents that are in the middle of a run leave it open.

        Raises:
            Failed: a call failed that should not have.
        """
        self._until = time.monotonic() + self._pace.seconds
        with ThreadPoolExecutor(self._pace.agents + 1, "agent") as pool:
            work = [pool.submit(self._agents, number) for number in range(self._pace.agents)]
            work.append(pool.submit(self._strangers))
            try:
                for each in work:
                    each.result()
            except grpc.RpcError as error:
                raise Failed(f"a call of the load failed: {error}") from error
            finally:
                self._over.set()
                for channel in self._channels:
                    channel.close()

    def settle(self) -> None:
        """End the runs that are open, so that their losses are told and nothing changes any more."""
        for agent in self._open:
            with self._sidecars[agent.place].channel() as channel:
                agent.stub = service_pb2_grpc.SidecarServiceStub(grpc.intercept_channel(channel, self._tally))
                agent.end()

    def calls(self) -> list[tuple[tuple[str, str], int]]:
        """How many calls were made, by method and status."""
        return self._tally.calls()

    def _channel(self, place: int) -> grpc.Channel:
        channel = self._sidecars[place].channel()
        with self._lock:
            self._channels.append(channel)
        return grpc.intercept_channel(channel, self._tally)

    @property
    def _is_over(self) -> bool:
        return self._over.is_set() or time.monotonic() > self._until

    def _agents(self, number: int) -> None:
        """One agent after the other, of one kind."""
        chance = random.Random(self._seed * 1_000 + number)
        format, habits = AGENTS[number % len(AGENTS)]
        stub = service_pb2_grpc.SidecarServiceStub(self._channel(number % len(self._sidecars)))
        while not self._is_over:
            source = self._source(chance, format, LARGE if number % len(SETTINGS) else SHAPE)
            window = habits.window if source.name.startswith("synthetic") else habits.window * 2
            habits_now = replace(habits, window=window)
            name = f"run-{secrets.token_hex(6)}"
            place = number % len(self._sidecars)
            agent = Agent(stub, place, name, habits_now, source, chance, self.facts)
            self._live(agent, chance)

    def _source(self, chance: random.Random, format: str, shape: Shape) -> Run:
        """A history to replay: a recorded one of this format now and then, where there are any."""
        known = [
            run for path in recorded_paths() if "large" not in path.name if (run := recorded(path)).format == format
        ]
        if known and chance.random() < 0.25:
            return chance.choice(known)
        return synthetic(chance.randrange(1 << 30), format, shape)

    def _live(self, agent: Agent, chance: random.Random) -> None:
        with self._lock:
            self._open.append(agent)
        prompts = agent.prompts()
        # Some agents crash, or are killed, and never say that their run is over.
        last = chance.randrange(len(prompts)) if chance.random() < agent.habits.leaves else len(prompts)
        for number, new in enumerate(prompts):
            if self._is_over or number > last:
                return
            agent.turn(new)
            if not number:
                self.facts.started()
            # A model call takes its time, some much longer than others; and sometimes a person is asked.
            think = min(chance.expovariate(1 / self._pace.think), LIFE / 2)
            self._over.wait(1.2 * LIFE if chance.random() < agent.habits.pauses else think)
        agent.end()
        with self._lock:
            self._open.remove(agent)

    def _too_large(self, stub: service_pb2_grpc.SidecarServiceStub, place: int, chance: random.Random) -> None:
        """An agent whose own first messages take more than its window: there is nothing to take out."""
        source = synthetic(chance.randrange(1 << 30), OPENAI_CHAT, SHAPE)
        habits = Habits("gpt-4o", SMALLEST_WINDOW, _FIRST)
        agent = Agent(stub, place, f"run-{secrets.token_hex(6)}", habits, source, chance, self.facts)
        agent.history.extend(agent.prompts()[0])
        agent.trim()
        self.facts.started()
        agent.end()

    def _strangers(self) -> None:
        """Callers who get things wrong: refused, or told that their prompt does not fit, and none in anybody's way."""
        chance = random.Random(self._seed)
        channels = [self._channel(number) for number in range(len(self._sidecars))]
        while not self._is_over:
            place = chance.randrange(len(channels))
            channel = channels[place]
            stub = service_pb2_grpc.SidecarServiceStub(channel)
            self._too_large(stub, place, chance)
            with suppress(grpc.RpcError):
                stub.TrimPrompt(asked("", OPENAI_CHAT, b"[]"))
            self.facts.refused()
            with suppress(grpc.RpcError):
                stub.TrimPrompt(asked("stranger", OPENAI_CHAT, b"not a prompt"))
            self.facts.refused()
            with suppress(grpc.RpcError):
                unknown: Unserved = channel.unary_unary("/prompt_sidecar.v1.SidecarService/NoSuchMethod")
                unknown(b"")
            self._over.wait(4 * self._pace.think)
