"""`python -m tests.lab.bench`: run the parts, print their tables, write their facts."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson
from rich.console import Console

from tests.lab.bench.denial import denial
from tests.lab.bench.engine import engine, growth
from tests.lab.bench.envoy import masks_through_envoy, through_envoy
from tests.lab.bench.guard import guard
from tests.lab.bench.http import door
from tests.lab.bench.index import index, stash
from tests.lab.bench.inprocess import PLENTY, never, runs
from tests.lab.bench.memory import memory, resident
from tests.lab.bench.plateau import plateau
from tests.lab.bench.stored import stored
from tests.lab.bench.telemetry import scraped, telemetry, ticks
from tests.lab.bench.unseen import hostile, unseen
from tests.lab.bench.wire import measure, phases, wire
from tests.lab.harness import counting
from tests.lab.harness.figures import Section, show
from tests.lab.harness.prompts import Prompts, recorded, run, trim_call

PARTS = (
    "wire",
    "engine",
    "growth",
    "unseen",
    "hostile",
    "denial",
    "guard",
    "stash",
    "index",
    "memory",
    "resident",
    "plateau",
    "telemetry",
    "scraped",
    "ticks",
    "store",
    "envoy",
    "envoy_masks",
    "http",
)
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
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        prompts = recorded(asked.run) if asked.run else run(SEED, 100, 1_000_000)
    except (OSError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    limit = asked.limit or (max(int(RECORDED_SHARE * _tokens(prompts)), 1_000) if asked.run else LIMIT)
    console.print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores. "
        "Ratios are within this run, contenders taking turns; times in milliseconds tell about this machine. "
        f"Tokens of {counting.told()}.\n",
        highlight=False,
    )
    facts = {}
    for section in sections(prompts, limit, asked.only or PARTS, quick=asked.quick):
        show(section, console)
        facts[section.name] = section.facts
    if asked.json:
        asked.json.write_bytes(orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return 0


def sections(prompts: Prompts, limit: int, parts: Sequence[str], *, quick: bool) -> Iterator[Section]:
    """Each part that was asked for, as soon as it is measured."""
    if "wire" in parts or "engine" in parts:
        found = measure(prompts, limit, 3 if quick else 10)
        if "wire" in parts:
            yield wire(prompts, limit, found)
            yield phases(prompts, found)
        if "engine" in parts:
            yield engine(prompts, limit, found.inside)
    measured: Mapping[str, Callable[[], Section]] = {
        "growth": lambda: growth(20 if quick else 100, 2 if quick else 3),
        "unseen": lambda: unseen(3 if quick else 9),
        "hostile": lambda: hostile(1 if quick else 2, 500_000 if quick else 4_000_000),
        "denial": lambda: denial(0.1 if quick else 1.0, 50 if quick else 150),
        "guard": lambda: guard(2 if quick else 9),
        "stash": lambda: stash(2 if quick else 10),
        "index": lambda: index(10 if quick else 50, 1_000_000 if quick else 10_000_000),
        "memory": lambda: memory(1_000_000 if quick else 10_000_000, 100 if quick else 500),
        "resident": lambda: resident(40, 500, 1.0) if quick else resident(400, 5_000),
        "plateau": lambda: plateau(200 if quick else 500, with_recorded=not quick),
        "telemetry": lambda: telemetry(prompts, limit, 2 if quick else 8),
        "scraped": lambda: scraped(prompts, limit, 3 if quick else 10),
        "ticks": lambda: ticks(3.0 if quick else 10.0),
        "store": lambda: stored(prompts, limit, 1 if quick else 6),
        "envoy": lambda: through_envoy(prompts, limit, 1 if quick else 5),
        "envoy_masks": lambda: masks_through_envoy(10 if quick else 150),
        "http": lambda: door(prompts, limit, 1 if quick else 5),
    }
    for name, measure_part in measured.items():
        if name in parts:
            yield measure_part()


def _tokens(prompts: Prompts) -> int:
    """Tokens of the run's last prompt."""
    *_, body = prompts.bodies()
    return runs().trim(trim_call("size", prompts.format, body, PLENTY), never).tokens.before


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds and smaller inputs: half a minute in place of ten"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the facts there too")
    parser.add_argument(
        "--run", type=Path, metavar="FILE", help='a recorded run for wire and engine: {"format", "messages"}'
    )
    parser.add_argument(
        "--limit", type=int, metavar="TOKENS", help="of wire and engine; default 100,000, or 30 %% of --run"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument(
        "--counter",
        choices=counting.COUNTERS,
        default=counting.COUNTERS[0],
        help="who counts tokens: auto, the extra `fast` if it is installed; tiktoken, it alone (default: auto)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
