"""What trials found, as tables and facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.lab.harness.figures import Section, Spread, milliseconds, ratio
from tests.lab.scale.agents import CAUSES
from tests.lab.scale.playing import Trial


def sections(trials: Sequence[Trial]) -> Iterator[Section]:
    """What was kept, how long calls took and why, and what runs take."""
    yield _kept(trials)
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
            "made_again": {
                code: sum(each.errors[code] for each in tallies) for each in tallies for code in each.errors
            },
            "lost": {code: sum(each.lost[code] for each in tallies) for each in tallies for code in each.lost},
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
