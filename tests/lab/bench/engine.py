"""The engine by itself, beside the floor; and what ten times the history adds to a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.lab.bench.inprocess import PLENTY, WHAT, Timed, replay, runs
from tests.lab.harness.figures import Section, Spread, best_of, milliseconds, ratio, times, verdict, views
from tests.lab.harness.prompts import Prompts, Writer, iterations_of, run

P50_TARGET = 0.001
"""Seconds."""
GROWTH_TARGET = 1.0
TAIL = 40
"""Calls that are timed on top of each history."""
ITERATION_BYTES = 10_000
"""So that a hundred iterations make a megabyte."""


def engine(prompts: Prompts, limit: int, inside: Sequence[Sequence[Timed]]) -> Section:
    """Tell what a call costs without the wire, from replays of the run."""
    rows = []
    facts: dict[str, object] = {"limit": limit, "floor_is": WHAT}
    pooled = [timed for calls in inside for timed in calls]
    floors = views([[timed.floor.total for timed in calls] for calls in inside])
    for name, whole in views([[timed.engine for timed in calls] for calls in inside]).items():
        floor, over = floors[name], whole.over(floors[name])
        met = verdict(whole.p50, P50_TARGET)
        rows += [
            [name, "Runs.trim", f"{milliseconds(whole.p50)} ({met} 1 ms)", milliseconds(whole.p99)],
            ["", "floor", *floor.cells],
            ["", "ratio", times(over.p50), times(over.p99)],
        ]
        facts[name] = {"engine": whole.facts(), "floor": floor.facts(), "ratio_p50": over.p50, "ratio_p99": over.p99}
    for part in ("scan", "hash", "copy"):
        of_part = Spread.of(getattr(timed.floor, part) for timed in pooled)
        rows.append(["", f"floor: {part}", *of_part.cells])
        facts[part] = of_part.facts()
    return Section(
        "engine",
        f"Engine without the wire: {prompts.name}, limit {limit:,} tokens, {len(inside)} rounds",
        ["", "ms", "p50", "p99"],
        rows,
        facts,
        [WHAT],
    )


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    limits: tuple[int, int]
    """For the history and for the one of ten times its size."""
    target: float | None


CASES = (
    _Case("untrimmed at both sizes", (PLENTY, PLENTY), GROWTH_TARGET),
    _Case("limit 100k, and 1M for ten times the history", (100_000, 1_000_000), None),
    _Case("limit 100k for both", (100_000, 100_000), None),
)


def growth(iterations: int, rounds: int) -> Section:
    """Tell what ten times the history adds to a call, against what it adds to the floor.

    The same messages are appended to a history and to one of ten times its size; the first call, which brings the
    history, is not counted. Of each call the best of its rounds counts.
    """
    tail = iterations_of(Writer(99), TAIL, TAIL * ITERATION_BYTES)
    rows: list[list[str]] = []
    facts: dict[str, object] = {"calls": TAIL, "rounds": rounds}
    pair = [
        _with_tail(run(seed, factor * iterations, factor * iterations * ITERATION_BYTES), tail)
        for seed, factor in ((1, 1), (2, 10))
    ]
    for case in CASES:
        found: tuple[list[list[Timed]], list[list[Timed]]] = ([], [])
        for number in range(rounds):
            # The two take turns at being first; a core each, so that neither counts tokens for the other.
            for prompts, limit, into in list(zip(pair, case.limits, found, strict=True))[:: -1 if number % 2 else 1]:
                into.append(list(replay(runs(), prompts, "growth", limit))[1:])
        one, ten = (_costs(calls) for calls in found)
        added, added_floor = ten[0] - one[0], ten[1] - one[1]
        factor = ratio(added, added_floor)
        rows += [
            [case.name, "1x", milliseconds(one[0]), milliseconds(one[1]), ""],
            ["", "10x", milliseconds(ten[0]), milliseconds(ten[1]), ""],
            ["", "added", milliseconds(added), milliseconds(added_floor), times(factor, case.target)],
        ]
        facts[case.name] = {
            "engine_us": [round(one[0] * 1e6, 1), round(ten[0] * 1e6, 1)],
            "floor_us": [round(one[1] * 1e6, 1), round(ten[1] * 1e6, 1)],
            "added_ratio": round(factor, 3),
        }
    sizes = " and ".join(f"{prompts.size / 1e6:.1f} MB" for prompts in pair)
    return Section(
        "growth",
        f"Growth: the same {TAIL} calls on top of histories of {iterations} and {10 * iterations} iterations ({sizes})",
        ["ms of processor time, medians", "history", "Runs.trim", "floor", "ratio of the added"],
        rows,
        facts,
        [WHAT],
    )


def _with_tail(history: Prompts, tail: Sequence[bytes]) -> Prompts:
    """The calls that append `tail`, turn by turn; the first brings the history."""
    before = len(history.slices)
    slices = [*history.slices, *tail]
    roles = [part.startswith(b'{"role":"assistant"') for part in tail]
    lengths = [before + index for index, assistant in enumerate(roles) if assistant]
    return Prompts(history.name, history.format, slices, [*lengths, len(slices)])


def _costs(rounds: Sequence[Sequence[Timed]]) -> tuple[float, float]:
    """Median over the calls of engine and floor in processor time; of each call the best of its rounds."""
    return (
        median(best_of([[timed.engine_cpu for timed in calls] for calls in rounds])),
        median(best_of([[timed.floor.cpu for timed in calls] for calls in rounds])),
    )
