"""What a report recommends: the largest ceiling that saves most and hides least, as lines for the settings file."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from prompt_sidecar.config.settings import load
from prompt_sidecar.report.figures import ReportedRun, TriedSetting
from prompt_sidecar.report.recommending import recommended, sentences
from prompt_sidecar.report.strategies import Cost

COST = Cost(1_000, 100.0, 100.0, 10.0, 10.0, 0, 0, 0)
LIMIT = 1_000_000


def ceiling(size: int, share: float, hidden: float = 0.2) -> TriedSetting:
    """A ceiling that was tried."""
    return TriedSetting(LIMIT, True, COST, share, share + 0.05, 1 - hidden, ceiling=size)


def condense(level: str, share: float) -> TriedSetting:
    """A level of condensing that was tried."""
    return TriedSetting(LIMIT, True, COST, share, 1.0, 0.9, condense=level)


def run(*settings: TriedSetting, window: int = LIMIT) -> ReportedRun:
    """A run that was tried with what its model takes and with these."""
    whole = TriedSetting(LIMIT, True, COST, 1.0, 1.0, 1.0)
    return ReportedRun(
        "run", "source", "openai_chat", "claude-opus-4-6", LIMIT, window, COST, COST, 1.0, (), (), (), (), None, (),
        settings=(whole, *settings),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ([ceiling(150_000, 0.85), ceiling(100_000, 0.7)], 150_000),
        ([ceiling(150_000, 0.89), ceiling(100_000, 0.7)], 100_000),
        ([ceiling(300_000, 0.8), ceiling(150_000, 0.5, hidden=0.6)], 300_000),
        ([ceiling(150_000, 0.95), ceiling(100_000, 1.1)], 0),
        ([ceiling(150_000, 0.5, hidden=0.6)], 0),
        ([], 0),
    ],
    ids=["half of the best", "less than half", "what hides too much does not count", "no tenth", "too much", "small"],
)
def test_the_largest_ceiling_with_most_of_the_saving(settings: list[TriedSetting], size: int) -> None:
    """A smaller one saves more and hides more; where none is worth it, all stays as it is."""
    (found,) = recommended([run(*settings)])
    assert size == found.ceiling
    assert bool(size) == bool(found.lines)
    assert ("saves an estimated" if size else "leave the settings as they are") in sentences(found)


def test_all_runs_share_a_ceiling() -> None:
    """A policy is of all models; a run that never comes near it stays as it is, and weighs by its bill."""
    large = run(ceiling(100_000, 0.4, hidden=0.3), ceiling(60_000, 0.3, hidden=0.5))
    (found,) = recommended([large, run()])
    assert (100_000, 2, 0.7, 20.0, 6.0) == (found.ceiling, found.runs, found.share, found.bill, found.saved)
    assert 0.15 == pytest.approx(found.hidden)
    assert 0.725 == found.control_share
    assert (
        "a ceiling of 100,000 tokens saves an estimated 30% of the bill of 2 runs (6.00 of 20.00 USD) and hides 15% of "
        "the tokens that were sent, within reach of recall. The plain control at this size saves 28%, and what it "
        "drops is lost. 60,000 would save 35% and hide 25%"
    ) in sentences(found)


def test_a_run_without_a_price_is_on_no_sum_of_money() -> None:
    """What is saved is of the bill that is told; shares are of input tokens then, so that no units are mixed."""
    dear = replace(COST, comparable_cost=300.0, comparable_money=None)
    (found,) = recommended([run(ceiling(100_000, 0.5)), replace(run(), never=dear)])
    assert (10.0, 5.0) == (found.bill, found.saved)
    assert 0.875 == found.share


def test_what_hides_too_much_is_reported() -> None:
    """It is named with what it would save, and no line sets it."""
    (found,) = recommended([run(ceiling(150_000, 0.5, hidden=0.6))])
    assert "150,000 would save 50% and hide 60%, which is more than half" in sentences(found)


@pytest.mark.parametrize(("window", "value"), [(LIMIT, "auto"), (180_000, 150_000)], ids=["auto", "a number"])
def test_the_lines_are_settings(window: int, value: str | int) -> None:
    """They can be pasted as they are; `auto` stands where it is the same."""
    (found,) = recommended([run(ceiling(150_000, 0.5), window=window)])
    tables = tomllib.loads("\n".join(found.lines))
    assert {"policy": {"ceiling_tokens": value}} == tables
    assert 150_000 == load({}, flags={"policy.ceiling_tokens": str(value)}).policy.ceiling(LIMIT)


def test_condensing_is_recommended_by_itself() -> None:
    """The level that hides least of those that save a twentieth; the ceiling comes first."""
    first, second = recommended([run(ceiling(100_000, 0.5), condense("safe", 0.9), condense("full", 0.8))])
    assert 100_000 == first.ceiling
    assert ["[policy]", 'condense = "safe"'] == second.lines
    assert "condensing saves an estimated 10% of the bill of this run (1.00 of 10.00 USD)" in sentences(second)
    assert 1 == len(recommended([run(condense("safe", 0.97))]))


def test_a_preset_that_ignores_ceilings() -> None:
    """It is said, instead of that none saves."""
    (found,) = recommended([run()], ignored=True)
    assert "no ceiling was tried: the preset ignores it" in sentences(found)


def test_a_limit_that_was_asked_for_is_no_saving_of_a_ceiling() -> None:
    """Where the window is not known, what a limit saves of a short run is on no account of the ceiling."""
    short = replace(run(), settings=(TriedSetting(3_000, False, COST, 0.1, 0.1, 0.1),))
    (found,) = recommended([run(ceiling(100_000, 0.5, hidden=0.3)), short])
    assert 0.75 == found.share
    assert 0.15 == pytest.approx(found.hidden)
