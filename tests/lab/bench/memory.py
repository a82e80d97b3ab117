"""What a run of 10 MB costs in memory: originals, index, ledger and the last prompt, against the run's own bytes.

Measured from outside, as the growth of a process's resident memory, in a process of its own: an estimate that forgets
something would not show it. The parts are what the sidecar itself says of them.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prompt_sidecar.process.allocator import give_back
from tests.lab.bench.inprocess import never, runs
from tests.lab.harness.figures import Section
from tests.lab.harness.prompts import CALLER, trim_call
from tests.lab.harness.synthetic import run

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
                *(f"{found[part] / MIB:.1f}" for part in ("run", "originals", "index", "resident")),
                f"{times:.2f}x ({'within' if times <= GOAL else 'MISSES'} {GOAL:g}x)",
            ]
        )
        facts[name] = {**found, "times": round(times, 3)}
    return Section(
        "memory",
        f"Memory of one run of {iterations} iterations: MiB",
        ["", "the run", "originals, as held", "index, estimated", "resident memory, all", "against the run"],
        rows,
        facts,
        [
            "resident memory: growth of a process of its own, after indexing, compression and housekeeping: the last",
            "prompt, the returned one, originals, index and ledger, and what the allocator keeps",
        ],
    )


def grow(size: int, iterations: int, limit: int) -> Mapping[str, int]:
    """Bytes, measured in this process, which should be a fresh one."""
    prompts = run(7, iterations, size)
    lengths = [prompts.lengths[len(prompts.lengths) * step // STEPS - 1] for step in range(1, STEPS + 1)]
    ours = runs()
    gc.collect()
    before = resident()
    for length in lengths:
        # Made anew each time, and let go: the engine keeps the last one.
        body = b'{"messages":[' + b",".join(prompts.slices[:length]) + b"]}"
        ours.trim(trim_call("grown", prompts.format, body, limit), never)
        while ours.work_off():
            pass
    run_bytes = len(body)
    del body
    gc.collect()
    give_back()  # as housekeeping does every half minute
    figures = ours.figures(CALLER, "grown")
    return {
        "run": run_bytes,
        "resident": resident() - before,
        "originals": figures.stash.held_bytes,
        "index": figures.history.index_bytes,
    }


def resident(process: int | str = "self") -> int:
    """Bytes of a process in memory, by the kernel's account; by default of this one."""
    pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
