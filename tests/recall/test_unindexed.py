"""A search that cannot wait for the index: it answers from what is indexed, and says what is not."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall import history as history_module
from prompt_sidecar.recall.found import SearchLimits, SearchOutcome, SearchQuery, SearchResult
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.search import search
from tests.recall.test_history import RUN, Recorder, no_check, text
from tests.recall.test_search import count, ids

ITEMS = 40
WORDS = "w7x3 w12x5 needle w30x11"


def never() -> bool:
    """There is time for everything."""
    return False


def at_once() -> bool:
    """There is no time at all."""
    return True


def ask(
    run: Recorder, query: SearchQuery | str, enough: Callable[[], bool] = at_once, *, last_iteration: int = ITEMS
) -> SearchResult:
    """Search a run, indexing a single step unless `enough` allows for more."""
    return search(
        run.history,
        SearchQuery(query) if isinstance(query, str) else query,
        SearchLimits(),
        last_iteration=last_iteration,
        count=count,
        nonce=map("{}".format, itertools.count(482_113)).__next__,
        check=no_check,
        enough=enough,
    )


class Elsewhere:
    """Originals of a run that are not in its stash, and what was fetched of them."""

    def __init__(self, run: Recorder) -> None:
        self.run = run
        self.kept: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.failures = 0
        """Fetches that fail from now on."""

    def item(self, number: int, content: str = "") -> HistoryItem:
        """An item that is there, one for each iteration."""
        raw = (content or text(number)).encode()
        self.kept[f"id{number}"] = raw
        return HistoryItem(
            f"id{number}", Role.TOOL, ItemKind.RESULT, "read", f"call_{number}", number, number, len(raw), "text/plain"
        )

    def fetch(self, stash_ids: Sequence[str]) -> None:
        """Bring them to the stash."""
        if self.failures:
            self.failures -= 1
            raise ConnectionError
        for stash_id in stash_ids:
            self.fetched.append(stash_id)
            if stash_id in self.kept:
                self.run.stash.put(RUN, "owner", stash_id, self.kept[stash_id], "text/plain")


def here() -> Recorder:
    """A run whose originals are all here."""
    run = Recorder()
    for number in range(1, ITEMS + 1):
        run.put(f"id{number}", text(number), number, "read", f"call_{number}")
    return run


def taken_over() -> tuple[Recorder, Elsewhere]:
    """The same run, whose originals are elsewhere."""
    run = Recorder()
    elsewhere = Elsewhere(run)
    run.history.record_elsewhere([elsewhere.item(number) for number in range(1, ITEMS + 1)], elsewhere.fetch)
    return run, elsewhere


def comparable(found: SearchResult) -> SearchResult:
    """What is found, without the nonce."""
    return replace(found, rendered="", rendered_tokens=0)


@pytest.mark.parametrize("make", [here, lambda: taken_over()[0]])
def test_each_search_gets_further_until_all_is_found(make: Callable[[], Recorder]) -> None:
    """A retry indexes a step more, and the last one answers as if all had been indexed at once."""
    run, twin = make(), here()
    expected = ask(twin, WORDS, never)
    left = []
    while True:
        found = ask(run, WORDS)
        left.append(found.not_indexed_items)
        if not found.not_indexed_items:
            break
        assert found.first_not_indexed_iteration == ITEMS + 1 - found.not_indexed_items
        assert ITEMS == found.last_not_indexed_iteration
        assert (1, ITEMS - found.not_indexed_items) == (found.first_iteration, found.last_iteration)
        assert all(snippet.item.iteration <= found.last_iteration + 1 for snippet in found.snippets)
    assert left == sorted(left, reverse=True)
    assert len(set(left)) > ITEMS // 2
    assert comparable(expected) == comparable(found)
    assert (0, 0) == (found.first_not_indexed_iteration, found.last_not_indexed_iteration)


def test_only_what_was_looked_at_is_reported_as_missing() -> None:
    """The answer names what was searched and what was not, and that the same search may find more."""
    run = here()
    found = ask(run, "w30x11")
    assert SearchOutcome.NOTHING_FOUND == found.outcome
    assert (
        "Nothing found so far; iteration 1 was searched. "
        "39 items of iterations 2-40 are not indexed yet: search again to search them too."
    ) == found.message
    assert found.message == found.rendered
    found = ask(run, "w1x3")
    assert (
        "1 of 1 matching item shown so far; iterations 1-2 were searched. "
        "38 items of iterations 3-40 are not indexed yet: search again to search them too."
    ) == found.message
    assert found.rendered.startswith(found.message)


def test_the_only_item_in_part() -> None:
    """Of an iteration that was searched in part nobody says that it was searched."""
    run = Recorder()
    run.put("long", text(1, 9_000), ITEMS)
    found = ask(run, SearchQuery("unheard", first_iteration=ITEMS))
    assert (
        "Nothing found so far; no iteration was searched as a whole. "
        "1 item of iteration 40 is not indexed yet: search again to search it too."
    ) == found.message
    assert (ITEMS, ITEMS - 1) == (found.first_iteration, found.last_iteration)


def test_filters_leave_out_what_waits() -> None:
    """Where all that the filters allow is indexed, the answer is final."""
    run = here()
    ask(run, "any")
    found = ask(run, SearchQuery("w1x3", last_iteration=1))
    assert (0, ["id1"]) == (found.not_indexed_items, ids(found))
    assert "not indexed" not in found.message
    nothing = ask(run, SearchQuery("unheard", last_iteration=2))
    assert "The same query will find nothing again" in nothing.message


def test_what_waits_in_the_middle() -> None:
    """Of the iterations before and after it the longer stretch is named."""
    run, elsewhere = Recorder(), Elsewhere(Recorder())
    elsewhere.run = run
    for number in (1, *range(10, ITEMS + 1)):
        run.put(f"id{number}", text(number), number)
    run.finish()
    run.history.record_elsewhere([elsewhere.item(number) for number in range(2, 10)], elsewhere.fetch)
    found = ask(run, "w30x11")
    assert ["id30"] == ids(found)
    assert (10, ITEMS) == (found.first_iteration, found.last_iteration)
    assert (8, 2, 9) == (
        found.not_indexed_items,
        found.first_not_indexed_iteration,
        found.last_not_indexed_iteration,
    )


def test_an_iteration_without_items_is_not_all_that_was_searched() -> None:
    """The newest iteration has nothing yet: to name it alone as searched would claim a search that was none."""
    run, _ = taken_over()
    found = ask(run, "w30x11", last_iteration=ITEMS + 1)
    assert found.message.startswith(
        "Nothing found so far; no iteration was searched as a whole. 40 items of iterations 1-40"
    )
    assert (1, 0) == (found.first_iteration, found.last_iteration)


def test_what_was_indexed_again_behind_a_search_was_not_searched() -> None:
    """The index is dropped, for want of memory, while a search looks, and another search makes it again."""
    run = here()
    run.finish()
    steps = itertools.count(1)

    def check() -> None:
        step = next(steps)
        if step == 2:  # before the first look at the index
            run.history.drop_index()
        elif step == 3:  # before the item that the query names is shown
            run.history.finish(no_check)

    found = search(
        run.history,
        SearchQuery("call_33 w1x3"),
        SearchLimits(),
        last_iteration=ITEMS,
        count=count,
        nonce=map("{}".format, itertools.count(482_113)).__next__,
        check=check,
    )
    assert (1, ["id33"]) == (found.matching_items, ids(found))
    assert (ITEMS, 1, ITEMS) == (
        found.not_indexed_items,
        found.first_not_indexed_iteration,
        found.last_not_indexed_iteration,
    )
    assert "search again" in found.message
    assert 2 == ask(run, "call_33 w1x3", never).matching_items


@pytest.mark.parametrize("query", ["id33", "what was call_33?"])
def test_an_id_finds_its_item_at_once(query: str) -> None:
    """However much waits: its original is fetched before all others, and shown."""
    run, elsewhere = taken_over()
    found = ask(run, query)
    assert ["id33"] == ids(found)
    assert text(33).startswith(found.snippets[0].text[:100])
    assert found.gone_items == 0
    assert found.not_indexed_items
    assert "id33" in elsewhere.fetched


def test_nothing_is_fetched_or_indexed_twice() -> None:
    """Searches, ids and the background share the work; each original is fetched once, in pieces of a bounded size."""
    run, elsewhere = taken_over()
    ask(run, "call_33")
    ask(run, "call_33")
    run.history.index_some(8_192)
    assert len(elsewhere.fetched) < ITEMS
    run.finish()
    assert sorted(elsewhere.kept) == sorted(elsewhere.fetched)
    twin = here()
    twin.finish()
    assert twin.history.figures() == run.history.figures()
    assert comparable(ask(here(), WORDS, never)) == comparable(ask(run, WORDS))


def test_a_slice_of_background_work_is_bounded() -> None:
    """It fetches a piece at most, and ends after it has fetched or indexed what it may."""
    run, elsewhere = taken_over()
    before = run.history.waiting_bytes
    assert run.history.index_some(8_192) >= history_module.FETCHED_BYTES // 2
    fetched = sum(len(elsewhere.kept[stash_id]) for stash_id in elsewhere.fetched)
    assert 0 < fetched <= history_module.FETCHED_BYTES
    assert before == run.history.waiting_bytes
    assert 8_192 <= run.history.index_some(8_192) < history_module.FETCHED_BYTES // 2
    assert before > run.history.waiting_bytes


def test_a_fetch_that_fails_is_tried_again() -> None:
    """What was indexed stays, and nothing counts as gone."""
    run, elsewhere = taken_over()
    ask(run, "w1x3")
    elsewhere.failures = 1
    with pytest.raises(ConnectionError):
        run.finish()
    assert ["id1"] == run.found("w1x3")
    run.finish()
    assert (0, [f"id{ITEMS}"]) == (run.history.waiting_bytes, run.found(f"w{ITEMS}x3"))


def test_what_nobody_has_is_forgotten() -> None:
    """An original that cannot be had is not recorded, so that a prompt that brings it is."""
    run, elsewhere = taken_over()
    raw = elsewhere.kept.pop("id5")
    run.finish()
    assert run.history.item("id5") is None
    assert SearchOutcome.NOTHING_FOUND == ask(run, "call_5").outcome
    run.put("id5", raw.decode(), 5)
    assert ["id5"] == ids(ask(run, "w5x3"))


def test_a_prompt_may_bring_what_is_elsewhere() -> None:
    """It is in the stash by then, and indexed in its turn."""
    run, _ = taken_over()
    run.put("id20", text(20), 20)
    run.finish()
    assert (ITEMS, ["id20"]) == (run.history.figures().items, run.found("w20x3"))


def test_dropped_and_full_while_it_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither memory pressure nor too many items lose what has yet to be fetched, nor fetch it again."""
    run, elsewhere = taken_over()
    run.history.index_some(8_192)
    run.history.drop_index()
    assert 0 == run.history.index_some()
    found = ask(run, "w30x11")
    assert ITEMS - 1 == found.not_indexed_items
    monkeypatch.setattr(history_module, "RECORDED_ITEMS", ITEMS)
    run.put("new", "new words", ITEMS)
    run.finish()
    assert ITEMS == run.history.figures().items
    assert sorted(elsewhere.kept) == sorted(elsewhere.fetched)
    assert (["id30"], []) == (run.found("w30x11"), run.found("w1x3"))


def test_many_at_once_share_the_work() -> None:
    """Searches and the background in threads of their own: each original is fetched once, and all is found."""
    run, elsewhere = taken_over()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while ask(run, WORDS).not_indexed_items:
                ask(run, "call_33")
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=work) for work in (look, look, look, run.finish)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [] == failures
    assert sorted(elsewhere.kept) == sorted(elsewhere.fetched)
    assert comparable(ask(here(), WORDS, never)) == comparable(ask(run, WORDS))
