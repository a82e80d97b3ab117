"""Agents that think, send the next prompt of a recorded run, and send it again when their sidecar is gone.

What they were given is kept as digests, so that it can be compared with what a sidecar gives that nobody kills. Envoy
tells which replica has answered.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from prompt_sidecar.v1 import retrieve_pb2, trim_pb2
from tests.lab.harness.prompts import FORMATS, Prompts, asked, prompts_of, recorded
from tests.oracle.runs import recorded_paths, synthetic

MOST_BYTES: Final = 300_000
"""Bytes of the largest prompt that is sent: beyond it one agent weighs as much as ten, and figures tell of that one."""
LEAST_BYTES: Final = 30_000
"""Bytes from which an agent may begin: with less there is nothing to trim yet."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A run's prompts, each the beginning of the next."""

    name: str
    format: str
    text: bytes = field(repr=False)
    """The last body, without its end."""
    ends: Sequence[int]
    """Where each prompt ends in it."""

    def body(self, turn: int) -> bytes:
        """The body of a prompt."""
        return self.text[: self.ends[turn]] + b"]}"

    @property
    def beginnings(self) -> range:
        """Turns at which an agent may begin: so that several prompts are left, and the first is worth trimming."""
        least = next((turn for turn, end in enumerate(self.ends) if end >= LEAST_BYTES), 0)
        return range(min(least, max(len(self.ends) - 2, 0)), max(len(self.ends) - 1, 1))


def recording_of(prompts: Prompts) -> Recording:
    """What agents send of a run."""
    *_, last = prompts.bodies()
    text = last[:-2]
    sizes = list(accumulate(len(part) + 1 for part in prompts.slices))
    head = len(text) - (sizes[prompts.lengths[-1] - 1] - 1)
    ends = [head + sizes[length - 1] - 1 for length in prompts.lengths]
    kept = [end for end in ends if end <= MOST_BYTES] or ends[:1]
    return Recording(prompts.name, prompts.format, text[: kept[-1]], kept)


def recordings(paths: Sequence[Path] = ()) -> list[Recording]:
    """The runs at `paths`, or all that are recorded; synthetic ones where there are none."""
    found = [recording_of(recorded(path)) for path in paths or recorded_paths()]
    if found:
        return found
    runs = (synthetic(seed, format) for seed in range(3) for format in FORMATS)
    return [recording_of(prompts_of(run.name, run.format, run.slices())) for run in runs]


PATIENCE: Final = 60.0
"""Seconds that an agent waits for one call, as its deadline: a machine with other work may need longer than it."""
LOST_AFTER: Final = 3 * PATIENCE
"""Seconds after which a prompt that had no answer, however often the call was made again, is lost."""
PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.0
"""Seconds before a call is made again: the first time, and at most."""
REPLICA: Final = "x-replica"
"""Response metadata by which Envoy tells the replica's address."""
FLAGS: Final = "x-envoy-flags"
"""Response metadata by which Envoy tells why it has answered a call itself, by its own short names."""
RUN: Final = "x-prompt-sidecar-run"
NEAR: Final = 5.0
"""Seconds from a kill in which a call may have met it: until Envoy's health checks have noticed, twice over."""
_PREFIX = "/prompt_sidecar.v1.SidecarService/"
_TRANSIENT = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_DETAILS = "grpc-status-details-bin"
_NO_FLAGS = ("", "-")
CAUSES: Final = ("calm", "first prompt", "near a kill", "another replica", "made again")
"""Why a call may have taken long; of several the last."""


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, as far as it is compared."""

    turn: int
    digest: bytes


@dataclass(slots=True)
class Agent:
    """One run."""

    run_id: str
    recording: Recording
    turn: int
    window: int
    carries: bool
    """Whether it sends back revisions."""
    revision: bytes = b""
    replica: str = ""
    given: list[Given] = field(default_factory=list)
    ids: dict[str, float] = field(default_factory=dict)
    """Ids and when an answer first held them."""
    originals: dict[str, bytes] = field(default_factory=dict)
    """Digests of what was retrieved."""

    def request(self) -> trim_pb2.TrimPromptRequest:
        """The next prompt."""
        body, revision = self.recording.body(self.turn), self.revision if self.carries else b""
        return asked(self.run_id, self.recording.format, body, self.window, revision=revision)

    def keep(self, answer: trim_pb2.TrimPromptResponse, now: float) -> None:
        """Note what an answer holds; the next prompt is the run's next."""
        self.given.append(Given(self.turn, sha256(answer.json_body).digest()))
        for trim in answer.trims:
            if trim.stash_id:
                self.ids.setdefault(trim.stash_id, now)
        self.revision = answer.revision
        self.turn += 1


@dataclass(slots=True)
class Tally:
    """What became of the calls of a time."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {cause: [] for cause in CAUSES})
    """Of the calls by cause."""
    errors: Counter[str] = field(default_factory=Counter)
    """Causes of calls that were made again; see `cause_of`."""
    lost: Counter[str] = field(default_factory=Counter)
    """Prompts that had no answer, by the last cause."""
    asked: int = 0
    """Ids that were asked for after a kill."""
    missing: Counter[str] = field(default_factory=Counter)
    """Those that were not answered, by the outcome."""
    late: int = 0
    """Those among them that were answered when they were asked for again."""

    @property
    def calls(self) -> int:
        """Prompts that were answered."""
        return sum(map(len, self.seconds.values()))


class Lost(Exception):
    """A call that had no answer for too long, or never will."""


def cause_of(error: grpc.aio.AioRpcError) -> str:
    """Say briefly why a call failed: the sidecar's reason, else why Envoy ended it, else the client's words."""
    found = {name: value for each in (error.initial_metadata(), error.trailing_metadata()) for name, value in each}
    code = error.code().name
    details = found.get(_DETAILS)
    if isinstance(details, bytes):
        info = error_details_pb2.ErrorInfo()
        if any(detail.Unpack(info) for detail in status_pb2.Status.FromString(details).details):
            return f"{code}: {info.reason} of {info.domain}"
    flags = str(found.get(FLAGS, ""))
    if flags not in _NO_FLAGS:
        return f"{code}: Envoy, {flags}"
    return f"{code}: {(error.details() or 'no details')[:60]}"


@dataclass(slots=True)
class Agents:
    """All agents, their connections to Envoy, and what they have met."""

    channels: Sequence[grpc.aio.Channel]
    recordings: Sequence[Recording]
    number: int
    think: float
    """Mean seconds between an answer and the next prompt, exponentially distributed."""
    window: int
    name: str
    seed: int = 7
    tally: Tally = field(default_factory=Tally)
    kills: list[float] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    all: list[Agent] = field(default_factory=list)
    """Runs, ended ones too."""
    _chance: random.Random = field(init=False)
    _waiting: int = field(init=False)
    """Agents that have had no answer yet."""
    _answered: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._chance, self._waiting = random.Random(self.seed), self.number

    async def live(self) -> None:
        """Have all agents work until it is over."""
        async with asyncio.TaskGroup() as group:
            for place in range(self.number):
                group.create_task(self._one(self.channels[place % len(self.channels)]))

    async def answered(self) -> None:
        """Wait until each agent has had an answer, but not for ever."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), PATIENCE)

    def begun(self) -> Agent:
        """A new run."""
        recording = self._chance.choice(self.recordings)
        turn = self._chance.choice(recording.beginnings)
        number = len(self.all)
        made = Agent(f"{self.name}-{number}", recording, turn, self.window, carries=number % 2 == 0)
        self.all.append(made)
        return made

    async def _one(self, channel: grpc.aio.Channel) -> None:
        trim = channel.unary_unary(
            f"{_PREFIX}TrimPrompt",
            request_serializer=trim_pb2.TrimPromptRequest.SerializeToString,
            response_deserializer=trim_pb2.TrimPromptResponse.FromString,
        )
        agent, first, new = self.begun(), True, True
        wait = self._chance.random() * self.think
        while not await self._over_within(wait):
            if agent.turn == len(agent.recording.ends):
                agent, first = self.begun(), True
            began = _now()
            try:
                answer, replica, tries = await self.persistently(trim, agent.request(), agent.run_id)
            except Lost as error:
                self.tally.lost[str(error)] += 1
                return
            ended = _now()
            moved = bool(agent.replica) and replica != agent.replica
            near = any(kill <= ended and began <= kill + NEAR for kill in self.kills)
            cause = CAUSES[4 if tries else 3 if moved else 2 if near else 1 if first else 0]
            self.tally.seconds[cause].append(ended - began)
            agent.replica, first = replica, False
            agent.keep(answer, ended)
            self._waiting, new = self._waiting - new, False
            if not self._waiting:
                self._answered.set()
            wait = self._chance.expovariate(1 / self.think)

    async def _over_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.over.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def persistently(self, method: Any, request: Any, run_id: str) -> tuple[Any, str, int]:
        """Call until there is an answer; return it, the replica that gave it, and how often it had to be made again.

        Raises:
            Lost: there was none for too long, or the call was refused.
        """
        until, pause, tries = _now() + LOST_AFTER, PAUSE, 0
        while True:
            call = method(request, metadata=((RUN, run_id),), timeout=PATIENCE)
            try:
                answer = await call
                metadata = dict(await call.initial_metadata() or ())
                return answer, metadata.get(REPLICA, ""), tries
            except grpc.aio.AioRpcError as error:
                code = error.code()
                if code not in _TRANSIENT or _now() > until:
                    raise Lost(cause_of(error)) from error
                self.tally.errors[cause_of(error)] += 1
            tries += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def due(self, replica: str, until: float, most: int) -> list[tuple[Agent, str]]:
        """Ids to ask for after a kill: some of those that runs of the killed replica had been given until then."""
        found = [
            (agent, stash_id)
            for agent in self.all
            if agent.replica == replica
            for stash_id, since in agent.ids.items()
            if since <= until
        ]
        return self._chance.sample(found, min(most, len(found)))

    async def retrieve(self, agent: Agent, stash_id: str) -> None:
        """Ask for an original, and keep its digest; where it is missing ask once more, to learn whether it is lost."""
        method = self.channels[0].unary_unary(
            f"{_PREFIX}RetrieveContent",
            request_serializer=retrieve_pb2.RetrieveContentRequest.SerializeToString,
            response_deserializer=retrieve_pb2.RetrieveContentResponse.FromString,
        )
        self.tally.asked += 1
        request = retrieve_pb2.RetrieveContentRequest(run_id=agent.run_id, stash_id=stash_id, page_tokens=100_000)
        try:
            found, _, _ = await self.persistently(method, request, agent.run_id)
            missing = found.outcome != retrieve_pb2.RETRIEVE_OUTCOME_HIT
            if missing:
                self.tally.missing[retrieve_pb2.RetrieveOutcome.Name(found.outcome)] += 1
                await asyncio.sleep(NEAR)
                found, _, _ = await self.persistently(method, request, agent.run_id)
        except Lost as error:
            self.tally.missing[str(error)] += 1
            return
        if found.outcome != retrieve_pb2.RETRIEVE_OUTCOME_HIT:
            return
        self.tally.late += missing
        agent.originals[stash_id] = sha256(found.content).digest()


def _now() -> float:
    return asyncio.get_running_loop().time()
