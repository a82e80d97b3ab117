"""`make bench-scale`: agents that replay recorded runs, before 1, 2 and 4 sidecars with a store that are killed."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.doors.envoy.through import envoy_binary
from tests.lab.harness.components import Missing
from tests.lab.harness.figures import Section, Spread, milliseconds, ratio
from tests.lab.harness.tables import console, options, show_all, sorry
from tests.lab.scale.agents import CAUSES, recordings
from tests.lab.scale.playing import Plan, Trial, play


def sections(trials: Sequence[Trial]) -> Iterator[Section]:
    """What was kept, why calls were made again, how long calls took and why, and what runs take."""
    yield _kept(trials)
    if any(each.errors for trial in trials for each in (trial.quiet, trial.killed)):
        yield _refused(trials)
    yield _took(trials)
    yield _size(trials)


def _kept(trials: Sequence[Trial]) -> Section:
    rows, facts = [], {}
    for trial in trials:
        tallies = (trial.quiet, trial.killed)
        lost = sum(sum(each.lost.values()) for each in tallies)
        missing = sum(trial.killed.missing.values())
        again = sum(sum(each.errors.values()) for each in tallies)
        calls = sum(each.calls for each in tallies)
        wrong = trial.wrong_bodies + trial.wrong_originals
        rows.append(
            (
                str(trial.replicas),
                str(trial.kills),
                f"{calls:,}",
                f"{again:,}",
                f"{lost:,}",
                f"{wrong:,} of {trial.bodies + trial.originals:,}",
                f"{missing:,} of {trial.killed.asked:,}" + (f", {trial.killed.late:,} later" if missing else ""),
            )
        )
        facts[str(trial.replicas)] = {
            "kills": trial.kills,
            "prompts": calls,
            "made_again": dict(trial.quiet.errors + trial.killed.errors),
            "lost": dict(trial.quiet.lost + trial.killed.lost),
            "bodies_compared": trial.bodies,
            "bodies_wrong": trial.wrong_bodies,
            "originals_compared": trial.originals,
            "originals_wrong": trial.wrong_originals,
            "ids_asked": trial.killed.asked,
            "ids_missing": dict(trial.killed.missing),
            "ids_late": trial.killed.late,
        }
    return Section(
        "kept",
        "What kills cost",
        ("sidecars", "SIGKILLs", "prompts", "calls made again", "prompts lost", "wrong bytes", "ids not answered"),
        rows,
        facts,
        [
            "a call is made again by the agent, beyond what Envoy repeats by itself",
            "wrong bytes: prompts and originals that differ from those of a sidecar that nobody kills",
            f"ids: returned {trials[0].plan.settled:g} s before a kill or earlier in runs of the killed sidecar",
        ],
    )


def _refused(trials: Sequence[Trial]) -> Section:
    rows, facts = [], {}
    for trial in trials:
        for phase, tally in (("quiet", trial.quiet), ("kills", trial.killed)):
            rows += [
                (f"{trial.replicas}, {phase}: {cause}", f"{times:,}") for cause, times in tally.errors.most_common()
            ]
            facts[f"{trial.replicas}, {phase}"] = dict(tally.errors)
    return Section(
        "refused",
        "Why calls were made again",
        ("sidecars", "calls"),
        rows,
        facts,
        [
            "Envoy's flags: UF no connection, UC connection ended, UH no healthy sidecar, UO circuit breaker",
            "and URX all tries failed, UT no answer in time",
        ],
    )


def _took(trials: Sequence[Trial]) -> Section:
    rows, facts = [], {}
    for trial in trials:
        for phase, tally in (("quiet", trial.quiet), ("kills", trial.killed)):
            for cause in CAUSES:
                seconds = tally.seconds[cause]
                if not seconds:
                    continue
                spread = Spread.of(seconds)
                shown = (f"{len(seconds):,}", milliseconds(spread.p50), milliseconds(spread.p99))
                rows.append((f"{trial.replicas}, {phase}: {cause}", *shown))
                facts[f"{trial.replicas}, {phase}, {cause}"] = {"calls": len(seconds), **spread.facts()}
    return Section("took", "How long prompts took, by cause (ms)", ("sidecars", "calls", "p50", "p99"), rows, facts)


def _size(trials: Sequence[Trial]) -> Section:
    rows, facts = [], {}
    for trial in trials:
        calls, runs = trial.quiet.calls, trial.runs
        found = {
            "calls_a_second": round(ratio(calls, trial.quiet_seconds), 1),
            "resident_a_run": round(ratio(trial.resident, runs)),
            "store_bytes_a_run": round(ratio(trial.stored["memory"], runs)),
            "store_commands_a_call": round(ratio(trial.stored["commands"], calls), 2),
            "store_received_a_call": round(ratio(trial.stored["received"], calls)),
        }
        rows.append(
            (
                str(trial.replicas),
                f"{runs:,}",
                f"{found['calls_a_second']:,}",
                f"{found['resident_a_run'] / 1e3:,.0f}",
                f"{found['store_bytes_a_run'] / 1e3:,.0f}",
                f"{found['store_commands_a_call']:,}",
                f"{found['store_received_a_call'] / 1e3:,.1f}",
            )
        )
        facts[str(trial.replicas)] = {"runs": runs, **found}
    return Section(
        "size",
        "What runs take, at the end of the quiet (kB)",
        ("sidecars", "runs", "prompts a second", "memory a run", "store a run", "commands a prompt", "sent a prompt"),
        rows,
        facts,
        ["memory: what all sidecars take beyond an idle one's, divided by the runs; commands and kB are the store's"],
    )


WHOLE = Plan(agents=1_000, think=20.0, quiet=60.0, killed=60.0, every=10.0, ids=200, compared=100)
QUICK = Plan(agents=60, think=2.0, quiet=8.0, killed=14.0, every=7.0, ids=50, compared=30)
WIDTH = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; return 1 if a prompt was lost, bytes were wrong or an id was not answered."""
    asked = _arguments(arguments)
    to = console(WIDTH)
    try:
        envoy_binary()
        runs = recordings(asked.run or ())
    except (Missing, OSError, ValueError) as error:
        return sorry("bench-scale", error, 2)
    base = QUICK if asked.quick else WHOLE
    changed = {name: value for name in Plan.__slots__ if (value := getattr(asked, name)) is not None}
    plan = Plan(**{name: changed.get(name, getattr(base, name)) for name in Plan.__slots__})
    to.print(
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores for agents, Envoy, store "
        f"and sidecars. {plan.agents:,} agents that think for {plan.think:g} s; {plan.quiet:g} s in quiet, then "
        f"{plan.killed:g} s with a SIGKILL every {plan.every:g} s; {len(runs)} runs; durability {plan.durability}.\n"
    )
    trials: list[Trial] = []
    for replicas in asked.replicas or ([2] if asked.quick else [1, 2, 4]):
        with TemporaryDirectory() as folder:
            trials.append(play(plan, replicas, runs, Path(folder)))
        calls = trials[-1].quiet.calls + trials[-1].killed.calls
        to.print(f"{replicas} of them: {calls:,} prompts, {trials[-1].kills} killed", style="dim")
    show_all(sections(trials), to, asked.json)
    return int(not all(trial.sound for trial in trials))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = options("python -m tests.lab.scale", __doc__, facts=True)
    add = parser.add_argument
    add("--quick", action="store_true", help="60 agents before two sidecars: half a minute")
    add("--replicas", type=int, nargs="+", metavar="N", help="sidecars; default: 1 2 4, or 2")
    add("--agents", type=int, metavar="N", help="agents at a time (default: 1,000, or 60)")
    add("--think", type=float, metavar="SECONDS", help="mean time between two calls of an agent")
    add("--quiet", type=float, metavar="SECONDS", help="time without a kill")
    add("--killed", type=float, metavar="SECONDS", help="time with kills")
    add("--every", type=float, metavar="SECONDS", help="time between two kills")
    add("--ids", type=int, metavar="N", help="most ids that are asked for after each kill")
    add("--compared", type=int, metavar="N", help="most runs whose bytes are compared")
    add("--window", type=int, metavar="TOKENS", help="window of the agents' model (default: 16,000)")
    add("--settled", type=float, metavar="SECONDS", help="how old an id is that is asked for (default: 5)")
    add("--durability", choices=("local", "acknowledged"), help="of the store (default: local)")
    add("--run", type=Path, nargs="+", metavar="FILE", help="recorded runs, in place of all")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
