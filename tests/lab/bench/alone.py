"""One heavy call in a process of its own: how long it holds the interpreter, what memory it takes, when it ends.

`python -m tests.lab.bench.alone NAME SIZE` prints the figures as JSON; `tests.lab.bench.denial` asks for
them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, process_time, sleep
from typing import Self

import orjson

from prompt_sidecar.doors.grpc.conversion.trim import trim_call
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.errors import DeadlinePassed, SidecarError
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.recall.selection import PatternMatch
from prompt_sidecar.v1 import retrieve_pb2, trim_pb2
from tests.lab.bench.inprocess import runs
from tests.lab.harness import counting
from tests.lab.harness.figures import percentile
from tests.lab.harness.prompts import ACCEPT_BYTES, CALLER

RUN_ID = "heavy"
LIMIT = 100_000
TICK = 0.001
"""Seconds that the other thread sleeps; what it takes longer is a delay."""
DEADLINE = 0.5
"""Seconds after which a call's deadline passes."""
MOST_RETRIES = 200
EXPRESSION = "((?:[a-p ]{1,60}[b-p]){3}[a-o]{0,100}Q)"


def _request(body: bytes, limit: int = LIMIT, annotations: int = 0) -> bytes:
    return trim_pb2.TrimPromptRequest(
        run_id=RUN_ID,
        json=trim_pb2.JsonPrompt(format=trim_pb2.FORMAT_OPENAI_CHAT, body=body),
        context_window=limit,
        output_reserve=0,
        accept_bytes=ACCEPT_BYTES,
        annotations=[trim_pb2.Annotation(message_index=0, kind=trim_pb2.ANNOTATION_KIND_PINNED)] * annotations,
    ).SerializeToString()


def _result(text: str) -> bytes:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    return orjson.dumps(messages)


def words(number: int, seed: int = 7) -> str:
    """So many words."""
    chance = random.Random(seed)
    return " ".join(chance.choices(["alpha", "beta", "prompt", "cache", "line", "of", "text", "12"], k=number))


def _alternating(iterations: int) -> bytes:
    roles = ("user", "assistant") * iterations
    return orjson.dumps([{"role": role, "content": words(20, number)} for number, role in enumerate(roles)])


def _tiny(number: int) -> bytes:
    return b"[" + b",".join(b'{"role":"user","content":"%d"}' % (each % 10) for each in range(number)) + b"]"


def _mega(size: float) -> int:
    return int(size * 1_000_000)


NAMES = "a member's name of 20 MB"
INPUTS: Mapping[str, Callable[[float], bytes]] = {
    NAMES: lambda size: _request(b'{"%s":1,"messages":[{"role":"user","content":"x"}]}' % (b"a" * _mega(20 * size))),
    "a result of 10 MB that quotes JSON": lambda size: _request(_result('\\":' + "a b c\n" * (_mega(10 * size) // 6))),
    "a result of 30 MB that quotes JSON": lambda size: _request(_result('\\":' + "a b c\n" * (_mega(30 * size) // 6))),
    "a result of 10 MB with an emoji": lambda size: _request(_result("🙂" + words(_mega(10 * size) // 5))),
    "3 MB of empty lists": lambda size: _request(
        b'{"tools":[' + b"[]," * _mega(size) + b'[]],"messages":[{"role":"user","content":"x"}]}'
    ),
    "a million annotations": lambda size: _request(_tiny(10), annotations=_mega(size)),
    "100,000 tiny messages": lambda size: _request(_tiny(int(99_990 * size))),
    "4,000 short iterations, one batch": lambda size: _request(_alternating(int(4_000 * size)), int(150_000 * size)),
    "a hostile pattern over 1.4 MB": lambda size: _request(
        _result("".join(random.Random(7).choices("abcdefghijklmnop ", k=_mega(1.4 * size))))
    ),
}
PATTERN = "a hostile pattern over 1.4 MB"


@dataclass(slots=True)
class Measured:
    """One heavy call. Seconds, unless told otherwise."""

    bytes: int
    outcome: str
    wall: float
    cpu: float
    hold_p99: float
    hold_most: float
    memory: float
    """Times the request's bytes."""
    overrun: float
    """After a deadline of `DEADLINE`; the longest of the call and its retries."""
    retries: int
    """Calls with that deadline until one was answered."""


class Ticker:
    """Another thread, which does nothing but wake up; what keeps it from that is told as its delays."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        last = perf_counter()
        while not self._over.is_set():
            sleep(TICK)
            now = perf_counter()
            self.delays.append(now - last - TICK)
            last = now


def memory(name: str) -> int:
    """Bytes of this process's memory, by the kernel's name for the figure; 0 where it tells none."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1_024 for line in lines if line.startswith(name)), 0)


def never() -> None:
    """No deadline."""


def deadline() -> Callable[[], None]:
    """A deadline from now on."""
    end = perf_counter() + DEADLINE

    def check() -> None:
        if perf_counter() > end:
            raise DeadlinePassed("the deadline has passed")

    return check


class Heavy:
    """One input, to be sent to a core as a server sends it."""

    def __init__(self, name: str, size: float) -> None:
        self.raw = INPUTS[name](size)
        self._pattern = name == PATTERN
        self._stash_id = ""

    def prepare(self, core: Runs) -> None:
        """Send what must be there before."""
        if self._pattern:
            answer = core.trim(trim_call(self.raw, CALLER, ACCEPT_BYTES), never)
            self._stash_id = answer.trims[0].stash_id

    def send(self, core: Runs, check: Callable[[], None]) -> str:
        """Send it; what came of it."""
        try:
            if self._pattern:
                core.retrieve(RetrieveCall(CALLER, RUN_ID, self._stash_id, PatternMatch(EXPRESSION, 0, False)), check)
            else:
                core.trim(trim_call(self.raw, CALLER, ACCEPT_BYTES), check)
        except SidecarError as error:
            return f"{error.status} {error.bound}".strip()
        return "OK"

    def request(self) -> tuple[str, bytes]:
        """The method and the request that is heavy."""
        if not self._pattern:
            return "TrimPrompt", self.raw
        pattern = retrieve_pb2.PatternMatch(expression=EXPRESSION)
        asked = retrieve_pb2.RetrieveContentRequest(run_id=RUN_ID, stash_id=self._stash_id, pattern=pattern)
        return "RetrieveContent", asked.SerializeToString()


def measure(name: str, size: float) -> Measured:
    """Send one input with no deadline, then to a fresh core with one, again and again until it is answered."""
    heavy = Heavy(name, size)
    core = runs()
    heavy.prepare(core)
    before = memory("VmRSS")
    with Ticker() as ticker:
        began, cpu = perf_counter(), process_time()
        outcome = heavy.send(core, never)
        wall, cpu = perf_counter() - began, process_time() - cpu
    taken = max(0, memory("VmHWM") - before) / len(heavy.raw)
    core = runs()
    heavy.prepare(core)
    overrun, tries = 0.0, 0
    for tries in range(1, MOST_RETRIES + 1):  # noqa: B007 - told below
        began = perf_counter()
        told = heavy.send(core, deadline())
        overrun = max(overrun, perf_counter() - began - DEADLINE)
        if told != DeadlinePassed.status or heavy.request()[0] != "TrimPrompt":
            break
    return Measured(
        bytes=len(heavy.raw),
        outcome=outcome,
        wall=wall,
        cpu=cpu,
        hold_p99=percentile(ticker.delays or [0.0], 0.99),
        hold_most=max(ticker.delays, default=0.0),
        memory=taken,
        overrun=overrun,
        retries=tries,
    )


if __name__ == "__main__":
    counting.chosen = sys.argv[3]
    sys.stdout.buffer.write(orjson.dumps(asdict(measure(sys.argv[1], float(sys.argv[2])))))
