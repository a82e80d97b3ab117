"""Sums of a list's beginnings, against the list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.trim.ledger.sums import Sums
from tests.steps import steps


@given(st.lists(st.integers(-50, 1_000), max_size=70), st.lists(st.tuples(st.integers(0, 69), st.integers(-9, 9))))
def test_against_a_list(values: list[int], changes: list[tuple[int, int]]) -> None:
    """Whatever was appended and changed, each sum is that of the list's beginning."""
    sums = Sums(values[:5])
    for value in values[5:]:
        sums.append(value)
    for index, change in changes:
        if index < len(values):
            values[index] += change
            sums.add(index, change)
    assert len(values) == len(sums)
    assert [sum(values[:index]) for index in range(len(values) + 1)] == [
        sums.before(index) for index in range(len(values) + 1)
    ]


def test_a_sum_takes_a_step_for_each_binary_digit() -> None:
    """A change and a sum take a step for each binary digit of the length."""
    short, long = Sums([1] * 255), Sums([1] * 65_535)

    def use(sums: Sums) -> None:
        sums.add(0, 1)
        sums.before(len(sums))

    assert steps(lambda: use(long)) <= 2 * steps(lambda: use(short))
