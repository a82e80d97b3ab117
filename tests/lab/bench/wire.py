"""A call of a whole run: by itself beside the floor, and through the real server against a no-op on the same server.

The engine is timed in this process, and what ten times the history adds to a call. On the wire two processes serve: the
real program, and the no-op of `servers`, which takes the same requests and returns answers of the same size, recorded
in this process. The client sends and receives bytes, so that its own parsing is in neither. Calls of the two take
turns, and turns at being first. Every round is a fresh run, and its texts are new, so that new text is counted, as in
life. The server does not tell its phases to clients: they are measured on the same requests in this process, and the
wire's part is what is left of the round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

from tests.lab.bench.inprocess import PLENTY, WHAT, Timed, replay, runs
from tests.lab.bench.servers import GIVE, KEEP, beside, real
from tests.lab.harness.figures import Section, Spread, best_of, in_turns, milliseconds, ratio, times, verdict, views
from tests.lab.harness.prompts import Prompts, Writer, iterations_of, request, run

ENGINE_TARGET = 0.001
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
        met = verdict(whole.p50, ENGINE_TARGET)
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


P50_TARGET = 2.5
P99_TARGET = 4.0
PHASES = ("wire", "parse", "scan", "count", "trim", "encode", "other", "write")


@dataclass(slots=True)
class Rounds:
    """Seconds of each call, round by round."""

    real: list[list[float]] = field(default_factory=list)
    noop: list[list[float]] = field(default_factory=list)
    inside: list[list[Timed]] = field(default_factory=list)


def measure(prompts: Prompts, limit: int, rounds: int) -> Rounds:
    """Send the run `rounds` times, after one round that warms up; each is a fresh run with texts of its own."""
    found = Rounds()
    with real() as server, beside("floor") as noop:
        trim, keep, echo = server.method(), noop.method(KEEP), noop.method(GIVE)
        for number in range(rounds + 1):
            run_id, salted = f"bench-{number:04}", prompts.salted(number)
            answers: list[bytes] = []
            inside = list(replay(runs(), salted, run_id, limit, answers.append))
            for answer in answers:
                keep(answer)
            reals: list[float] = []
            noops: list[float] = []
            for index, body in enumerate(salted.bodies()):
                raw = request(run_id, salted.format, body, limit)
                for send, into in in_turns(((trim, reals), (echo, noops)), index + number):
                    began = perf_counter()
                    answer = send(raw)
                    into.append(perf_counter() - began)
                    assert answer == answers[index]
            if number:
                found.real.append(reals)
                found.noop.append(noops)
                found.inside.append(inside)
    return found


def by_phase(real: float, timed: Timed) -> dict[str, float]:
    """One call's time, phase by phase."""
    phases = timed.phases
    named = phases.scan + phases.count + phases.trim + phases.encode
    return {
        "wire": real - timed.served,
        "parse": timed.parse,
        "scan": phases.scan,
        "count": phases.count,
        "trim": phases.trim,
        "encode": phases.encode,
        "other": timed.engine - named,
        "write": timed.write,
    }


def wire(prompts: Prompts, limit: int, found: Rounds) -> Section:
    """Tell what a call costs against the no-op, and its phases."""
    noops = views(found.noop)
    rows = []
    facts: dict[str, object] = {"limit": limit, "calls": len(prompts), "rounds": len(found.real), "bytes": prompts.size}
    for name, ours in views(found.real).items():
        noop, over = noops[name], ours.over(noops[name])
        rows += [
            [name, "TrimPrompt", *ours.cells],
            ["", "no-op", *noop.cells],
            ["", "ratio", times(over.p50, P50_TARGET), times(over.p99, P99_TARGET)],
        ]
        facts[name] = {
            "real": ours.facts(),
            "noop": noop.facts(),
            "ratio_p50": round(over.p50, 3),
            "ratio_p99": round(over.p99, 3),
        }
    return Section(
        "wire",
        f"Wire: {prompts.name}, growing to {prompts.size:,} bytes, limit {limit:,} tokens, {len(found.real)} rounds",
        ["", "ms", "p50", "p99"],
        rows,
        facts,
        [
            "no-op: takes the same bytes and returns the recorded answer; same server class, options and interceptor",
        ],
    )


def phases(prompts: Prompts, found: Rounds) -> Section:
    """Tell where the time goes, at an ordinary call and at a batch point."""
    ordinary: list[dict[str, float]] = []
    batch: list[dict[str, float]] = []
    best = best_of(found.real)
    for index, seconds in enumerate(best):
        fastest = min((calls[index] for calls in found.inside), key=lambda timed: timed.served)
        (batch if fastest.batch_point else ordinary).append(by_phase(seconds, fastest))
    facts: dict[str, object] = {"batch_points": len(batch)}
    for name, calls in (("ordinary", ordinary), ("batch_point", batch)):
        if calls:
            facts[name] = {phase: round(_middle(calls, phase) * 1e6, 1) for phase in PHASES}
    rows = [
        [phase, *(milliseconds(_middle(calls, phase)) if calls else "-" for calls in (ordinary, batch))]
        for phase in PHASES
    ]
    return Section(
        "phases",
        f"Phases of a call: {prompts.name}; of each call the best of its rounds, then the median",
        ["ms", f"ordinary calls ({len(ordinary)})", f"batch points ({len(batch)})"],
        rows,
        facts,
        [
            "measured in this process on the same requests, as the server tells none; wire: the rest of the round trip",
            "parse: bytes to a call; other: what the engine does outside its phases; write: the answer to bytes",
        ],
    )


def _middle(calls: Sequence[dict[str, float]], phase: str) -> float:
    return median(call[phase] for call in calls)
