"""`python -m tests.lab.ceilings`: 1,000 runs at once, a killed server, and what a run had of its ceiling."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.lab.ceilings.killed import Plan, play
from tests.lab.harness.tables import options


def main() -> int:
    """Play, and print what happened; exit 1 if a run passed its ceiling by more than its call in flight."""
    parser = options("python -m tests.lab.ceilings", __doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--threads", type=int, default=32, help="calls in flight at a time")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--calls", type=int, default=8, help="ceiling on the model calls of a run")
    parser.add_argument("--tokens", type=int, default=0, help="ceiling on its input tokens; 0: none")
    parser.add_argument("--without-revisions", action="store_true", help="agents send no revision back")
    asked = parser.parse_args()
    plan = Plan(asked.runs, asked.threads, asked.kills, asked.calls, asked.tokens, not asked.without_revisions)
    with tempfile.TemporaryDirectory() as folder:
        outcome = play(plan, Path(folder))
    print(
        f"{outcome.runs:,} runs, {outcome.kills} SIGKILLs: {outcome.answers:,} answers, {outcome.retried:,} calls made "
        f"again; a run had at most {outcome.most_calls:,} calls"
        + (f" of {plan.calls:,}" if plan.calls else "")
        + f" and {outcome.most_tokens:,} tokens"
        + (f" of {plan.tokens:,}" if plan.tokens else "")
        + f"; all ended with {', '.join(sorted(outcome.reasons))}"
    )
    passed = (plan.calls and outcome.most_calls > plan.calls + 1) or outcome.reasons != {"RUN_CEILING"}
    return int(bool(passed))


if __name__ == "__main__":
    sys.exit(main())
