"""Originals that are stored in one go, against the slow twin: the same ones stored one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall import history as history_module
from prompt_sidecar.recall import stash as stash_module
from prompt_sidecar.recall.found import SearchLimits
from prompt_sidecar.recall.history import History
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.stash import Stash
from tests.recall.test_stash import TEXT, Clock, lines

AT_ONCE, WAITING = 5_000, 7_000
"""Small, so that a few originals of a few kilobytes pass them."""
IDS = [f"id{number}" for number in range(9)]
SIZES = [0, 300, 1_500, 3_000, AT_ONCE, 9_000, 20_001]
originals = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(SIZES)), max_size=12)


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> Iterator[None]:
    """Make the stash compress early and the history forget early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stash_module, "COMPRESS_AT_ONCE", AT_ONCE)
        patch.setattr(stash_module, "WAITING_BYTES", WAITING)
        patch.setattr(history_module, "RECORDED_ITEMS", 6)
        yield


@given(st.lists(st.tuples(st.sampled_from(["r", "s"]), originals, st.integers(0, 40)), max_size=5))
def test_in_one_go_as_one_by_one(steps: list[tuple[str, list[tuple[str, int]], int]]) -> None:
    """What is held, lost and counted, and each answer, whatever is large, known, too large or evicted on the way."""
    clock = Clock()
    fast, slow = (Stash(40_000, 20_000, 60.0, clock, run_entries=5, total_entries=8) for _ in range(2))
    for run, sizes, seconds in steps:
        clock.now += seconds
        put = [(stash_id, stash_id.encode() + lines(size), TEXT) for stash_id, size in sizes]
        assert [slow.put(run, "o", *original) for original in put] == fast.put_all(run, "o", put)
        for key in ("r", "s"):
            assert slow.figures(key) == fast.figures(key)
            assert slow.dead(key) == fast.dead(key)
            assert slow.peek(key, IDS) == fast.peek(key, IDS)
        assert slow.totals() == fast.totals()


@given(st.lists(st.lists(st.sampled_from(IDS), max_size=12), max_size=4))
def test_recorded_in_one_go_as_one_by_one(steps: list[list[str]]) -> None:
    """Which items are known, and by which number, whatever is known already or one too many."""
    fast, slow = (History(SearchLimits(), lambda _: {}) for _ in range(2))
    for ids in steps:
        items = [HistoryItem(name, Role.TOOL, ItemKind.RESULT, "read", name, 1, 1, len(name), TEXT) for name in ids]
        for item in items:
            slow.record(item)
        fast.record_all(items)
        assert slow.figures() == fast.figures()
        assert [slow.named(name) for name in IDS] == [fast.named(name) for name in IDS]
