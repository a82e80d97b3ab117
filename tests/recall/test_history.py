"""The history: what is recorded is found, in whatever order threads, expiry and a full index come upon it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall import history as history_module
from prompt_sidecar.recall.counts import EventCounts
from prompt_sidecar.recall.found import SearchLimits, SearchQuery
from prompt_sidecar.recall.history import History
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.stash import Stash
from tests.recall.test_stash import Clock

ALL = SearchQuery("any")
RUN = "run"


def no_check() -> None:
    """No deadline."""


class Recorder:
    """A run's history next to a real stash whose clock is stepped. Everything lives for 60 seconds."""

    def __init__(self, limits: SearchLimits | None = None, *, run_bytes: int = 100_000_000) -> None:
        self.clock = Clock()
        self.stash = Stash(1_000_000_000, run_bytes, 60.0, self.clock)
        self.reads = 0
        self.bounds: EventCounts[str] = EventCounts()
        self.history = History(limits or SearchLimits(), self.read, lambda ids: self.stash.alive(RUN, ids), self.bounds)

    def read(self, stash_ids: Sequence[str]) -> Mapping[str, bytes]:
        """What the history reads, counted."""
        self.reads += len(stash_ids)
        return self.stash.peek(RUN, stash_ids)

    def put(  # noqa: PLR0917 - read at the call as a sentence
        self,
        stash_id: str,
        text: str,
        iteration: int = 1,
        tool: str = "read_file",
        call_id: str = "",
        role: Role = Role.TOOL,
        content_type: str = "text/plain",
    ) -> HistoryItem:
        """Store a text and record it."""
        raw = text.encode()
        self.stash.put(RUN, "owner", stash_id, raw, content_type)
        kind = ItemKind.RESULT if role is Role.TOOL else ItemKind.TEXT
        item = HistoryItem(stash_id, role, kind, tool, call_id, iteration, iteration, len(raw), content_type)
        self.history.record(item)
        return item

    def found(self, term: str, query: SearchQuery = ALL) -> list[str]:
        """Ids of the items that hold a term, best first, by the index as it is."""
        best = self.history.best_items([term], 1_000, query).best
        hits = best.hits
        assert best.total == len(hits)
        items = self.history.at([hit.item for hit in hits])
        return [items[hit.item].stash_id for hit in hits]

    def finish(self) -> None:
        """Index all that waits."""
        while self.history.index_some():
            pass


def text(number: int, words: int = 300) -> str:
    """A text of its own words, some 8 bytes each, ten on a line."""
    return "\n".join(" ".join(f"w{number}x{word}" for word in range(at, at + 10)) for at in range(0, words, 10))


def test_what_is_recorded_is_indexed_later() -> None:
    """Recording reads nothing; the text waits until somebody indexes it, a slice at a time."""
    run = Recorder()
    item = run.put("a", text(1, 3_000))
    assert (0, item.size, 0) == (run.reads, run.history.waiting_bytes, run.history.figures().passages)
    first = run.history.index_some(1)
    assert 0 < first < item.size
    assert item.size - first == run.history.waiting_bytes
    rest = run.history.index_some(1_000_000)
    assert (item.size, 0, 0) == (first + rest, run.history.waiting_bytes, run.history.index_some())
    assert ["a"] == run.found("w1x2999")
    figures = run.history.figures()
    assert (1, 0, 1) == (figures.items, figures.waiting_bytes, figures.first_iteration)
    assert figures.passages > 20
    assert figures.index_bytes > 0


def test_a_known_id_changes_nothing() -> None:
    """A retry, or the same item on an abandoned branch, is recorded once, as it was first seen."""
    run = Recorder()
    first = run.put("a", "needle", 3)
    run.put("a", "needle", 5)
    assert first == run.history.item("a")
    assert 6 == run.history.waiting_bytes
    run.finish()
    run.put("a", "needle", 7)
    assert (0, 1, ["a"]) == (run.history.waiting_bytes, run.history.figures().passages, run.found("needl"))
    assert run.history.item("b") is None


def test_recorded_again_it_is_indexed_anew() -> None:
    """What was stored again in another spelling is found by that, and by the old one no more; other facts stay."""
    run = Recorder()
    run.put("a", "old words", 2, call_id="call_1")
    run.put("b", "old things", 3)
    run.finish()
    run.clock.now = 60
    run.stash.put(RUN, "owner", "a", b"rather new words here", "text/plain")
    run.history.record_again("a")
    run.history.record_again("unknown")
    run.finish()
    assert (["b"], ["a"]) == (run.found("old"), run.found("new"))
    item = run.history.item("a")
    assert item is not None
    assert (2, "call_1", 21) == (item.iteration, item.call_id, item.size)
    assert [item] == list(run.history.at(run.history.named("call_1")).values())


def test_recorded_again_before_it_was_indexed() -> None:
    """An item that still waits, is being indexed, or was passed over as gone, is found once, by its present text."""
    run = Recorder()
    run.put("waits", "alpha")
    run.history.record_again("waits")
    assert 5 == run.history.waiting_bytes
    run.put("half", text(1, 3_000))
    run.history.index_some(100)
    run.history.record_again("half")
    run.put("gone", "beta")
    run.clock.now = 60
    run.stash.put(RUN, "owner", "half", b"gamma", "text/plain")
    run.finish()
    assert ([], []) == (run.found("beta"), run.found("w1x1"))
    run.stash.put(RUN, "owner", "gone", b"beta again", "text/plain")
    run.history.record_again("gone")
    run.finish()
    assert (["gone"], ["half"], []) == (run.found("beta"), run.found("gamma"), run.found("w1x1"))
    assert 0 == run.history.waiting_bytes


def test_items_whose_original_is_gone_are_passed_over() -> None:
    """Evicted or expired before its turn, an item costs nothing and holds up no other."""
    run = Recorder(run_bytes=3_000)
    run.put("evicted", "x" * 900)
    run.put("kept", "needle" + " y" * 300)
    run.put("large", "z" * 2_000)
    run.finish()
    assert (["kept"], 0) == (run.found("needl"), run.history.waiting_bytes)
    assert run.history.figures().items == 3


def test_a_search_finishes_what_was_queued_before_it() -> None:
    """Indexing goes in steps with a look at the deadline between them; what was done before it passed stays done."""
    run = Recorder()
    for number in range(5):
        run.put(f"{number}", text(number, 3_000))
    waiting = run.history.waiting_bytes
    checks: list[int] = []

    def deadline() -> None:
        checks.append(run.history.waiting_bytes)
        if len(checks) == 5:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        run.history.finish(deadline)
    assert 0 < run.history.waiting_bytes < waiting
    assert checks == sorted(checks, reverse=True)
    run.history.finish(no_check)
    assert ["4"] == run.found("w4x2999")


def test_a_search_does_not_chase_what_comes_meanwhile() -> None:
    """A run that records faster than it is indexed cannot hold a search for ever."""
    run = Recorder()
    run.put("first", "needle")
    numbers = iter(range(10_000))

    def record_more() -> None:
        run.put(f"more {next(numbers)}", text(0, 100))

    run.history.finish(record_more)
    assert 3 > next(numbers)


def test_dropped_postings_come_back_with_the_next_search() -> None:
    """Under memory pressure the index goes and nothing makes it again until somebody searches."""
    run = Recorder()
    for number in range(4):
        run.put(f"{number}", text(number))
    run.history.index_some(3_000)
    size = run.history.waiting_bytes
    run.history.drop_index()
    assert (0, 0) == (run.history.figures().passages, run.history.index_some())
    assert size < run.history.waiting_bytes
    run.put("later", "needle")
    assert 0 == run.history.index_some()
    run.history.finish(no_check)
    assert (["3"], ["later"], 0) == (run.found("w3x7"), run.found("needl"), run.history.waiting_bytes)


def test_a_full_index_keeps_the_newest_iterations() -> None:
    """Past its bound the index holds the newer part, says from which iteration on, and stays within the bound."""
    limits = SearchLimits(index_bytes=200_000)
    run = Recorder(limits)
    for number in range(1, 101):
        run.put(f"{number}", text(number), number)
        run.finish()
        figures = run.history.figures()
        assert figures.index_bytes <= 200_000
        assert all([f"{at}"] == run.found(f"w{at}x5") for at in range(figures.first_iteration, number + 1))
        assert all([] == run.found(f"w{at}x5") for at in range(1, figures.first_iteration))
    assert 25 < figures.first_iteration < 100
    run.history.record_again("1")
    run.finish()
    assert [] == run.found("w1x5")


def test_a_full_index_keeps_newer_iterations_whatever_the_order() -> None:
    """What was recorded late but belongs to an early iteration goes first; a part of an iteration is not claimed."""
    run = Recorder(SearchLimits(index_bytes=100_000))
    for number in range(40):
        run.put(f"{number}", text(number), 40 - number // 2)
    run.finish()
    first = run.history.first_iteration
    covered = [number for number in range(40) if run.found(f"w{number}x5")]
    assert 1 < first <= 40
    assert {number for number in range(40) if 40 - number // 2 >= first} <= set(covered)


def test_one_item_cannot_fill_the_index() -> None:
    """A huge item of words of its own is indexed up to its share: its start is found, and the others are."""
    run = Recorder(SearchLimits(index_bytes=200_000))
    run.put("before", "needle", 1)
    run.put("huge", text(1, 60_000), 2)
    run.put("after", "thread", 3)
    run.finish()
    assert run.history.figures().index_bytes <= 200_000
    assert (["before"], ["huge"], [], ["after"]) == tuple(map(run.found, ("needl", "w1x7", "w1x59999", "thread")))


@pytest.mark.parametrize("bound", [0, 1, 3_000])
def test_a_bound_too_small_for_anything_ends(bound: int) -> None:
    """A senseless bound makes search useless, not endless."""
    run = Recorder(SearchLimits(index_bytes=bound))
    for number in range(10):
        run.put(f"{number}", text(number), number + 1)
    run.finish()
    assert 0 == run.history.waiting_bytes


def test_the_oldest_of_too_many_items_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is bounded: past it the oldest item is known by no id and found by no word."""
    monkeypatch.setattr(history_module, "RECORDED_ITEMS", 3)
    run = Recorder()
    for number in range(5):
        run.put(f"{number}", f"word{number} same", call_id="again")
        if number != 3:
            run.finish()
    run.finish()
    assert ["4", "3", "2"] == run.found("same")
    assert (3, None) == (run.history.figures().items, run.history.item("1"))
    assert 3 == len(run.history.named("again"))
    assert 2 == run.bounds.read()["limits.recorded_items"]
    run.put("0", "word0 same")
    run.finish()
    assert ["0", "4", "3"] == run.found("same")


def test_named_finds_ids_and_call_ids() -> None:
    """A stash id names its item, a call id all of its items, the newest first; the empty call id names none."""
    run = Recorder()
    items = [run.put(f"{number}", "x", number + 1, call_id="call" if number else "") for number in range(3)]
    named = {name: list(run.history.at(run.history.named(name)).values()) for name in ("0", "call", "", "none")}
    assert {"0": items[:1], "call": [items[2], items[1]], "": [], "none": []} == named


def test_each_filter_selects_alone_and_together() -> None:
    """Role, tool, iterations and ids each select, and all of them together; `other` is every name that is not plain."""
    run = Recorder()
    run.put("user", "same", 1, tool="", role=Role.USER)
    run.put("read", "same", 2)
    run.put("odd", "same", 3, tool="ignore all that; rm")
    run.put("ls", "same", 4, tool="ls", role=Role.ASSISTANT)
    run.finish()
    queries = {
        "roles": SearchQuery("", roles=frozenset({Role.USER, Role.ASSISTANT})),
        "tools": SearchQuery("", tools=frozenset({"ls", "read_file", "unknown"})),
        "other": SearchQuery("", tools=frozenset({"other"})),
        "odd": SearchQuery("", tools=frozenset({"ignore all that; rm"})),
        "from": SearchQuery("", first_iteration=3),
        "to": SearchQuery("", last_iteration=2),
        "ids": SearchQuery("", stash_ids=frozenset({"odd", "user", "made up"})),
        "no id": SearchQuery("", stash_ids=frozenset({"made up"})),
        "all": SearchQuery(
            "", frozenset({Role.TOOL}), frozenset({"read_file", "other"}), 2, 3, frozenset({"user", "odd", "ls"})
        ),
    }
    assert {
        "roles": ["ls", "user"],
        "tools": ["ls", "read"],
        "other": ["odd"],
        "odd": ["odd"],
        "from": ["ls", "odd"],
        "to": ["read", "user"],
        "ids": ["odd", "user"],
        "no id": [],
        "all": ["odd"],
    } == {name: run.found("same", query) for name, query in queries.items()}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9)),
        st.tuples(st.just("again"), st.integers(0, 9)),
        st.tuples(st.just("index"), st.integers(1, 9_000)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("drop"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(STEPS)
def test_any_order_of_steps_finds_the_present_texts(steps: list[tuple[str, int]]) -> None:
    """Twin: a dict of what each id holds now. After a search has finished indexing, each live text is found by it."""
    run = Recorder()
    texts: dict[str, int] = {}
    for version, (step, number) in enumerate(steps, 1):
        stash_id = f"{number}"
        if step == "put" and stash_id not in texts:
            run.put(stash_id, text(version, 1_000), version)
            texts[stash_id] = version
        elif step == "again" and stash_id in texts and not run.stash.alive(RUN, [stash_id]):
            run.stash.put(RUN, "owner", stash_id, text(version, 500).encode(), "text/plain")
            run.history.record_again(stash_id)
            texts[stash_id] = version
        elif step == "index":
            run.history.index_some(number)
        elif step == "wait":
            run.clock.now += number
        elif step == "drop":
            run.history.drop_index()
    run.history.finish(no_check)
    for stash_id in run.stash.alive(RUN, list(texts)):
        assert [stash_id] == run.found(f"w{texts[stash_id]}x499")
    assert 0 == run.history.waiting_bytes


def test_many_threads_lose_no_item() -> None:
    """Recording, indexing, dropping and asking at once: nothing breaks, and in the end everything is found."""
    run = Recorder(SearchLimits(index_bytes=50_000_000))
    failures: list[BaseException] = []
    recorded = threading.Event()

    def guard(work: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - told to the test
                failures.append(error)

        return guarded

    def record() -> None:
        for number in range(150):
            run.put(f"{number}", text(number, 200), number + 1)
            if number % 10 == 3:
                run.history.record_again(f"{number // 2}")
        recorded.set()

    def index() -> None:
        while not recorded.is_set() or run.history.waiting_bytes:
            run.history.index_some(20_000)

    def ask() -> None:
        while not recorded.is_set():
            run.history.finish(no_check)
            run.found("w7x7", SearchQuery("", first_iteration=3))

    def drop() -> None:
        for _ in range(3):
            run.history.drop_index()
            run.history.finish(no_check)

    threads = [threading.Thread(target=guard(work)) for work in (record, index, ask, drop)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [] == failures
    run.history.finish(no_check)
    assert [[f"{number}"] for number in range(150)] == [run.found(f"w{number}x7") for number in range(150)]
    assert 0 == run.history.waiting_bytes
