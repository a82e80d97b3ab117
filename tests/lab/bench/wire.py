"""A whole run through the real server over loopback, against a no-op on the same server; and where the time goes.

Two processes serve: the real program, and the no-op of `servers`, which takes the same requests and returns
answers of the same size, recorded in this process. The client sends and receives bytes, so that its own parsing is in
neither. Calls of the two take turns, and turns at being first. Every round is a fresh run, and its texts are new, so
that new text is counted, as in life. The server does not tell its phases to clients: they are measured on the same
requests in this process, and the wire's part is what is left of the round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

from tests.lab.bench.inprocess import Timed, replay, runs
from tests.lab.bench.servers import GIVE, KEEP, beside, real
from tests.lab.harness.figures import Section, best_of, in_turns, milliseconds, times, views
from tests.lab.harness.prompts import Prompts, request

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
