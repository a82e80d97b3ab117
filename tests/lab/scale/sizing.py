"""What a sidecar takes by the size of its prompts: `python -m tests.lab.scale.sizing`.

For each size some runs grow to it; then each run's prompt comes again with one iteration more, several times in turn.
Processor time of the server's process is counted, not the clock, so another program on the machine changes little:
calls a second that one core answers are one divided by the processor time of a call. What the client and gRPC's
clients take is not in it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.lab.bench.servers import real
from tests.lab.harness.figures import Section, milliseconds
from tests.lab.harness.prompts import Prompts, request, run
from tests.lab.harness.servers import Server
from tests.lab.harness.tables import console, options, show_all

SIZES: Final = (25_000, 60_000, 170_000, 500_000, 1_000_000)
"""Bytes of a prompt."""
RUNS: Final = 24
CALLS: Final = 10
"""Further calls of each run."""
ITERATIONS: Final = 30
"""Of a run at its size: its results are as large as that takes."""
WARMING: Final = 3
"""One in so many runs comes before memory is counted: pools and tables of the process grow with the first ones."""
LIMIT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Sized:
    """What prompts of one size take."""

    bytes: int
    """Of a prompt, at the mean."""
    first: float
    """Processor time of a run's first prompt, in seconds: its whole history is read."""
    call: float
    """Of a further one."""
    memory: float
    """Bytes in memory of a run, beyond what the process took before."""


def sized(size: int, runs: int, calls: int) -> Sized:
    """Measure prompts of a size on a server of its own."""
    made = run(7, ITERATIONS + calls, size * (ITERATIONS + calls) // ITERATIONS)
    with real() as server:
        warm(server, made)
        grown = [made.salted(number) for number in range(1, runs + 1)]
        bodies = [[*each.bodies()][-calls - 1 :] for each in grown]
        send, began, warming = server.method(), server.cpu(), runs // WARMING
        before = server.resident()
        for number, (first, *_) in enumerate(bodies):
            if number == warming:
                before = server.resident()
            send(request(f"run-{number}", made.format, first, LIMIT))
        read = server.cpu()
        for turn in range(1, calls + 1):
            for number, of_run in enumerate(bodies):
                send(request(f"run-{number}", made.format, of_run[turn], LIMIT))
        answered = server.cpu()
        total = sum(len(body) for of_run in bodies for body in of_run[1:])
        return Sized(
            total // (runs * calls),
            (read - began) / runs,
            (answered - read) / (runs * calls),
            (server.resident() - before) / (runs - warming),
        )


def warm(server: Server, made: Prompts) -> None:
    """Send what loads all that a process loads once."""
    send = server.method()
    for number in range(3):
        for body in [*made.salted(100 + number).bodies()][:20]:
            send(request("warm", made.format, body, LIMIT))


def section(measured: Sequence[Sized]) -> Section:
    """Return the table."""
    columns = ("bytes of a prompt", "first prompt", "a call", "calls a second a core", "memory of a run", "times")
    rows = [
        (
            f"{each.bytes:,}",
            milliseconds(each.first),
            milliseconds(each.call),
            f"{1 / each.call:,.0f}",
            f"{each.memory / 1e6:.2f} MB",
            f"{each.memory / each.bytes:.1f}",
        )
        for each in measured
    ]
    facts = {str(each.bytes): {"first": each.first, "call": each.call, "memory": each.memory} for each in measured}
    notes = ["processor time of the server's process; memory against the bytes of the run's last prompt"]
    return Section("sizing", "What prompts take, by size", columns, rows, facts, notes)


def sections(sizes: Sequence[int], runs: int, calls: int) -> Iterator[Section]:
    """Measure each size."""
    yield section([sized(size, runs, calls) for size in sizes])


def main() -> int:
    """Measure and print."""
    parser = options("python -m tests.lab.scale.sizing", __doc__, facts=True)
    parser.add_argument("--quick", action="store_true", help="two sizes, few runs: whether it works, no figures")
    asked = parser.parse_args()
    sizes, runs, calls = (SIZES[:2], 2, 2) if asked.quick else (SIZES, RUNS, CALLS)
    show_all(sections(sizes, runs, calls), console(120), asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
