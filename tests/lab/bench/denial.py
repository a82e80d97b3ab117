"""Calls that are made to be heavy: how long each holds the interpreter, its memory, its end, and what others wait.

The first three are measured in a process of its own for each input, without the wire. What others wait is measured on a
real server: one caller sends ordinary prompts, alone and then while as many others as there are places send heavy calls
one after another. Where these are large, what gRPC itself has others wait is measured too, on a server of its own that
throws all messages away. `python -m tests.lab.bench.denial` is those processes: `alone` and `send`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from time import perf_counter, process_time

import grpc
import orjson

from prompt_sidecar.doors.grpc.conversion.trim import trim_call
from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.errors import DeadlinePassed, SidecarError
from prompt_sidecar.facts.recall_calls import RetrieveCall
from prompt_sidecar.recall.selection import PatternMatch
from prompt_sidecar.v1 import retrieve_pb2, trim_pb2
from tests.lab.bench.heavy_texts import EXPRESSION, mega, quoting, searched, with_emoji, words
from tests.lab.bench.http_denial import by_http
from tests.lab.bench.inprocess import never, runs
from tests.lab.bench.others import Others, met
from tests.lab.bench.servers import beside, real
from tests.lab.harness import counting
from tests.lab.harness.beside import ticking
from tests.lab.harness.figures import Section, milliseconds, percentile
from tests.lab.harness.prompts import ACCEPT_BYTES, CALLER, asked, request, run
from tests.lab.harness.servers import SERVICE, WIDE, Send, Server, environment, memory

RUN_ID = "heavy"
LIMIT = 100_000
DEADLINE = 0.5
"""Seconds after which a call's deadline passes."""
MOST_RETRIES = 200


def _request(body: bytes, limit: int = LIMIT, annotations: int = 0) -> bytes:
    pinned = [trim_pb2.Annotation(message_index=0, kind=trim_pb2.ANNOTATION_KIND_PINNED)] * annotations
    made = asked(RUN_ID, "openai_chat", body, limit, accept_bytes=ACCEPT_BYTES, annotations=pinned)
    return made.SerializeToString()


def _result(text: str) -> bytes:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    return orjson.dumps(messages)


def _alternating(iterations: int) -> bytes:
    roles = ("user", "assistant") * iterations
    return orjson.dumps([{"role": role, "content": words(20, number)} for number, role in enumerate(roles)])


def _tiny(number: int) -> bytes:
    return b"[" + b",".join(b'{"role":"user","content":"%d"}' % (each % 10) for each in range(number)) + b"]"


NAMES = "a member's name of 20 MB"
INPUTS: Mapping[str, Callable[[float], bytes]] = {
    NAMES: lambda size: _request(b'{"%s":1,"messages":[{"role":"user","content":"x"}]}' % (b"a" * mega(20 * size))),
    "a result of 10 MB that quotes JSON": lambda size: _request(_result(quoting(10 * size))),
    "a result of 30 MB that quotes JSON": lambda size: _request(_result(quoting(30 * size))),
    "a result of 10 MB with an emoji": lambda size: _request(_result(with_emoji(10 * size))),
    "3 MB of empty lists": lambda size: _request(
        b'{"tools":[' + b"[]," * mega(size) + b'[]],"messages":[{"role":"user","content":"x"}]}'
    ),
    "a million annotations": lambda size: _request(_tiny(10), annotations=mega(size)),
    "100,000 tiny messages": lambda size: _request(_tiny(int(99_990 * size))),
    "4,000 short iterations, one batch": lambda size: _request(_alternating(int(4_000 * size)), int(150_000 * size)),
    "a hostile pattern over 1.4 MB": lambda size: _request(_result(searched(size))),
}
PATTERN = "a hostile pattern over 1.4 MB"
NEW_RUNS = "2,000 new runs of one caller"
CROWDS: tuple[tuple[str, int], ...] = ((PATTERN, 8), (PATTERN, 16), (NEW_RUNS, 4))
"""Inputs with so many callers, beside which only what others wait is measured."""


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
            self._stash_id = answer.trimmed.trims[0].stash_id

    def send(self, core: Runs, check: Callable[[], None]) -> str:
        """Send it; what came of it."""
        try:
            if self._pattern:
                core.recalling.retrieve(
                    RetrieveCall(CALLER, RUN_ID, self._stash_id, PatternMatch(EXPRESSION, 0, False)), check
                )
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


def alone(name: str, size: float) -> Measured:
    """Send one input with no deadline, then to a fresh core with one, again and again until it is answered."""
    heavy = Heavy(name, size)
    core = runs()
    heavy.prepare(core)
    before = memory()
    with ticking() as delays:
        began, cpu = perf_counter(), process_time()
        outcome = heavy.send(core, never)
        wall, cpu = perf_counter() - began, process_time() - cpu
    taken = max(0, memory("VmHWM") - before) / len(heavy.raw)
    core = runs()
    heavy.prepare(core)
    overrun, tries = 0.0, 0
    for tries in range(1, MOST_RETRIES + 1):  # noqa: B007 - told below
        began = perf_counter()
        answer = heavy.send(core, deadline())
        overrun = max(overrun, perf_counter() - began - DEADLINE)
        if answer != DeadlinePassed.status or heavy.request()[0] != "TrimPrompt":
            break
    return Measured(
        bytes=len(heavy.raw),
        outcome=outcome,
        wall=wall,
        cpu=cpu,
        hold_p99=percentile(delays or [0.0], 0.99),
        hold_most=max(delays, default=0.0),
        memory=taken,
        overrun=overrun,
        retries=tries,
    )


HOLD_TARGET = 0.1
"""Seconds, p99 of the delays of another thread."""
OVERRUN_TARGET = 0.2
CALLERS = 4
"""Callers that send heavy calls at once."""
HEAVY_DEADLINE = 2.0
OTHERS = "another's p99 and longest, ms: quiet; under"
LARGE = 10_000_000
"""Bytes of messages from which what gRPC itself adds is measured too."""
PATIENCE = 600
"""Seconds."""


def denial(size: float, calls: int) -> Section:
    """Tell all four figures of each input, of `size` times what its name says; `calls` of the other caller for each."""
    rows: list[list[str]] = []
    facts: dict[str, object] = {"size": size, "calls": calls, "deadline": DEADLINE}
    for name in INPUTS:
        found, others = _alone(name, size), _others(name, size, calls, real)
        bare = _others(name, size, calls, partial(beside, "bare")) if found.bytes >= LARGE * size else None
        rows.append(
            [
                name,
                found.outcome,
                f"{found.cpu:.2f}",
                _against(found.hold_p99, HOLD_TARGET),
                f"{found.memory:.1f} x",
                f"{_against(found.overrun, OVERRUN_TARGET)}, {found.retries} calls",
                others.shown,
                "" if bare is None else f"+{milliseconds(bare.added)}",
            ]
        )
        facts[name] = {
            "bytes": found.bytes,
            "outcome": found.outcome,
            "cpu_s": round(found.cpu, 3),
            "hold_p99_ms": round(found.hold_p99 * 1e3, 1),
            "hold_most_ms": round(found.hold_most * 1e3, 1),
            "memory_factor": round(found.memory, 2),
            "overrun_ms": round(found.overrun * 1e3, 1),
            "calls_until_answered": found.retries,
            **{f"others_{when}": found for when, found in others.facts().items()},
        }
        if bare is not None:
            facts[f"{name}, at a bare gRPC server"] = bare.facts()
    for name, callers in CROWDS:
        crowd = _others(name, size, calls, real, callers)
        rows.append([f"{name}: {callers} callers", "", "", "", "", "", crowd.shown, ""])
        facts[f"{name}: {callers} callers"] = crowd.facts()
    for http in by_http(size, calls):
        rows.append([f"by HTTP: {http.name}", http.outcome, "", "", "", "", http.others.shown, http.direct])
        facts[f"by HTTP: {http.name}"] = http.facts()
    return Section(
        "denial",
        f"Calls that are made to be heavy, at {size:g} times the size that their names say",
        ["", "outcome", "CPU, s", "hold p99, ms", "memory", "overrun, ms", OTHERS, "without us"],
        rows,
        facts,
        [
            "hold: delay of another thread that only wakes up; memory: peak beside the request, in times of its bytes",
            f"overrun: past a deadline of {DEADLINE:g} s, the longest of as many calls as it took to be answered",
            f"another's p99: ordinary prompts, while {CALLERS} others, or as many as the row says, send this",
            f"their deadline is {HEAVY_DEADLINE:g} s; new runs have 60 short messages each",
            "without us: what the same calls add to another's p99 at a gRPC server that throws all messages away;",
            "by HTTP, what the load of the machine adds to the p99 of the same requests straight to their provider",
            "by HTTP: outcomes are the heavy calls' statuses; left: not answered within the client's patience",
        ],
    )


def _against(seconds: float, target: float) -> str:
    return f"{milliseconds(seconds)} ({met(seconds, target)})"


def _alone(name: str, size: float) -> Measured:
    """One input in a process of its own."""
    command = [sys.executable, "-m", "tests.lab.bench.denial", "alone", name, str(size), counting.chosen]
    done = subprocess.run(command, check=True, capture_output=True, env=environment({}), timeout=PATIENCE)
    return Measured(**orjson.loads(done.stdout))


def _others(name: str, size: float, calls: int, start: Callable[[], Server], callers: int = CALLERS) -> Others:
    """Send ordinary prompts to a server, alone and beside the heavy calls of so many callers."""
    prompts = list(run(5, 40, 100_000).bodies())
    with ExitStack() as stack:
        server = stack.enter_context(start())
        trim = server.method()

        def send(run_id: str) -> list[float]:
            times: list[float] = []
            for number in range(calls):
                raw = request(
                    f"{run_id}-{number // len(prompts)}", "openai_chat", prompts[number % len(prompts)], 20_000
                )
                began = perf_counter()
                trim(raw)
                times.append(perf_counter() - began)
            return times

        send("warm")
        quiet = send("quiet")
        for _ in range(callers):
            command = [sys.executable, "-m", "tests.lab.bench.denial", "send", server.address, name, str(size)]
            heavy = subprocess.Popen(command, env=environment({}), stdout=subprocess.PIPE)
            stack.callback(_end, heavy)
            assert heavy.stdout is not None
            heavy.stdout.readline()  # it has begun
        under = send("under")
        return Others(quiet, under)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(PATIENCE)


def keep_sending(address: str, name: str, size: float) -> None:
    """Send heavy calls one after another, whatever comes of them; a line on stdout says that the first is under way."""
    run_id = f"{RUN_ID}-{os.getpid()}"
    first = _request(_alternating(30)) if name == NEW_RUNS else Heavy(name, size).raw
    asked = trim_pb2.TrimPromptRequest.FromString(first)
    with grpc.insecure_channel(address, options=WIDE) as channel:
        trim: Send = channel.unary_unary(SERVICE + "TrimPrompt")
        retrieve: Send = channel.unary_unary(SERVICE + "RetrieveContent")
        raws = []
        for number in range(int(2_000 * size) if name == NEW_RUNS else 8):
            asked.run_id = f"{run_id}-{number}"
            raws.append(asked.SerializeToString())
        if name == PATTERN:
            answer = trim_pb2.TrimPromptResponse.FromString(trim(raws[0]))
            pattern = retrieve_pb2.PatternMatch(expression=EXPRESSION)
            search = retrieve_pb2.RetrieveContentRequest(
                run_id=f"{run_id}-0", stash_id=answer.trims[0].stash_id, pattern=pattern
            )
            raws, trim = [search.SerializeToString()], retrieve
        print("begun", flush=True)
        for raw in cycle(raws):
            with suppress(grpc.RpcError):
                trim(raw, timeout=HEAVY_DEADLINE)


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "send":
        keep_sending(given[0], given[1], float(given[2]))
    else:
        counting.chosen = given[2]
        sys.stdout.buffer.write(orjson.dumps(asdict(alone(given[0], float(given[1])))))
