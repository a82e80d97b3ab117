"""Replay agents against providers that check reasoning: `python -m tests.lab.conformance.reasoning`.

Each line is one run under one preset with one agent, over all limits: how many of its prompts would be refused at each
limit, why, and how much of the reasoning given so far a prompt carries (an engine that strips all of it is never
refused). The judges: `bound` (Claude Fable 5.1 and its kin), `older` (Claude models before), `gemini` (Gemini 3),
`responses` (OpenAI's Responses with ids) and `responses-plain` (without). Agents that talk to a server are tried at one
limit and with one preset unless they are named.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from statistics import fmean

from prompt_sidecar.trim.presets import PRESETS
from tests.conformance.conversations import recorded_paths
from tests.conformance.replaying import JUDGES, Result, Task, names, replayed
from tests.conformance.wired_agents import STYLES, WIRED
from tests.lab.harness.parallel import in_processes
from tests.lab.harness.tables import options
from tests.oracle import data

LIMITS = (15, 30, 45, 60)
"""Per cent of a run's size."""


def parser() -> argparse.ArgumentParser:
    """The program's options."""
    found = options("python -m tests.lab.conformance.reasoning", __doc__)
    found.add_argument("--judges", nargs="+", choices=JUDGES, default=["bound", "older", "gemini", "responses"])
    found.add_argument("--runs", nargs="+", help="names of runs, such as cc-entire-graph or made-3; default: all")
    found.add_argument("--presets", nargs="+", choices=list(PRESETS), default=list(PRESETS))
    found.add_argument("--limits", nargs="+", type=float, default=LIMITS, help="per cent of the run's size")
    found.add_argument("--styles", nargs="+", choices=STYLES, help="agents; default: all")
    found.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    found.add_argument("--first", type=int, default=0, help="show so many refusals of each replay")
    found.add_argument("--json", action="store_true", help="print one JSON object for each replay")
    return found


def tasks(chosen: argparse.Namespace) -> Iterator[Task]:
    """All replays asked for."""
    for judge in chosen.judges:
        for run in chosen.runs or names(JUDGES[judge]):
            if run.partition("+")[0].partition("-")[0] != "made" and run not in names(JUDGES[judge]):
                continue
            for style in chosen.styles or STYLES:
                slow = style in WIRED and not chosen.styles
                if style == "killed" and slow and run != names(JUDGES[judge])[0]:
                    continue
                for preset in chosen.presets[:1] if slow else chosen.presets:
                    for limit in chosen.limits[1:2] if slow else chosen.limits:
                        yield Task(judge, run, preset, limit / 100, style)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, and print the table. Returns 1 if anything was refused."""
    chosen = parser().parse_args(arguments)
    asked = list(tasks(chosen))
    if not recorded_paths():
        print(f"no recorded runs: {data.ENVIRONMENT} names the folder that holds them", file=sys.stderr)
    results: dict[Task, Result] = {}
    replay = partial(replayed, keep=max(3, chosen.first))
    # The longest first, so that the last to end is a short one.
    for _, result in in_processes(replay, _longest_first(asked), chosen.jobs, begin=_quiet):
        results[result.task] = result
        if sys.stderr.isatty() or len(results) % 50 == 0:
            print(f"{len(results)} of {len(asked)} replays", end="\r", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if chosen.json:
        for task in asked:
            print(json.dumps(asdict(results[task])))
    else:
        _table([results[task] for task in asked], chosen.first)
    return int(any(result.refused for result in results.values()))


def _quiet() -> None:
    """A client whose sidecar is down says so; here that is no news."""
    logging.getLogger("prompt_sidecar.client").setLevel(logging.ERROR)


def _longest_first(asked: Sequence[Task]) -> list[Task]:
    return sorted(asked, key=lambda task: (task.style not in WIRED, "graph" not in task.run, task.run))


def _table(results: Sequence[Result], first: int) -> None:
    limits = sorted({result.task.share for result in results})
    head = "".join(f"{share:>9.0%}" for share in limits)
    print(f"{'judge':16}{'run':28}{'agent':17}{'preset':12}{'turns':>6}{head}  carried  causes")
    lines: dict[tuple[str, str, str, str], list[Result]] = {}
    for result in results:
        task = result.task
        lines.setdefault((task.judge, task.run, task.style, task.preset), []).append(result)
    for (judge, run, style, preset), found in lines.items():
        by = {result.task.share: result.refused for result in found}
        cells = "".join(f"{by[share]:>9}" if share in by else f"{'':9}" for share in limits)
        causes: Counter[str] = Counter()
        for result in found:
            causes.update(result.causes)
        listed = ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
        carried = fmean(result.carried for result in found)
        print(f"{judge:16}{run:28}{style:17}{preset:12}{found[0].turns:>6}{cells}  {carried:7.0%}  {listed}")
        for result in found if first else ():
            for refusal in result.first[:first]:
                print(f"    {result.task.share:.0%}: {refusal}")
    refused, turns = sum(result.refused for result in results), sum(result.turns for result in results)
    remarks = sum(result.remarks for result in results)
    slow = sum(result.seconds for result in results)
    print(f"{refused} of {turns} prompts refused, {remarks} with a remark; {len(results)} replays, {slow:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
