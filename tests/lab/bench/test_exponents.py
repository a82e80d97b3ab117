"""How growth is measured: a server's processor time, from outside, as an exponent."""

from __future__ import annotations

import os
import time

import pytest

from tests.lab.bench.exponents import RARE, Grown, grown, processor, with_rare
from tests.lab.harness.prompts import run


@pytest.mark.parametrize(
    ("ten", "exponent", "text"), [(2.0, 0.0, "0.00"), (20.0, 1.0, "1.00"), (30.0, 1.18, "1.18 (above)")]
)
def test_an_exponent_of_ten_times_the_size(ten: float, exponent: float, text: str) -> None:
    """One that has to be explained says so."""
    found = Grown(2.0, ten)

    assert abs(found.exponent - exponent) < 0.01
    assert text == found.cells[2]


def test_the_clock_of_a_process_is_its_processor_time() -> None:
    """Seen from outside as from inside."""
    assert abs(processor(os.getpid()) - time.process_time()) < 0.01


def test_a_rare_word_is_there_once() -> None:
    """In each prompt of the run, behind its beginning."""
    made = with_rare(run(3, 4, 10_000))

    assert [1] * len(made) == [body.count(RARE.encode()) for body in made.bodies()]


def test_each_kind_of_request_is_answered_by_both_servers() -> None:
    """Runs are few: what is tried is that every request is one that the server takes."""
    prompts = with_rare(run(3, 2, 5_000))
    found = grown(((prompts, 1), (prompts, 3)), 1, 1)

    assert 8 == len(found)
    assert all(each.one > 0 < each.ten for each in found.values())
