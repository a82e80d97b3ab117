"""Calls that are made to be heavy: how long each holds the interpreter, its memory, its end, and what others wait.

The first three are measured in a process of its own for each input, without the wire (`tests.lab.bench.alone`).
What others wait is measured on a real server: one caller sends ordinary prompts, alone and then while as many others as
there are places send heavy calls one after another. Where these are large, what gRPC itself has others wait is measured
too, on a server of its own that throws all messages away.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter

import grpc
import orjson

from prompt_sidecar.v1 import retrieve_pb2, trim_pb2
from tests.lab.bench.alone import DEADLINE, EXPRESSION, INPUTS, PATTERN, RUN_ID, Heavy, Measured
from tests.lab.bench.processes import BARE, REAL, ROOT, serving
from tests.lab.bench.wire import Send
from tests.lab.harness import counting
from tests.lab.harness.figures import Section, Spread, milliseconds
from tests.lab.harness.prompts import request, run

SERVICE = "/prompt_sidecar.v1.SidecarService/"
HOLD_TARGET = 0.1
"""Seconds, p99 of the delays of another thread."""
MEMORY_TARGET = 3.0
OVERRUN_TARGET = 0.2
WAIT_TARGET = 0.1
"""Seconds that heavy calls add to another caller's p99."""
CALLERS = 4
"""Callers that send heavy calls at once."""
HEAVY_DEADLINE = 2.0
LARGE = 10_000_000
"""Bytes of messages from which what gRPC itself adds is measured too."""
PATIENCE = 600
"""Seconds."""
_WIDE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def denial(size: float, calls: int) -> Section:
    """Tell all four figures of each input, of `size` times what its name says; `calls` of the other caller for each."""
    rows: list[list[str]] = []
    facts: dict[str, object] = {"size": size, "calls": calls, "deadline": DEADLINE}
    for name in INPUTS:
        alone, others = _alone(name, size), _others(name, size, calls)
        bare = _others(name, size, calls, BARE) if alone.bytes >= LARGE * size else None
        rows.append(
            [
                name,
                alone.outcome,
                f"{alone.cpu:.2f}",
                _against(alone.hold_p99, HOLD_TARGET),
                f"{alone.memory:.1f} x",
                f"{_against(alone.overrun, OVERRUN_TARGET)}, {alone.retries} calls",
                f"{others.told} ({_met(others.added, WAIT_TARGET)})",
                "" if bare is None else f"+{milliseconds(bare.added)}",
            ]
        )
        facts[name] = {
            "bytes": alone.bytes,
            "outcome": alone.outcome,
            "cpu_s": round(alone.cpu, 3),
            "hold_p99_ms": round(alone.hold_p99 * 1e3, 1),
            "hold_most_ms": round(alone.hold_most * 1e3, 1),
            "memory_factor": round(alone.memory, 2),
            "overrun_ms": round(alone.overrun * 1e3, 1),
            "calls_until_answered": alone.retries,
            "others_quiet": others.quiet.facts(),
            "others_under": others.under.facts(),
        }
        if bare is not None:
            facts[f"{name}, at a bare gRPC server"] = {"quiet": bare.quiet.facts(), "under": bare.under.facts()}
    return Section(
        "denial",
        f"Calls that are made to be heavy, at {size:g} times the size that their names say",
        [
            "",
            "outcome",
            "CPU, s",
            "hold p99, ms",
            "memory",
            "overrun, ms",
            "another's p99, ms: quiet, under",
            "of gRPC alone",
        ],
        rows,
        facts,
        [
            "hold: delay of another thread that only wakes up; memory: peak beside the request, in times of its bytes",
            f"overrun: past a deadline of {DEADLINE:g} s, the longest of as many calls as it took to be answered",
            f"another's p99: ordinary prompts, while {CALLERS} others send this, deadline {HEAVY_DEADLINE:g} s",
            "of gRPC alone: what the same calls add to another's p99 at a gRPC server that throws all messages away",
        ],
    )


def _against(seconds: float, target: float) -> str:
    return f"{milliseconds(seconds)} ({_met(seconds, target)})"


def _met(seconds: float, target: float) -> str:
    return "within" if seconds <= target else f"MISSES {target * 1e3:.0f}"


def _alone(name: str, size: float) -> Measured:
    """One input in a process of its own."""
    command = [sys.executable, "-m", "tests.lab.bench.alone", name, str(size), counting.chosen]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=True, capture_output=True, env=environment, timeout=PATIENCE)
    return Measured(**orjson.loads(done.stdout))


@dataclass(frozen=True, slots=True)
class _Others:
    """What another caller waits."""

    quiet: Spread
    under: Spread

    @property
    def added(self) -> float:
        """Seconds of p99."""
        return self.under.p99 - self.quiet.p99

    @property
    def told(self) -> str:
        """Both p99, in milliseconds."""
        return f"{milliseconds(self.quiet.p99)}, {milliseconds(self.under.p99)}"


def _others(name: str, size: float, calls: int, server: tuple[str, ...] = REAL) -> _Others:
    """Send ordinary prompts to a server, alone and beside heavy calls."""
    prompts = list(run(5, 40, 100_000).bodies())
    with ExitStack() as stack:
        address = stack.enter_context(serving(server))
        channel = stack.enter_context(grpc.insecure_channel(address, options=_WIDE))
        trim: Send = channel.unary_unary(SERVICE + "TrimPrompt")

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
        for _ in range(CALLERS):
            command = [sys.executable, "-m", "tests.lab.bench.denial", address, name, str(size)]
            heavy = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
            stack.callback(_end, heavy)
            assert heavy.stdout is not None
            heavy.stdout.readline()  # it has begun
        under = send("under")
        return _Others(Spread.of(quiet), Spread.of(under))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(PATIENCE)


def keep_sending(address: str, name: str, size: float) -> None:
    """Send heavy calls one after another, whatever comes of them; a line on stdout says that the first is under way."""
    run_id = f"{RUN_ID}-{os.getpid()}"
    asked = trim_pb2.TrimPromptRequest.FromString(Heavy(name, size).raw)
    with grpc.insecure_channel(address, options=_WIDE) as channel:
        trim: Send = channel.unary_unary(SERVICE + "TrimPrompt")
        retrieve: Send = channel.unary_unary(SERVICE + "RetrieveContent")
        raws = []
        for number in range(8):
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
    keep_sending(sys.argv[1], sys.argv[2], float(sys.argv[3]))
