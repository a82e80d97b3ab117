"""`python -m tests.lab.bench`: run the parts, print their tables, write their facts."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.lab.bench.denial import denial
from tests.lab.bench.envoy import masks_through_envoy, through_envoy
from tests.lab.bench.exponents import exponents
from tests.lab.bench.guard import guard
from tests.lab.bench.http import door
from tests.lab.bench.index import index, stash
from tests.lab.bench.inprocess import PLENTY, never, runs
from tests.lab.bench.memory import memory, resident
from tests.lab.bench.plateau import plateau
from tests.lab.bench.stored import stored
from tests.lab.bench.telemetry import scraped, telemetry, ticks
from tests.lab.bench.unseen import hostile, unseen
from tests.lab.bench.wire import engine, growth, measure, phases, wire
from tests.lab.harness import counting
from tests.lab.harness.figures import Section
from tests.lab.harness.prompts import Prompts, recorded, run, trim_call
from tests.lab.harness.tables import console, options, show_all, sorry

LIMIT = 100_000
"""Tokens, for the synthetic run: about a third of its final size."""
RECORDED_SHARE = 0.30
"""The limit of a recorded run, as a share of its final tokens."""
SEED = 20
WIDTH = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench and return its exit code; it asserts no figure."""
    asked = _arguments(arguments)
    counting.chosen = asked.counter
    to = console(WIDTH)
    try:
        prompts = recorded(asked.run) if asked.run else run(SEED, 100, 1_000_000)
    except (OSError, ValueError) as error:
        return sorry("bench", error, 2)
    limit = asked.limit or (max(int(RECORDED_SHARE * _tokens(prompts)), 1_000) if asked.run else LIMIT)
    to.print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores. "
        "Ratios are within this run, contenders taking turns; times in milliseconds tell about this machine. "
        f"Tokens of {counting.description()}.\n"
    )
    show_all(sections(prompts, limit, asked.only or PARTS, quick=asked.quick), to, asked.json)
    return 0


def sections(prompts: Prompts, limit: int, parts: Iterable[str], *, quick: bool) -> Iterator[Section]:
    """Each part that was asked for, as soon as it is measured."""
    if "wire" in parts or "engine" in parts:
        found = measure(prompts, limit, 3 if quick else 10)
        if "wire" in parts:
            yield wire(prompts, limit, found)
            yield phases(prompts, found)
        if "engine" in parts:
            yield engine(prompts, limit, found.inside)
    for name, part in MEASURED.items():
        if name in parts:
            yield part(prompts, limit, quick)


MEASURED: Mapping[str, Callable[[Prompts, int, bool], Section]] = {
    "growth": lambda _, __, quick: growth(20 if quick else 100, 2 if quick else 3),
    "exponents": lambda _, __, quick: exponents(30, 20, 3, 5) if quick else exponents(200, 100, 7, 10),
    "unseen": lambda _, __, quick: unseen(3 if quick else 9),
    "hostile": lambda _, __, quick: hostile(1 if quick else 2, 500_000 if quick else 4_000_000),
    "denial": lambda _, __, quick: denial(0.1 if quick else 1.0, 50 if quick else 150),
    "guard": lambda _, __, quick: guard(2 if quick else 9),
    "stash": lambda _, __, quick: stash(2 if quick else 10),
    "index": lambda _, __, quick: index(10 if quick else 50, 1_000_000 if quick else 10_000_000),
    "memory": lambda _, __, quick: memory(1_000_000 if quick else 10_000_000, 100 if quick else 500),
    "resident": lambda _, __, quick: resident(40, 500, 1.0) if quick else resident(400, 5_000),
    "plateau": lambda _, __, quick: plateau(200 if quick else 500, with_recorded=not quick),
    "telemetry": lambda prompts, limit, quick: telemetry(prompts, limit, 2 if quick else 8),
    "scraped": lambda prompts, limit, quick: scraped(prompts, limit, 3 if quick else 10),
    "ticks": lambda _, __, quick: ticks(3.0 if quick else 10.0),
    "store": lambda prompts, limit, quick: stored(prompts, limit, 1 if quick else 6),
    "envoy": lambda prompts, limit, quick: through_envoy(prompts, limit, 1 if quick else 5),
    "envoy_masks": lambda _, __, quick: masks_through_envoy(10 if quick else 150),
    "http": lambda prompts, limit, quick: door(prompts, limit, 1 if quick else 5),
}
PARTS = ("wire", "engine", *MEASURED)


def _tokens(prompts: Prompts) -> int:
    """Tokens of the run's last prompt."""
    *_, body = prompts.bodies()
    return runs().trim(trim_call("size", prompts.format, body, PLENTY), never).tokens.before


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = options("python -m tests.lab.bench", __doc__, facts=True)
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer rounds and smaller inputs: half a minute in place of ten")
    add("--run", type=Path, metavar="FILE", help='a recorded run for wire and engine: {"format", "messages"}')
    add("--limit", type=int, metavar="TOKENS", help="of wire and engine; default 100,000, or 30 %% of --run")
    add("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of: {', '.join(PARTS)}")
    counters = "who counts tokens: auto, the extra `fast` if it is installed; tiktoken, it alone (default: auto)"
    add("--counter", choices=counting.COUNTERS, default=counting.COUNTERS[0], help=counters)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
