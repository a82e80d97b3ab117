"""What a report recommends: the largest limit that saves a tenth and fits, as lines for the settings file."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from prompt_sidecar.facts.known_models import ModelFacts, faults
from prompt_sidecar.report.figures import RunFigures, Setting
from prompt_sidecar.report.recommending import recommended, sentence
from prompt_sidecar.report.strategies import Cost

COST = Cost(1_000, 100.0, 100.0, 10.0, 10.0, 0, 0, 0)


def setting(limit: int, share: float, *, over: int = 0, window: bool = False) -> Setting:
    """A limit that was tried."""
    return Setting(limit, window, replace(COST, over_limit=over), share, share, visible=0.9 if share < 1 else 1.0)


def run(model: str, *settings: Setting) -> RunFigures:
    """A run that was tried with what its model takes and with these."""
    whole = setting(1_000_000, 1.0, window=True)
    return RunFigures(
        "run", "source", "openai_chat", model, 1_000_000, 1_000_000, COST, COST, 1.0, (), (), (), (), None, (),
        settings=(whole, *settings),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ([setting(150_000, 0.85), setting(100_000, 0.7)], 150_000),
        ([setting(150_000, 0.95), setting(100_000, 0.7)], 100_000),
        ([setting(150_000, 0.85, over=1), setting(100_000, 0.7)], 100_000),
        ([setting(150_000, 0.95), setting(100_000, 1.1)], 0),
        ([], 0),
    ],
    ids=["first", "worth", "fits", "none", "small runs"],
)
def test_the_largest_limit_that_is_worth_it(settings: list[Setting], limit: int) -> None:
    """A smaller one saves more and hides more; where none saves a tenth, all stays as it is."""
    (found,) = recommended([run("claude-opus-4-6", *settings)])
    assert limit == found.limit
    assert bool(limit) == bool(found.lines)
    assert ("saves an estimated" if limit else "leave the limit as it is") in sentence(found)


def test_runs_of_one_model_share_a_limit() -> None:
    """One that never comes near the limit stays as it is; each model has lines of its own, a file without one none."""
    large, small, other, none = (
        run("claude-opus-4-6", setting(100_000, 0.5)),
        run("claude-opus-4-6"),
        run("gpt-5.4", setting(60_000, 0.2)),
        run(""),
    )
    first, second = recommended([large, small, replace(other, never=replace(COST, comparable_money=1.0)), none])
    assert ("claude-opus-4-6", 100_000, 2, 0.75, 20.0, 5.0) == (
        first.model,
        first.limit,
        first.runs,
        first.share,
        first.bill,
        first.saved,
    )
    assert 0.05 == pytest.approx(first.hidden)
    assert "saves an estimated 25% of the bill of 2 runs (5.00 of 20.00 USD), and hides 5%" in sentence(first)
    assert ("gpt-5.4", 60_000) == (second.model, second.limit)


def test_the_lines_are_settings() -> None:
    """They can be pasted as they are."""
    (found,) = recommended([run('odd "model"', setting(60_000, 0.5))])
    tables = tomllib.loads("\n".join(found.lines))["models"]
    assert {'odd "model"': {"window": 60_000}} == tables
    assert [] == list(faults({name: ModelFacts(**facts) for name, facts in tables.items()}))
