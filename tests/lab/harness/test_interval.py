"""The interval agrees with what others compute, and holds what it says it holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.harness.figures import Share, Z, wilson


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
