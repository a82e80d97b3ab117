"""What a search may take, whatever it finds: tokens of each snippet and of the answer, time, and reads."""

from __future__ import annotations

import itertools
import random
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prompt_sidecar.recall import search as search_module
from prompt_sidecar.recall.analysis import terms
from prompt_sidecar.recall.found import MOST_TOTAL_TOKENS, SearchLimits, SearchQuery
from prompt_sidecar.recall.passages import passages
from prompt_sidecar.recall.ranking import RANKED
from prompt_sidecar.recall.search import search
from tests.recall.test_history import Recorder, no_check
from tests.recall.test_search import ask, count, ids

TEXT = st.text(st.sampled_from("ab \n\n,é漢🙂\r\0"), max_size=600)
NEEDLES = st.lists(st.tuples(TEXT, st.sampled_from(["needle", "thread", ""]), TEXT), min_size=1, max_size=12)


def lines_before(original: bytes, end: int) -> int:
    """Line feeds before a byte."""
    return original[:end].count(b"\n")


@settings(max_examples=150)
@given(
    NEEDLES,
    st.integers(1, 50),
    st.one_of(st.just(0), st.integers(16, 200)),
    st.one_of(st.just(0), st.integers(256, 2_000)),
    st.sampled_from([1, 2]),
)
@example([("", "needle", "")] * 12, 50, 16, 256, 2)
@example([("", "needle", "")] * 12, 50, 16, 256, 5)
@example([("a " * 300, "needle", "漢" * 500)] * 3, 5, 16, 256, 1)
def test_an_answer_stays_within_its_bounds(
    parts: list[tuple[str, str, str]], most: int, snippet_tokens: int, total_tokens: int, factor: int
) -> None:
    """Tokens of each snippet and of the whole, and every stated place, hold for any text and any way of counting."""
    run = Recorder()
    originals = {}
    for number, (before, needle, after) in enumerate(parts):
        originals[f"{number}"] = f"{before} {needle} {after}".encode()
        run.put(f"{number}", originals[f"{number}"].decode(), number + 1)
    numbers = itertools.count(482_113)
    found = search(
        run.history,
        SearchQuery("needle thread", max_snippets=most, snippet_tokens=snippet_tokens, total_tokens=total_tokens),
        SearchLimits(),
        last_iteration=len(parts),
        count=lambda text: count(text) * factor,
        nonce=lambda: f"{next(numbers)}",
        check=no_check,
    )
    assert count(found.rendered) * factor == found.rendered_tokens
    assert found.rendered_tokens <= (total_tokens or max(1_500, min(most * (snippet_tokens or 300), MOST_TOTAL_TOKENS)))
    assert len(found.snippets) <= min(most, found.matching_items)
    assert len(set(ids(found))) == len(ids(found))
    assert len(originals) >= len(found.snippets) + sum(snippet.repeats for snippet in found.snippets)
    for snippet in found.snippets:
        original = originals[snippet.item.stash_id]
        shown = original[snippet.start_byte : snippet.end_byte]
        assert shown.decode() == snippet.text
        assert count(snippet.text) * factor == snippet.tokens <= (snippet_tokens or 300)
        assert lines_before(original, snippet.start_byte) + 1 == snippet.first_line
        assert lines_before(original, max(snippet.start_byte, snippet.end_byte - 1)) + 1 == snippet.last_line
        assert snippet.text
        assert snippet.score > 0


@settings(max_examples=100)
@given(TEXT, TEXT, st.integers(16, 60))
def test_a_snippet_holds_what_was_asked_for(before: str, after: str, tokens: int) -> None:
    """However long the text around it and whatever its lines, the term is in the snippet."""
    run = Recorder()
    run.put("a", f"{before * 5} needle {after * 5}")
    (snippet,) = ask(run, SearchQuery("needle", snippet_tokens=tokens)).snippets
    assert "needle" in snippet.text


def test_as_many_as_were_asked_for_find_room() -> None:
    """Snippets share the answer's tokens, rather than the first ones taking all; short ones leave theirs to others."""
    run = Recorder()
    for number in range(60):
        run.put(f"{number}", f"needle {number}\n" + "some more words of the needle to read\n" * 60, number + 1)
    assert 5 == len(ask(run, "needle").snippets)
    wide = ask(run, SearchQuery("needle", max_snippets=50))
    assert 50 == len(wide.snippets)
    assert 1_500 < wide.rendered_tokens <= 15_000
    assert 2 <= len(ask(run, SearchQuery("needle", max_snippets=50, total_tokens=400)).snippets) < 10


def test_a_cut_keeps_to_lines() -> None:
    """Where lines are short, a snippet is whole lines, with the best one in it."""
    run = Recorder()
    lines = [f"line {number} needle\n" for number in range(200)]
    lines[120] = "needle and thread\n"
    run.put("a", "".join(lines))
    (snippet,) = ask(run, SearchQuery("needle thread", snippet_tokens=60)).snippets
    assert snippet.text.endswith("\n")
    assert snippet.text.splitlines(keepends=True) == lines[snippet.first_line - 1 : snippet.last_line]
    assert snippet.first_line <= 121 <= snippet.last_line


def test_neighbours_that_match_are_shown_in_one_snippet() -> None:
    """A stretch that was cut into passages to be ranked is put together again to be read, and no more than that."""
    run = Recorder()
    other = "nothing to see in this line of words\n" * 100
    run.put("a", other + "the needle is in this line of words\n" * 30 + other)
    (snippet,) = ask(run, SearchQuery("needle", snippet_tokens=1_000)).snippets
    assert 30 == snippet.text.count("needle")
    assert snippet.text.count("nothing") < 30


def test_thousands_of_large_passages() -> None:
    """A query that matches everywhere reads and shows what fits, and stops."""
    run = Recorder()
    chance = random.Random(3)
    filler = [" ".join(f"w{chance.randrange(500)}" for _ in range(90)) for _ in range(100)]
    for number in range(2_000):
        run.put(
            f"{number}", "\n".join(f"needle{number} needle {line}" for line in chance.choices(filler, k=10)), number
        )
    run.finish()
    assert run.history.figures().passages >= 20_000
    run.reads = 0
    found = ask(run, SearchQuery("needle w1 w2 w3", max_snippets=50), last_iteration=2_000)
    assert (50, 2_000) == (len(found.snippets), found.matching_items)
    assert found.rendered_tokens <= 15_000
    assert run.reads <= 3 * RANKED


def test_one_line_of_five_megabytes() -> None:
    """A huge line is cut around the term, between characters."""
    run = Recorder()
    words = " ".join(f"w{number % 3_000}" for number in range(450_000))
    original = f"{words} 漢字 needle 漢字 {words}"
    assert len(original) > 5_000_000
    run.put("huge", original)
    run.finish()
    found = ask(run, "needle")
    (snippet,) = found.snippets
    assert "漢字 needle 漢字" in snippet.text
    assert original.encode()[snippet.start_byte : snippet.end_byte].decode() == snippet.text
    assert (1, 1, 1) == (snippet.first_line, snippet.last_line, snippet.total_lines)


def test_repeats_are_counted_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand copies of one result cost a bounded number of reads."""
    monkeypatch.setattr(search_module, "REPEATS", 20)
    run = Recorder()
    for number in range(300):
        run.put(f"{number}", "needle: all is well", number + 1)
    run.finish()
    run.reads = 0
    found = ask(run, "needle", last_iteration=300)
    assert (300, 20, 21) == (found.matching_items, found.snippets[0].repeats, run.reads)


def test_a_hundred_thousand_items_are_filtered_at_once() -> None:
    """A filter of a few costs a look at them; of all, some loops of the interpreter's own over an array each."""
    run = Recorder()
    for number in range(100_000):
        run.put(f"{number}", "x", number + 1, tool=f"tool{number % 7}")
    query = SearchQuery("x", tools=frozenset({"tool3"}), first_iteration=500, last_iteration=90_000)
    assert [703] == run.history.within([3, 703, 704], query)
    allowed = run.history._record.allowed(query)  # noqa: SLF001 - the slow twin, for all of them
    assert allowed is not None
    assert [703] == [number for number in (3, 703, 704) if allowed[number]]
    assert (100_000, 12_786) == (len(allowed), sum(allowed))


def test_searches_beside_recording_and_indexing() -> None:
    """Threads that record, index and search at once: each search finds what was recorded before, or says what it lacks.

    It lacks something where the index is dropped while it looks.
    """
    run = Recorder()
    failures: list[BaseException | str] = []
    done = threading.Event()

    def record() -> None:
        for number in range(300):
            run.put(f"{number}", f"needle{number} needle\n" + "words of no meaning\n" * 50, number + 1)
            if number % 50 == 49:
                run.history.drop_index()
        done.set()

    def index() -> None:
        while not done.is_set():
            run.history.index_some(30_000)

    def look() -> None:
        try:
            while not done.is_set():
                known = run.history.figures().items
                found = ask(run, SearchQuery("needle", max_snippets=20), last_iteration=300)
                if found.matching_items + found.not_indexed_items < known:
                    failures.append(f"{found.matching_items} and {found.not_indexed_items} of {known}")
                failures.extend(one.item.stash_id for one in found.snippets if "needle" not in one.text)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=work) for work in (record, index, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [] == failures
    assert ["299"] == ids(ask(run, "needle299"))[:1]


def test_the_passage_with_most_of_the_words_is_shown_and_others_are_named() -> None:
    """Not the one that repeats one word, which BM25 prefers; where that is, the line above the snippet says."""
    run = Recorder()
    lines = [f"line {number} of other matters entirely" for number in range(200)]
    lines[20] = "harbour " * 60
    lines[150] = "the harbour was dredged by ships"
    run.put("log", "\n".join(lines), 1)
    (snippet,) = ask(run, SearchQuery("harbour dredged ships", snippet_tokens=60)).snippets
    assert "dredged by ships" in snippet.text
    (line,) = snippet.elsewhere
    assert line <= 21 <= line + 10
    assert f", more near line {line}\n" in ask(run, SearchQuery("harbour dredged ships", snippet_tokens=60)).rendered


def test_words_that_the_snippet_lacks_are_named_first() -> None:
    """Where they stand is said before where its own words stand again, however many places have those."""
    run = Recorder()
    lines = [f"line {number} of other matters entirely" for number in range(900)]
    for number in (40, 200, 360, 520, 680):
        lines[number] = "the harbour was dredged"
    lines[850] = "by ships"
    run.put("log", "\n".join(lines), 1)
    for number in range(8):
        run.put(f"ships{number}", "ships", 1)
    (snippet, *_) = ask(run, SearchQuery("harbour dredged ships", snippet_tokens=60)).snippets
    assert "harbour was dredged" in snippet.text
    assert any(line <= 851 <= line + 60 for line in snippet.elsewhere)


@pytest.mark.parametrize("written", ["submitOrder", "submit_order", "SubmitOrder", "submit-order", "SUBMIT_ORDER"])
@pytest.mark.parametrize("asked", ["submitOrder", "submit_order", "SubmitOrder", "submit-order", "submit order"])
def test_a_name_is_found_in_any_spelling(asked: str, written: str) -> None:
    """Words of a name are found however the code joins them, and its parts find the whole."""
    run = Recorder()
    for number in range(12):
        run.put(f"other{number}", f"file number {number} of other matters", 1)
    run.put("code", f"def handle(cart):\n    return {written}(cart)", 1)
    assert ["code"] == ids(ask(run, asked))[:1]


@given(st.lists(st.sampled_from(["harbour", "ships", "x", "y"]), max_size=60), st.lists(st.booleans(), max_size=60))
def test_passages_and_the_terms_they_hold(words: list[str], breaks: list[bool]) -> None:
    """What the index says a passage holds is what its text holds, also for the first and the last one."""
    text = "".join(word * 30 + (" \n" if broken else " ") for word, broken in zip(words, breaks, strict=False))
    text = " ".join([text, *(word for word in words for _ in range(20))])
    run = Recorder()
    run.put("before", "harbour ships", 1)
    run.put("text", text, 1)
    run.put("after", "harbour ships", 1)
    run.finish()
    (number,) = run.history.named("text")
    raw = text.encode()
    expected = [
        ((start, end), held)
        for start, end in passages(raw)
        if (held := {"harbour", "ship"} & set(terms(raw[start:end].decode())))
    ]
    assert expected == run.history.holding(number, ["harbour", "ship"])
