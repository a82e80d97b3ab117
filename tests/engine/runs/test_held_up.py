"""Indexing between calls, where the originals of a run cannot be fetched for a while."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prompt_sidecar.engine.runs.pace import Lane, Pace
from prompt_sidecar.engine.runs.run import Run
from prompt_sidecar.engine.runs.table import RunTable
from prompt_sidecar.errors import StoreUnavailable
from prompt_sidecar.facts.recall_calls import SearchCall
from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.item import HistoryItem
from tests.engine.runs.making import OPENAI_CHAT, Engine, send
from tests.promises.engine import CALLER, Clock


class Archive:
    """Where the originals of a run are; it may be down."""

    def __init__(self, table: RunTable, run: Run) -> None:
        self.table, self.run = table, run
        self.down = False
        self.asked = 0

    def fetch(self, stash_ids: Sequence[str]) -> None:
        """Bring the originals to the stash."""
        self.asked += 1
        if self.down:
            raise StoreUnavailable("it is down")
        self.table.stash.put_all(self.run.stash_key, CALLER, [(each, b"elsewhere", "text/plain") for each in stash_ids])


def another(engine: Engine, run_id: str) -> Archive:
    """A run that is indexed so far."""
    send(engine, OPENAI_CHAT, 1, run_id=run_id)
    while engine.runs.work_off():
        pass
    table = engine.runs.table
    run = table.known(CALLER, run_id)
    assert run is not None
    return Archive(table, run)


def elsewhere(archive: Archive) -> None:
    """Record an item of the run whose original is in the archive."""
    facts = HistoryItem(f"elsewhere{archive.asked}", Role.TOOL, ItemKind.RESULT, "read", "", 1, 1, 9, "text/plain")
    archive.run.history.record_elsewhere([facts], archive.fetch)
    archive.table.index_later(archive.run)


def engines() -> tuple[Engine, Run, Run, Archive]:
    """Two runs; originals of the first are elsewhere, and those of the second wait to be indexed."""
    engine = Engine(limit=100_000, run_id="b")
    archive = another(engine, "a")
    elsewhere(archive)
    send(engine, OPENAI_CHAT, 3)
    second = archive.table.known(CALLER, "b")
    assert second is not None
    return engine, archive.run, second, archive


def test_other_runs_are_not_held_up() -> None:
    """Of the others all is indexed, the thread comes to rest, and the next slice tries again."""
    engine, first, second, archive = engines()
    archive.down = True
    while engine.runs.work_off():
        pass
    assert (9, 0) == (first.history.waiting_bytes, second.history.waiting_bytes)
    archive.down = False
    while engine.runs.work_off():
        pass
    assert 0 == first.history.waiting_bytes


def test_a_slice_tries_one_run_that_is_held_up() -> None:
    """However many are: otherwise what a slice does beside its work would grow with them."""
    engine, _, second, archive = engines()
    while engine.runs.work_off():
        pass
    archives = [archive, *(another(engine, f"other-{number}") for number in range(30))]
    for one in archives:
        one.down = True
        elsewhere(one)
    assert 0 == engine.runs.work_off()
    send(engine, OPENAI_CHAT, 60)
    before = sum(one.asked for one in archives)
    slices = 1  # the last one finds nothing to do
    while engine.runs.work_off():
        slices += 1
    assert slices > 10
    assert sum(one.asked for one in archives) - before <= slices
    assert 0 == second.history.waiting_bytes
    for one in archives:
        one.down = False
    while engine.runs.work_off():
        pass
    assert {0} == {one.run.history.waiting_bytes for one in archives}


def test_nothing_is_fetched_for_a_run_that_was_forgotten() -> None:
    """Its originals would stay in the stash, and nobody would ask for them."""
    engine, first, _, archive = engines()
    engine.runs.end(CALLER, "a")
    while engine.runs.work_off():
        pass
    assert (0, 9) == (archive.asked, first.history.waiting_bytes)


def test_a_search_that_must_end_leaves_the_rest_to_the_background() -> None:
    """A deadline that passes in the middle keeps nothing from being indexed later."""
    engine, first, _, _ = engines()
    while engine.runs.work_off():
        pass
    first.forget_caches()
    assert 0 == engine.runs.work_off()

    def passed() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        engine.runs.recalling.search(SearchCall(CALLER, "a", SearchQuery("elsewhere")), passed)
    while engine.runs.work_off():
        pass
    assert 0 == first.history.waiting_bytes


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1.0, 0.25), (0.0, 0.0), (-3.0, 0.0), (10.0, 0.5), (float("inf"), 0.5)]
)
def test_a_part_of_a_call_has_its_share(seconds: float, expected: float) -> None:
    """A quarter of what the caller still waits, and no more than the most."""
    clock = Clock()
    enough = Pace(lambda: None, Lane(clock), seconds=seconds).spent(4, 0.5)
    if expected:
        clock.now += expected - 0.01
        assert not enough()
        clock.now += 0.02
    assert enough()
