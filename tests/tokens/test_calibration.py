"""Factors that correct themselves: against simulated providers, real vocabularies, and reports that are absurd."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.tokens.calibration import (
    BAND,
    CALLER_KEYS,
    DEAD_BAND,
    LEAST_FACTOR,
    MOST_FACTOR,
    Calibration,
    CountedPrompt,
    Factors,
    calibrated_tokens,
    weighted_median,
)
from tests.tokens.foreign import Turn, errors, percentile, turns

KEY = ("caller", "model", "openai_chat")


def reported(calibration: Calibration, pairs: Sequence[tuple[int, int]]) -> float:
    """Report pairs of our count and the real one; the factor then."""
    for raw, real in pairs:
        calibration.report(*KEY, CountedPrompt(raw, 0, real))
    return calibration.factor(*KEY)


@pytest.mark.parametrize(
    ("raw", "factor", "tokens"), [(3, 1.1, 4), (10, 1.25, 13), (10, 1.1, 11), (7, 1.0, 7), (0, 2.0, 0)]
)
def test_calibrated_tokens_are_rounded_up(raw: int, factor: float, tokens: int) -> None:
    """An estimate is not below what it means; a product that is whole but for a float's error stays."""
    assert tokens == calibrated_tokens(raw, factor)


def test_nothing_reported_changes_nothing() -> None:
    """Without a report our count stands."""
    assert 1.0 == Calibration().factor(*KEY)


@pytest.mark.parametrize("factor", [0.6, 0.8, 1.0, 1.2, 1.4])
@pytest.mark.parametrize("tokens", [150, 5_000, 180_000])
def test_five_reports_correct_a_constant_difference(factor: float, tokens: int) -> None:
    """A tokenizer that differs by up to 40 per cent is estimated within 3 per cent after five reports."""
    calibration = Calibration()
    chance = random.Random(7)
    for _ in range(5):
        raw = int(tokens * chance.uniform(0.8, 1.2))
        calibration.report(*KEY, CountedPrompt(raw, 0, round(raw * factor)))
    assert factor == pytest.approx(calibration.factor(*KEY), rel=0.03)


@pytest.mark.parametrize("factor", [0.6, 1.4])
def test_framing_is_taken_along(factor: float) -> None:
    """A constant that the provider puts around each prompt spoils estimates by less than 3 per cent."""
    calibration = Calibration()
    after = [
        abs(calibration.report(*KEY, CountedPrompt(raw, 0, round(raw * factor) + 350)).error)
        for raw in range(4_000, 120_000, 2_000)
    ]
    assert max(after[5:]) < 0.03


def test_a_mixture_is_followed() -> None:
    """Prose at 1.05 gives way to code at 1.4 within a run: each prompt is estimated within 3 per cent, as it grows."""
    calibration = Calibration()
    prose, code = 12_000, 0
    found: list[float] = []
    for turn in range(60):
        if turn > 8:
            code += 1_500
        raw = prose + code
        found.append(abs(calibration.report(*KEY, CountedPrompt(raw, 0, round(1.05 * prose + 1.4 * code))).error))
        prose += 200
    assert percentile(found[5:], 0.95) < 0.03


@pytest.mark.parametrize("absurd", [0, 1, 40, 10_000, 30_000, 800_000, 2**31 - 1])
@pytest.mark.parametrize("place", [0, 1, 2, 5, 9])
def test_one_absurd_report_does_little(absurd: int, place: int) -> None:
    """Ten times the tokens, none, or the uncached ones alone: the factor stays within a band of the median."""
    pairs = [(100_000, 110_000)] * 10
    pairs[place] = (100_000, absurd)
    calibration = Calibration()
    before = reported(calibration, pairs[:place])
    after = reported(calibration, pairs[place : place + 1])
    assert before == pytest.approx(after, rel=2 * BAND + DEAD_BAND)
    assert 1.1 == pytest.approx(reported(calibration, pairs[place + 1 :] or [(100_000, 110_000)] * 3), rel=0.03)


def test_two_absurd_in_five_do_no_harm() -> None:
    """The median stands while three of five reports agree."""
    calibration = Calibration()
    reported(calibration, [(50_000, 60_000)] * 5)
    factor = reported(calibration, [(50_000, 150_000), (50_000, 140_000), (50_000, 60_000)])
    assert 1.2 == pytest.approx(factor, rel=DEAD_BAND)


def test_small_prompts_weigh_less() -> None:
    """Titles of a hundred tokens, doubled by framing, between prompts of a run leave the run's estimate alone."""
    calibration = Calibration()
    found = []
    for turn in range(40):
        if turn % 2:
            calibration.report(*KEY, CountedPrompt(120, 0, 300))
        else:
            found.append(abs(calibration.report(*KEY, CountedPrompt(60_000, 0, 66_000)).error))
    assert max(found[4:]) < 0.03


def test_the_factor_stands_still() -> None:
    """Ratios that wander by less than the dead band do not move it: each move would move the limit."""
    calibration = Calibration()
    chance = random.Random(3)
    factors = [reported(calibration, [(100_000, round(120_000 * chance.uniform(0.996, 1.004)))]) for _ in range(200)]
    assert 1 == len(set(factors[5:]))


def test_what_a_report_tells() -> None:
    """A report tells the factor before and after and the error of the estimate as it was reported."""
    calibration = Calibration()
    reported(calibration, [(1_000, 1_200)] * 5)
    correction = calibration.report(*KEY, CountedPrompt(10_000, 0, 10_000), estimated_with=Factors(1.0))
    assert (0.0, True, 6) == (correction.error, correction.used, correction.reports)
    assert 1.2 == pytest.approx(correction.factor_before)
    assert 0.2 == pytest.approx(
        calibration.report(*KEY, CountedPrompt(10_000, 0, 10_000), estimated_with=Factors(1.2)).error
    )
    assert not calibration.report(*KEY, CountedPrompt(10_000, 0, 90_000)).used


def test_callers_models_and_formats_are_apart() -> None:
    """A report for one caller, model and format moves no other's factor."""
    calibration = Calibration()
    reported(calibration, [(1_000, 1_300)] * 5)
    others = [("other", *KEY[1:]), (KEY[0], "other", KEY[2]), (*KEY[:2], "other")]
    assert [1.0, 1.0, 1.0] == [calibration.factor(*key) for key in others]


def test_keys_are_bounded() -> None:
    """A caller who makes up models forgets his own factors; with too many callers the idle ones' go."""
    reached: list[str] = []
    calibration = Calibration(100, reached.append)
    reported(calibration, [(1_000, 1_300)] * 5)
    for number in range(CALLER_KEYS + 10):
        calibration.report("flood", f"model-{number}", "openai_chat", CountedPrompt(1_000, 0, 1_200))
    assert CALLER_KEYS + 1 == len(calibration)
    assert ["calibration.factors"] * 10 == reached
    assert 1.3 == pytest.approx(calibration.factor(*KEY))
    for number in range(200):
        calibration.report(f"caller-{number}", "model", "openai_chat", CountedPrompt(1_000, 0, 1_200))
    assert (100, 1.0) == (len(calibration), calibration.factor(*KEY))
    assert 0 == calibration.reports("flood", "model-0", "openai_chat")
    assert 0 < calibration.kept_bytes <= 100 * 2_000


def test_asking_and_nonsense_keep_nothing() -> None:
    """Only a plausible report makes a key."""
    calibration = Calibration()
    calibration.factor(*KEY)
    calibration.report(*KEY, CountedPrompt(0, 0, 0))
    calibration.report(*KEY, CountedPrompt(10, 0, 10**9))
    assert 0 == len(calibration)


def test_reports_of_many_threads_are_all_taken() -> None:
    """Reports from many threads are all taken, and bounds hold."""
    calibration = Calibration(most_keys=50)

    def work(number: int) -> None:
        for turn in range(300):
            calibration.report(f"caller-{number}", f"model-{turn % 20}", "openai_chat", CountedPrompt(1_000, 0, 1_400))
            calibration.report(*KEY, CountedPrompt(1_000, 0, 1_400))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(calibration) <= 50
    assert 1.4 == pytest.approx(calibration.factor(*KEY), rel=0.03)


@given(st.lists(st.tuples(st.integers(-5, 2**31 - 1), st.integers(-5, 2**31 - 1)), max_size=30))
def test_any_reports_leave_a_factor_within_bounds(pairs: list[tuple[int, int]]) -> None:
    """Whatever is reported, the factor stays within its bounds."""
    assert LEAST_FACTOR <= reported(Calibration(), pairs) <= MOST_FACTOR


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 5)), min_size=1, max_size=12))
def test_the_weighted_median_is_the_median_of_repeats(points: list[tuple[int, int]]) -> None:
    """A value of weight n counts as n values: the slow twin writes them out."""
    written = sorted(float(value) for value, weight in points for _ in range(weight))
    middle = len(written) // 2
    slow = written[middle] if len(written) % 2 else (written[middle - 1] + written[middle]) / 2
    assert slow == weighted_median([(float(value), float(weight)) for value, weight in points])


@pytest.mark.parametrize("limit", [None, 40_000, 20_000])
def test_another_vocabulary_on_recorded_runs(limit: int | None, foreign: Callable[[int | None], list[Turn]]) -> None:
    """cl100k_base counts what o200k_base estimates: each turn is estimated from those before, within 3 per cent."""
    found = errors(foreign(limit))
    assert percentile(found.after, 0.95) < 0.03
    assert percentile(found.after, 0.95) < percentile(found.before, 0.95)
    assert percentile(found.after, 0.5) < 0.01


@pytest.fixture(scope="module")
def foreign() -> Callable[[int | None], list[Turn]]:
    """Recorded runs counted in cl100k_base, trimmed to a limit or whole."""
    return lambda limit: turns("cl100k_base", limit)
