"""Large old results are clipped before smaller ones, and of the newest iterations as many stay as fit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.trim.entries import LARGE, Action, Entry
from prompt_sidecar.trim.oldest import FEWEST_NEWEST, newest_that_fit
from prompt_sidecar.trim.policy import Policy
from prompt_sidecar.trim.presets import preset
from tests.trim.histories import Fold, decisions, evaluated, few, histories, limits, opened, plain

LIMIT = 16_000
SMALL, HUGE = 300, 2_000
NONE_HELD = Policy().override({"fit_keep_oldest": 0.0})


def history(sizes: Sequence[int]) -> list[plain]:
    """A task, then a call with a result of so many tokens, four bytes each, for each size."""
    made = [plain(Role.USER, ((ItemKind.TEXT, "Find the bug."),))]
    for number, size in enumerate(sizes):
        call = (f"c{number}",)
        made += [
            plain(Role.ASSISTANT, ((ItemKind.ARGUMENTS, '{"path": "a"}'),), calls=call),
            plain(Role.TOOL, ((ItemKind.RESULT, f"{number:04d}" * size),), answers=call),
        ]
    return made


def results(fold: Fold) -> list[Entry]:
    """The entries of results, by iteration."""
    return [entry for record in fold.ledger.records for entry in record.entries if entry.kind is ItemKind.RESULT]


MIXED = [*[SMALL] * 12, *[HUGE, SMALL, SMALL] * 5, SMALL, SMALL, SMALL]
"""Small results first, then some large ones among small ones: nearly all of the limit."""


def test_large_results_go_before_small_ones() -> None:
    """However much older those are; of them none goes that need not."""
    policy = NONE_HELD.override({"fit_low": 0.6})
    fold = evaluated(history(MIXED), LIMIT, policy)
    assert 1 == fold.ledger.registry.batches
    actions = {
        size: [entry.action for entry in results(fold) if entry.full_tokens // size == 1] for size in (SMALL, HUGE)
    }
    assert [Action.CLIPPED, Action.CLIPPED] == actions[HUGE][:2]
    assert None is actions[HUGE][-1]
    assert {None} == set(actions[SMALL])


def test_one_that_is_not_large_waits_for_its_turn() -> None:
    """At `LARGE` tokens results are clipped oldest first, as they come."""
    sizes = [SMALL if size == SMALL else LARGE - 1 for size in MIXED] * 2
    fold = evaluated(history(sizes), LIMIT, NONE_HELD)
    left = [entry.action is None for entry in results(fold)]
    assert fold.ledger.registry.batches
    assert sorted(left) == left


@pytest.mark.parametrize("name", ["lean", "fit_only", "cap_only"])
def test_other_presets_know_no_order_by_size(name: str) -> None:
    """Their steps are as they were: nothing passes along the large results."""
    fold = evaluated(history(MIXED * 2), LIMIT, preset(name))
    assert 10 == len(fold.ledger.queues.large.entries)
    assert 0 == fold.ledger.queues.large.done


def test_large_results_among_the_oldest_stay() -> None:
    """What is kept at the beginning is kept whatever its size; once it is let go, it goes too."""
    policy = Policy().override({"fit_keep_oldest": 0.3})
    fold = evaluated(history([HUGE, *[SMALL] * 60]), LIMIT, policy)
    assert fold.ledger.registry.batches
    assert fold.ledger.queues.held > 0
    assert results(fold)[0].action is None
    fold.limit = 2_000
    fold.evaluate()
    assert fold.ledger.queues.held == 0
    assert results(fold)[0].action is Action.CLIPPED or fold.ledger.records[2].dropped


@few
@given(histories(), limits)
def test_a_process_that_takes_over_goes_on_alike(messages: list[plain], limit: int) -> None:
    """From a revision on: what has been passed along the queue of large results is no state of its own."""
    half = len(messages) // 2
    one = Fold(messages, limit)
    one.take(half)
    other = Fold(messages, limit)
    other.ledger = opened(one, one.fresh()[:half])
    if half:
        one.take()
        other.take()
        assert decisions(one.ledger) == decisions(other.ledger)


@pytest.mark.parametrize("most", [1, 2, 3, 10])
@pytest.mark.parametrize("room", [-5, 0, 500, 1_000, 2_000, 10**6])
def test_newest_that_fit(most: int, room: int) -> None:
    """By a plain sum from the end; at least two, and never more than the policy keeps."""
    fold = Fold(history([400] * 8), 10**9)
    fold.take()
    sums = [
        sum(record.tokens for record in fold.ledger.records if record.group >= 8 - number) for number in range(1, 9)
    ]
    fit = sum(taken <= room for taken in sums)
    expected = most if fit >= min(most, 8) else min(most, max(fit, FEWEST_NEWEST))
    assert expected == newest_that_fit(fold.ledger, most, room)


def test_in_a_small_window_a_cut_reaches_its_mark() -> None:
    """Three iterations that take most of the limit are not all kept, two are; so cuts are fewer than calls."""
    few_tokens, size = 3_000, 600
    fold = Fold(history([size] * 40), few_tokens, NONE_HELD)
    points = []
    for upto in range(3, len(fold.messages) + 1, 2):
        before = fold.ledger.registry.batches
        fold.take(upto)
        if fold.ledger.registry.batches > before:
            points.append(upto)
            assert fold.used() <= NONE_HELD.fit_low * few_tokens + size
            assert [None, None] == [entry.action for entry in results(fold)[-2:]]
    assert len(points) <= 40 / 2
