"""Percentiles, ratios, shares and tables: small numbers by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.harness.figures import Share, Spread, Z, best_of, milliseconds, percentile, ratio, times, wilson

SECONDS = st.floats(0, 1e6)


def test_a_percentile_is_the_value_at_its_rank() -> None:
    """Nearest rank: of a hundred values the ninety-ninth exceeds all but one."""
    values = [float(value) for value in range(100, 0, -1)]

    assert [1.0, 50.0, 99.0, 100.0] == [percentile(values, share) for share in (0, 0.5, 0.99, 1)]


@given(st.lists(SECONDS, min_size=1), st.floats(0, 1))
def test_a_percentile_is_the_least_that_covers_its_share(values: list[float], share: float) -> None:
    """The slow twin counts: enough values are at most the percentile, and too few are at most any lesser value."""
    found = percentile(values, share)
    needed = share * len(values)

    assert needed <= sum(value <= found for value in values)
    assert [] == [
        lesser for lesser in values if lesser < found and sum(value <= lesser for value in values) >= needed > 0
    ]


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 1.1), ([1.0], -0.1)])
def test_a_percentile_of_nothing_is_refused(values: list[float], share: float) -> None:
    """There is no middle of no calls, and no share past the whole."""
    with pytest.raises(ValueError, match="no percentile"):
        percentile(values, share)


def test_the_best_is_taken_call_by_call() -> None:
    """A slow round spoils no call that was fast in another."""
    assert [1.0, 2.0] == best_of([[1.0, 9.0], [5.0, 2.0]])


def test_rounds_of_unequal_length_are_refused() -> None:
    """A round that lost calls would shift the others."""
    with pytest.raises(ValueError, match="shorter"):
        best_of([[1.0, 2.0], [1.0]])


def test_a_spread_is_compared_place_by_place() -> None:
    """The middle with the middle, the far end with the far end."""
    assert Spread(2.0, 0.5) == Spread(4.0, 3.0).over(Spread(2.0, 6.0))


def test_a_ratio_to_nothing_is_infinite() -> None:
    """A contender that took no time ends no run of the bench."""
    assert math.inf == ratio(1.0, 0.0)


def test_figures_are_written_for_people() -> None:
    """Milliseconds with their thousandths where they tell something; a ratio says whether it meets its target."""
    assert ["1.234", "1,234"] == [milliseconds(0.001234), milliseconds(1.2341)]
    assert ["2.00x", "2.00x (within 2.5x)", "3.00x (MISSES 2.5x)"] == [times(2.0), times(2.0, 2.5), times(3.0, 2.5)]


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        # R 4: prop.test(x, n, correct = FALSE)$conf.int
        (5, 10, 0.2365931, 0.7634069),
        (8, 10, 0.4901625, 0.9433178),
        (0, 10, 0.0, 0.2775328),
        (10, 10, 0.7224672, 1.0),
        (81, 263, 0.2552889, 0.3662154),  # Newcombe 1998, table I, method 3: 0.2553 to 0.3662
    ],
)
def test_known_intervals(hits: int, of: int, low: float, high: float) -> None:
    """Published intervals come out."""
    assert pytest.approx((low, high), abs=1e-4) == wilson(hits, of)


@given(st.integers(1, 500).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_ends_solve_the_score_equation(case: tuple[int, int]) -> None:
    """Each end is a share p that lies 1.96 standard errors of p from what was seen, unless it is 0 or 1."""
    hits, of = case
    low, high = wilson(hits, of)
    assert low <= hits / of <= high
    for end in {low, high} - {0.0, 1.0}:
        assert math.isclose(Z, abs(hits / of - end) / math.sqrt(end * (1 - end) / of), rel_tol=1e-6)


def test_nothing_seen() -> None:
    """Without a try nothing is known, and nothing is shown."""
    assert (0.0, 1.0) == wilson(0, 0)
    assert ("–", "–") == (Share(0, 0).short, Share(0, 0).full)
    assert {"hits": 0, "of": 0, "share": None, "low": None, "high": None} == Share(0, 0).facts()


@pytest.mark.parametrize(("hits", "of"), [(2, 1), (-1, 1), (0, -1)])
def test_no_share(hits: int, of: int) -> None:
    """More hits than tries are a fault of the caller."""
    with pytest.raises(ValueError, match=f"{hits} hits of {of}"):
        wilson(hits, of)


def test_a_share_has_its_interval() -> None:
    """A share is shown with its interval."""
    assert "3/4 75% (30% to 95%)" == Share.among([True, True, False, True]).full
