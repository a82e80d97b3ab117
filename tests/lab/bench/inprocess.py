"""The engine without the wire: one process's core, called as the servicer calls it, and timed call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from time import perf_counter, thread_time, time

from prompt_sidecar.app import settle_interpreter
from prompt_sidecar.doors.grpc.conversion import trim
from prompt_sidecar.doors.grpc.conversion.pieces import TrimAnswers
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.facts.limits import Limits
from prompt_sidecar.facts.trim_calls import Phases, TrimAnswer, TrimCall
from prompt_sidecar.tokens.count import warm
from prompt_sidecar.trim.presets import preset
from tests.lab.bench.floor import Floor, floor
from tests.lab.bench.processes import KEY
from tests.lab.harness import counting
from tests.lab.harness.prompts import ACCEPT_BYTES, CALLER, Prompts, request, trim_call

PLENTY = 1_000_000_000
"""A limit that no prompt reaches: nothing is trimmed."""


def runs(limits: Limits | None = None) -> Runs:
    """A core with a cold count cache and warm tokenizer."""
    counter = counting.counter()
    warm(counter)
    core = Runs(
        counter=counter,
        policy=preset("cache_first"),
        limits=limits or Limits(),
        key=sha256(KEY.encode()).digest(),  # as the settings make the key of theirs
        clock=time,
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
