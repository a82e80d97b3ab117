"""A query is made of a panel's text as Grafana makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.observe.__main__ import _arguments, last_label_fits
from tests.lab.observe.dashboards import Moment, step_for, substitute


@pytest.mark.parametrize("written", ["$job", "${job}", "${job:regex}", "[[job]]"])
def test_every_spelling_of_a_variable_is_replaced(written: str) -> None:
    """Grafana knows four."""
    assert 'up{job=~"a|b"}' == substitute(f'up{{job=~"{written}"}}', {"job": "a|b"})


def test_a_name_that_no_variable_has_stays() -> None:
    """It is then seen in the error of Prometheus, not lost."""
    assert "rate(x[$nothing])" == substitute("rate(x[$nothing])", {"job": "a"})


def test_a_rate_spans_four_scrapes_at_least() -> None:
    """Points that stand further apart than that widen it by a scrape."""
    assert ("60s", "75s") == tuple(Moment(0, 600, step, 15).builtins()["__rate_interval"] for step in (1, 60))


def test_points_are_no_denser_than_scrapes() -> None:
    """A short range has a point a scrape, a long one as many as fit."""
    assert (15, 36) == (step_for(60, 100, 15), step_for(3_600, 100, 15))


@pytest.mark.parametrize("now", [1_000_000.0, 1_000_013.4, 1_000_013.6, 1_000_029.9])
def test_a_time_axis_does_not_end_at_a_tick(now: float) -> None:
    """Its last label would be clipped; and what is shown is not older than half a minute."""
    end = last_label_fits(now)

    assert 0 <= now - end < 30
    assert all(3 <= end % step for step in (5, 10, 15, 30, 60))


def test_a_relative_folder_is_that_of_the_caller() -> None:
    """The browser that writes the pictures is started in a folder of its own."""
    assert Path.cwd() / "pictures" == _arguments(["--out", "pictures"]).out
