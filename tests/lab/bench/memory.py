"""Memory from outside: of one run of 10 MB, and of a sidecar that is idle, full of runs, and rid of them again.

An estimate that forgets something would not show it, so what counts is the growth of a process's resident memory; the
parts are what the sidecar itself says of them. A run is grown in a process of its own, after another one of its size:
the first run of a process also fills caches that later runs share, and that are bounded. For the sidecar the real
program is started, sent prompts of many runs, and asked for its own account on `/metrics`. What the account leaves out
is the last column: an operator who sizes a container by it must not be wrong by more than a quarter. How it starts and
stops is told beside it.
"""

from __future__ import annotations

import gc
import multiprocessing
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter, sleep
from typing import Final

from prompt_sidecar.engine.runs.service import Runs
from prompt_sidecar.process.allocator import give_back
from prompt_sidecar.v1 import run_pb2
from tests.lab.bench.inprocess import never, runs
from tests.lab.bench.servers import real
from tests.lab.harness import counting
from tests.lab.harness.figures import Section
from tests.lab.harness.processes import free_port
from tests.lab.harness.prompts import CALLER, Prompts, request, run, trim_call
from tests.lab.harness.servers import Send, Server
from tests.lab.harness.servers import memory as memory_of

GOAL: Final = 4.0
"""Bytes that a run may cost for each byte of it."""
STEPS: Final = 20
"""Prompts in which the run grows."""
MIB: Final = 1_048_576
ENOUGH: Final = 100_000_000
"""A limit in tokens under which nothing is trimmed: every message is kept twice, as sent and as returned."""


def memory(size: int, iterations: int) -> Section:
    """Grow a run to `size` bytes in `iterations`, once trimmed to a usual window and once not at all."""
    rows, facts = [], {}
    for name, limit in (("limit 128,000 tokens", 128_000), ("nothing trimmed", ENOUGH)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.apply(grow, (size, iterations, limit))
        times = found["resident"] / found["run"]
        rows.append(
            [
                name,
                *(f"{found[part] / MIB:.1f}" for part in ("run", "originals", "index", "resident", "first")),
                f"{times:.2f}x ({'within' if times <= GOAL else 'MISSES'} {GOAL:g}x)",
            ]
        )
        facts[name] = {**found, "times": round(times, 3)}
    return Section(
        "memory",
        f"Memory of one run of {iterations} iterations: MiB",
        [
            "",
            "the run",
            "originals, as held",
            "index, estimated",
            "resident memory, all",
            "of the first run",
            "against the run",
        ],
        rows,
        facts,
        [
            "resident memory: growth of a process of its own, after indexing, compression and housekeeping: the last",
            "prompt, the returned one, originals, index and ledger, and what the allocator keeps",
        ],
    )


def grow(size: int, iterations: int, limit: int) -> Mapping[str, int]:
    """Bytes of the second run of this process, which should be a fresh one; `first` is the first one's memory."""
    ours = runs()
    first = _grown(ours, "first", run(6, iterations, size), limit)
    return {**_grown(ours, "second", run(7, iterations, size), limit), "first": first["resident"]}


def _grown(ours: Runs, run_id: str, prompts: Prompts, limit: int) -> Mapping[str, int]:
    lengths = [prompts.lengths[len(prompts.lengths) * step // STEPS - 1] for step in range(1, STEPS + 1)]
    gc.collect()
    give_back()
    before = memory_of()
    for length in lengths:
        # Made anew each time, and let go: the engine keeps the last one.
        body = b'{"messages":[' + b",".join(prompts.slices[:length]) + b"]}"
        ours.trim(trim_call(run_id, prompts.format, body, limit), never)
        while ours.work_off():
            pass
    run_bytes = len(body)
    del body
    gc.collect()
    give_back()  # as housekeeping does every half minute
    figures = ours.figures(CALLER, run_id)
    return {
        "run": run_bytes,
        "resident": memory_of() - before,
        "originals": figures.stash.held_bytes,
        "index": figures.history.index_bytes,
    }


RUN_BYTES: Final = 214_000
"""Bytes of each run: a recorded run of a hundred messages."""
ITERATIONS: Final = 30
CALLERS: Final = 4
"""Threads that send."""
RATIO_GOAL: Final = 1.25
"""Resident bytes for each that the account explains, at most."""
READY_GOAL: Final = 1.0
"""Seconds from the start to ready, on a quiet machine."""
IDLE_GOALS: Final = {"auto": 110, "tiktoken": 150}
"""Megabytes that a sidecar takes after its first prompt, by who counts."""
STOP_GOAL: Final = 1.0
"""Seconds from SIGTERM to the end of the process."""
SETTLE_SECONDS: Final = 35.0
"""Longer than housekeeping waits before it gives unused memory back to the system."""
AS_DEPLOYED: Final = {"PYTHONMALLOC": "malloc", "PYTHONDONTWRITEBYTECODE": ""}
"""What the image and the systemd unit set. An installed package has its bytecode beside it; the first start here writes
it, whatever this shell sets."""
MB: Final = 1_000_000
EXPLAINED: Final = (
    'prompt_sidecar_process_memory_bytes{state="baseline"}',
    'prompt_sidecar_stash_size_bytes{state="held"}',
    "prompt_sidecar_memory_size_bytes",
)
"""The series whose sum is the account: what the process took before any run, originals, and all else that runs keep."""


@dataclass(slots=True)
class _Process:
    """A server process and its account."""

    server: Server
    metrics: str
    settling: float
    """Seconds until unused memory was given back."""

    def account(self) -> Mapping[str, float]:
        """Every series of `/metrics` that has one value."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.metrics}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def settle(self) -> Mapping[str, float]:
        """Wait until nothing more is indexed and unused memory was given back; the account then.

        A run that had to forget its index waits for a search, so what waits need not come to nothing.
        """
        sleep(self.settling)
        before = -1.0
        while (waiting := (account := self.account())["prompt_sidecar_index_waiting_bytes"]) != before:
            before = waiting
            if waiting:
                sleep(2.0)
        return account


def resident(runs: int, small: int, settling: float = SETTLE_SECONDS) -> Section:
    """Start a sidecar with either counter; fill one with `runs` runs, end them, make `small` small calls, stop it."""
    rows: list[Sequence[str]] = []
    facts: dict[str, object] = {}
    metrics = f"127.0.0.1:{free_port()}"
    usual = {"TELEMETRY__METRICS_LISTEN": metrics, **AS_DEPLOYED}
    with real(**usual):
        pass  # its bytecode is there now
    for chosen in counting.COUNTERS:
        with real(TOKENS__COUNTER=chosen, **usual) as server:
            rows.append(_idle(server, chosen, facts))
    with real(**usual) as server:
        rows += _full(_Process(server, metrics, settling), runs, small, facts)
    return Section(
        "resident",
        f"A sidecar's memory and start; {runs:,} runs of {RUN_BYTES / 1e3:.0f} kB, then {small:,} small calls",
        ["", "", "goal"],
        rows,
        facts,
        [
            "explained: baseline, originals as held and what runs keep beside them, as /metrics tells",
            "start and stop hold for a quiet machine",
        ],
    )


def _idle(server: Server, chosen: str, facts: dict[str, object]) -> Sequence[str]:
    before = server.resident()
    server.method()(request("first", "openai_chat", b'[{"role":"user","content":"hello"}]', 128_000))
    after = server.resident()
    facts[f"idle, {chosen}"] = {"ready_seconds": server.seconds, "ready": before, "first_prompt": after}
    return [
        f"counter {chosen}: ready after; resident, after a first prompt",
        f"{server.seconds:.2f} s; {after / MB:.0f} MB",
        f"{READY_GOAL:g} s; {IDLE_GOALS[chosen]} MB",
    ]


def _full(process: _Process, runs: int, small: int, facts: dict[str, object]) -> list[Sequence[str]]:
    made, server = run(11, ITERATIONS, RUN_BYTES), process.server
    trim, end = server.method(), server.method("EndRun")
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(lambda number: _send(trim, made, number), range(runs)))
        account = process.settle()
        full, parts = server.resident(), [account.get(name, 0.0) for name in EXPLAINED]
        list(pool.map(lambda number: end(_end(f"full-{number}")), range(runs)))
        process.settle()
        ended = server.resident()

        def small_call(number: int) -> None:
            body = b'[{"role":"user","content":"hello %d"}]' % number
            trim(request(f"small-{number}", "openai_chat", body, 128_000))
            end(_end(f"small-{number}"))

        list(pool.map(small_call, range(small)))
        process.settle()
        after_small = server.resident()
        list(pool.map(lambda number: _send(trim, made, number), range(runs)))
    began = perf_counter()
    server.stop()
    stopped = perf_counter() - began
    explained = sum(parts)
    ratio = full / explained if explained else float("inf")
    facts["full"] = {
        "resident": full,
        "explained": dict(zip(EXPLAINED, parts, strict=True)),
        "ratio": round(ratio, 3),
        "ended": ended,
        "small_calls": after_small,
        "stop_seconds": round(stopped, 2),
    }
    listed = ", ".join(f"{part / MB:.0f}" for part in parts)
    return [
        ["with all runs: resident", f"{full / MB:.0f} MB", ""],
        ["explained: baseline, originals, all else of runs", f"{explained / MB:.0f} MB ({listed})", ""],
        ["resident / explained", f"{ratio:.2f}", f"{RATIO_GOAL:g}"],
        ["when all runs have ended", f"{ended / MB:.0f} MB", ""],
        ["small calls left", f"{(after_small - ended) / max(small, 1):.0f} bytes each", "0"],
        ["SIGTERM to the end, with all runs again", f"{stopped:.1f} s", f"{STOP_GOAL:g} s"],
    ]


def _send(trim: Send, made: Prompts, number: int) -> None:
    salted = made.salted(number)
    (body,) = replace(salted, lengths=salted.lengths[-1:]).bodies()
    trim(request(f"full-{number}", salted.format, body, 128_000))


def _end(run_id: str) -> bytes:
    return run_pb2.EndRunRequest(run_id=run_id).SerializeToString()
