"""Ceilings that refuse hold over SIGKILLs; `python -m tests.lab.ceilings` is the same with 1,000 runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.ceilings import Plan, play


@pytest.mark.parametrize(
    "plan",
    [
        Plan(runs=40, threads=8, kills=2, calls=5),
        Plan(runs=40, threads=8, kills=2, calls=5, revisions=False),
        Plan(runs=40, threads=8, kills=2, calls=0, tokens=2_500),
    ],
    ids=["calls", "calls, by history alone", "tokens"],
)
def test_a_ceiling_holds_over_kills(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No run gets an answer beyond its ceiling, and all of them get up to it."""
    folder: Path = tmp_path_factory.mktemp("s")
    outcome = play(plan, folder)
    assert {"RUN_CEILING"} == set(outcome.reasons)
    assert plan.kills == outcome.kills
    if plan.calls:
        assert plan.calls == outcome.most_calls
    if plan.tokens:
        assert plan.tokens * 0.5 < outcome.most_tokens <= plan.tokens
