"""Print what trimming costs on the recorded runs: `python -m tests.promises.report`.

Cost is the sum over turns of 0.1 × kept prefix + 1.25 × rewritten tokens, by the oracle's count, of what the sidecar
returns and of the two plain strategies on the same prompts, relative to never trimming.
"""

from __future__ import annotations

import argparse
import sys

from tests.oracle.runs import recorded, recorded_paths
from tests.promises.checks import fit_complaints
from tests.promises.replay import SHARE, figures, limit_of, replay, sticky_complaints

_HEAD = (
    f"{'run':<20} {'preset':<12} {'turns':>5} {'final':>8} {'limit':>7} {'ours':>6} {'control':>7} {'each':>6}"
    f" {'ours/control':>12} {'own text':>8} {'batches':>7} {'over':>4} {'faults':>6} {'ms':>6}"
)


def main() -> int:
    """Print the table; the exit status says whether there was anything to print."""
    parser = argparse.ArgumentParser(description="Costs of trimming on recorded runs, as shares of never trimming.")
    parser.add_argument("--share", type=float, default=SHARE, help="limit as a share of the final tokens")
    parser.add_argument("--preset", action="append", help="presets to replay; by default cache_first and fit_only")
    asked = parser.parse_args()
    paths = recorded_paths()
    if not paths:
        print("no recorded runs found; PROMPT_SIDECAR_DATA names the folder that holds them", file=sys.stderr)
        return 1
    print(_HEAD)
    for path in paths:
        for preset in asked.preset or ["cache_first", "fit_only"]:
            run = recorded(path)
            result = replay(run, preset, int(limit_of(run) * asked.share / SHARE))
            found = figures(result)
            faults = len(result.complaints) + len(sticky_complaints(result)) + len(fit_complaints(result.turns))
            print(
                f"{run.name:<20} {preset:<12} {found.turns:>5} {found.final:>8,} {found.limit:>7,}"
                f" {found.ours / found.untrimmed:>6.3f} {found.control / found.untrimmed:>7.3f}"
                f" {found.every_call / found.untrimmed:>6.3f} {found.of_control:>12.3f} {found.own_share:>8.2%}"
                f" {found.batch_points:>7} {found.over:>4} {faults:>6} {found.seconds * 1000:>6.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
