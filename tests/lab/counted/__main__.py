"""`make counted`: compare estimates of what recorded runs cost with what their providers counted."""

from __future__ import annotations

import sys

from tests.lab.counted.measuring import measure, runs
from tests.lab.harness.tables import sorry


def main() -> int:
    """Print a row for each run; return the exit code."""
    paths = runs()
    if not paths:
        return sorry("counted", "the recorded runs are not here; PROMPT_SIDECAR_DATA names their folder", 2)
    print("| run (model) | prompts | tokens | single prompts, 19 of 20 | price | cold | by estimates | by reports |")
    print("|---|---|---|---|---|---|---|---|")
    for path in paths:
        one = measure(path)
        print(
            f"| {one.name} ({one.model}) | {one.prompts} | {one.tokens - 1:+.1%} | within {one.off:.1%} | "
            f"{one.price - 1:+.1%} | {one.cold} | {one.share_estimated:.2f} | {one.share_reported:.2f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
