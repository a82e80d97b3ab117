"""The floor's dynamic programme against trying everything, on runs small enough for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.peers.accounting import allowed, floor, shape_of
from tests.oracle.baselines import Control, Entry, Sized, cost

runs = st.tuples(
    st.integers(0, 30),
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.integers(20, 200),
)
"""Tokens of the head and of each group, and the budget."""


def _prompt(head: int, groups: Sequence[int], kept: Sequence[int]) -> list[Entry]:
    return [(b"head", head), *((b"%d" % place, groups[place]) for place in kept)]


def _old_groups(must: int) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(range(must), size) for size in range(must + 1))


@given(runs)
def test_it_is_the_least_over_all_cuts(run: tuple[int, list[int], int]) -> None:
    """Every sequence of allowed cuts is tried, and the ruler is that of the bench."""
    head, groups, budget = run
    sums = [0, *accumulate(groups)]
    counts = range(len(groups) + 1)
    ways = product(*(allowed(head, sums, count, budget) for count in counts))
    tried = [
        cost([_prompt(head, groups, range(cut, count)) for cut, count in zip(cuts, counts, strict=True)])
        for cuts in ways
    ]
    assert floor(head, groups, counts, budget) == pytest.approx(min(tried))


@given(runs)
def test_keeping_older_groups_never_pays(run: tuple[int, list[int], int]) -> None:
    """Nor does any way to keep some of the older groups and not others: cuts are enough."""
    head, groups, budget = run
    sums = [0, *accumulate(groups)]
    least: dict[tuple[int, ...], float] = {}
    for count in range(len(groups) + 1):
        must = allowed(head, sums, count, budget)[-1]
        fresh: dict[tuple[int, ...], float] = {}
        for old in _old_groups(must):
            kept = (*old, *range(must, count))
            if sum(groups[place] for place in kept) + head > budget and old:
                continue
            prompt = _prompt(head, groups, kept)
            before = least or {(): 0.0}
            fresh[kept] = min(
                spent + _last(_prompt(head, groups, previous) if least else [], prompt)
                for previous, spent in before.items()
            )
        least = fresh
    assert floor(head, groups, range(len(groups) + 1), budget) <= min(least.values()) + 1e-6


def _last(previous: list[Entry], prompt: list[Entry]) -> float:
    return cost([previous, prompt]) - cost([previous])


@given(runs)
def test_the_control_is_never_below_it(run: tuple[int, list[int], int]) -> None:
    """The control is one of the strategies that the floor is the least of."""
    head, groups, budget = run
    prompts = [
        [Sized((b"head", head), opens=False)]
        + [Sized((b"%d" % place, groups[place]), opens=True) for place in range(count)]
        for count in range(len(groups) + 1)
    ]
    control = Control(budget)
    spent = cost([control.prompt(prompt) for prompt in prompts])
    assert floor(*shape_of(prompts), budget) <= spent + 1e-6


def test_by_hand() -> None:
    """A head of 10, groups of 10, a budget of 60: full at the sixth group, and half of it holds two."""
    grows = [12.5, 1 + 12.5, 2 + 12.5, 3 + 12.5, 4 + 12.5, 5 + 12.5]
    cut = 1 + 25.0  # the head is kept, two groups are written, and the prompt has 30 tokens
    forced = sum(grows) + cut
    # Who knows the end cuts at the fifth group in place of the sixth, and is at 30 tokens when that comes.
    early = sum(grows[:5]) + cut + 3 + 12.5
    assert early < forced
    assert early == pytest.approx(floor(10, [10] * 6, range(7), 60))


def test_a_group_over_the_budget_stays() -> None:
    """The newest group is never dropped, whatever it takes."""
    assert 1.25 * 10 + 0.1 * 10 + 1.25 * 500 == pytest.approx(floor(10, [500], range(2), 60))


def test_no_prompt_costs_nothing() -> None:
    """A run without prompts has the floor 0."""
    assert floor(10, [], [], 60) == 0
