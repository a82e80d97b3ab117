"""The engine without the wire, timed call by call; and the floor: what anything that looks at a prompt must do.

The engine is one process's core, called as the servicer calls it. The floor scans a prompt into messages, hashes it and
copies it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter, thread_time, time

import msgspec

from prompt_sidecar.app import settle_interpreter
from prompt_sidecar.doors.grpc.conversion import trim
from prompt_sidecar.doors.grpc.conversion.pieces import TrimAnswers
from prompt_sidecar.engine.runs.metering import CallerRules, Rules
from prompt_sidecar.engine.runs.pace import Clocks
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import CoreLimits, Limits
from prompt_sidecar.facts.trim_calls import Phases, TrimAnswer, TrimCall
from prompt_sidecar.tokens.count import warm
from prompt_sidecar.trim.ids import Keys
from prompt_sidecar.trim.presets import preset
from tests.lab.bench.servers import KEY
from tests.lab.harness import counting
from tests.lab.harness.prompts import ACCEPT_BYTES, CALLER, Prompts, request, trim_call


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]


_decoder = msgspec.json.Decoder(_Body)

WHAT = "floor: one scan into raw message slices (msgspec), one SHA-256 of the body, one copy of the body"


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds of each part on the wall clock, and of processor time for all."""

    scan: float
    hash: float
    copy: float
    cpu: float

    @property
    def total(self) -> float:
        """All three."""
        return self.scan + self.hash + self.copy


def floor(body: bytes) -> Floor:
    """Do the floor's work on a request body, and time it."""
    cpu, began = thread_time(), perf_counter()
    slices = _decoder.decode(body).messages
    scanned = perf_counter()
    digest = sha256(body).digest()
    hashed = perf_counter()
    copied = bytes(memoryview(body))
    done, cpu = perf_counter(), thread_time() - cpu
    assert slices
    assert digest
    assert len(copied) == len(body)
    return Floor(scanned - began, hashed - scanned, done - hashed, cpu)


PLENTY = 1_000_000_000
"""A limit that no prompt reaches: nothing is trimmed."""


def runs(limits: Limits | None = None) -> Runs:
    """A core with a cold count cache and warm tokenizer."""
    counter = counting.counter()
    warm(counter)
    core = Runs(
        counter,
        Keys(sha256(KEY.encode()).digest()),  # as the settings make the key of theirs
        Rules(CallerRules(preset("cache_first"))),
        Clocks(time),
        CoreLimits(limits or Limits()),
    )
    settle_interpreter()
    # The lengths of what our own text is chosen from are counted once in a process's life.
    core.trim(trim_call("warm", "openai_chat", b'[{"role":"user","content":"hello"}]', 100_000), never)
    return core


def never() -> None:
    """No deadline passes."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One call. Seconds."""

    parse: float
    """Reading the request from its bytes."""
    engine: float
    """`Runs.trim`."""
    engine_cpu: float
    write: float
    """Writing the answer's bytes."""
    phases: Phases
    floor: Floor
    batch_point: bool

    @property
    def served(self) -> float:
        """All that the servicer does."""
        return self.parse + self.engine + self.write


def timed_trim(core: Runs, call: TrimCall) -> tuple[TrimAnswer, float, float]:
    """Trim; the answer, the wall time and this thread's processor time."""
    cpu, began = thread_time(), perf_counter()
    answer = core.trim(call, never)
    took = perf_counter() - began
    return answer, took, thread_time() - cpu


def replay(
    core: Runs, prompts: Prompts, run_id: str, limit: int, keep: Callable[[bytes], object] = len
) -> Iterator[Timed]:
    """Serve each prompt as the servicer does, and do the floor's work on the same body, taking turns.

    `keep` is given each answer's bytes.
    """
    answers = TrimAnswers()
    for number, body in enumerate(prompts.bodies()):
        below = floor(body) if number % 2 else None
        raw = request(run_id, prompts.format, body, limit)
        began = perf_counter()
        call = trim.trim_call(raw, CALLER, ACCEPT_BYTES)
        parsed = perf_counter()
        answer, engine, cpu = timed_trim(core, call)
        ready = perf_counter()
        encoded = answers.write(CALLER, run_id, answer)
        written = perf_counter()
        keep(encoded)
        yield Timed(
            parse=parsed - began,
            engine=engine,
            engine_cpu=cpu,
            write=written - ready,
            phases=answer.phases,
            floor=below or floor(body),
            batch_point=answer.cache.batch_point,
        )
