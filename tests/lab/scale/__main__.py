"""`make bench-scale`: agents that replay recorded runs, before 1, 2 and 4 sidecars with a store that are killed."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.doors.envoy.through import envoy_binary
from tests.lab.harness.components import Missing
from tests.lab.harness.tables import console, options, show_all, sorry
from tests.lab.scale.playing import Plan, Trial, play
from tests.lab.scale.recordings import recordings
from tests.lab.scale.told import sections

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
