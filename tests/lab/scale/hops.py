"""How many prompts lack a decision of the one before them where a run moves at random and the store is written behind.

Three replicas in one process share a real Valkey with default settings, and are told other counts of tokens. No agent
sends a revision. `python -m tests.lab.scale.hops`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from tests.conformance.table import CASES
from tests.lab.harness.figures import Section
from tests.lab.harness.tables import console, options, show_all
from tests.store.hopping import Played, grown, play
from tests.store.sharing import running_valkey

FORMATS: Final = ("openai_chat", "anthropic_messages")
PAUSES: Final = (0.0, 0.05, 0.25)
"""Seconds from an answer to the next prompt."""
TURNS: Final = 200
LIMIT: Final = 30_000
"""Tokens that a prompt may take."""
WIDTH: Final = 110


def main(arguments: Sequence[str] | None = None) -> int:
    """Play each format with each pause and durability."""
    parser = options("python -m tests.lab.scale.hops", __doc__, facts=True)
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="runs of each row, default 2")
    parser.add_argument("--turns", type=int, default=TURNS, metavar="N", help=f"model calls of a run, default {TURNS}")
    asked = parser.parse_args(arguments)
    to = console(WIDTH)
    rows, facts = [], {}
    for format_ in FORMATS:
        history = grown(CASES[format_], 1, asked.turns)
        one = play(None, history, "one", limit=LIMIT)
        for durability in ("local", "acknowledged"):
            for pause in PAUSES:
                played: list[Played] = []
                for seed in range(asked.seeds):
                    with running_valkey() as valkey:
                        played.append(
                            play(
                                valkey,
                                history,
                                "random",
                                seed=seed,
                                limit=LIMIT,
                                pause=pause,
                                durability=durability,
                            )
                        )
                prompts, other = sum(each.prompts for each in played), sum(each.other for each in played)
                written = sum(each.written for each in played) / len(played) / one.written
                name = f"{format_}, {durability}, {pause:g} s"
                rows.append((name, f"{prompts:,}", f"{other:,}", f"{other / prompts:.1%}", f"{written:.2f}"))
                facts[name] = {"prompts": prompts, "other": other, "written": round(written, 3)}
                to.print(*rows[-1], style="dim")
    notes = ["written anew: times what one replica has the provider write"]
    heads = ("format, durability, pause", "prompts", "lacking a decision", "share", "written anew")
    show_all(
        [Section("hops", "Prompts that lack a decision of the one before", heads, rows, facts, notes)], to, asked.json
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
