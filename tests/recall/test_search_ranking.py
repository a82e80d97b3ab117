"""The order of what a search finds, against a slow twin: each passage scored by rank_bm25, built afresh."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Plus

from prompt_sidecar.recall import ranking as ranking_module
from prompt_sidecar.recall.analysis import plain, query_terms, terms
from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.passages import passages
from tests.recall.test_history import Recorder
from tests.recall.test_search import ask, ids

WORDS = [f"w{number}" for number in range(12)]
LINES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join), min_size=1, max_size=40)
CORPUS = st.lists(LINES.map("\n".join), min_size=1, max_size=8)
QUERIES = st.lists(st.sampled_from([*WORDS, "absent"]), min_size=1, max_size=4, unique=True).map(" ".join)


def twin(texts: list[str], query: str) -> list[tuple[float, int]]:
    """Score and place of each text that holds a term, by its best passage, best first, of equals the last first."""
    wanted = query_terms(query)
    owners, documents = [], []
    for place, written in enumerate(texts):
        raw = written.encode()
        for start, end in passages(raw):
            owners.append(place)
            documents.append(terms(plain(raw[start:end], "text/plain")))
    scores = BM25Plus(documents).get_scores([term for term in wanted if any(term in one for one in documents)])
    best: dict[int, float] = {}
    for owner, document, score in zip(owners, documents, scores, strict=True):
        if any(term in document for term in wanted):
            best[owner] = max(score, best.get(owner, score))
    return sorted(((score, place) for place, score in best.items()), reverse=True)


@settings(max_examples=40)
@given(CORPUS, QUERIES)
def test_items_are_ranked_as_rank_bm25_ranks_their_best_passages(texts: list[str], query: str) -> None:
    """Without the second look, order and scores are the library's, and all that match are counted."""
    run = Recorder()
    # Texts that are alike would be shown once.
    texts = list(dict.fromkeys(texts))
    for place, written in enumerate(texts):
        run.put(f"{place}", written, place + 1)
    expected = twin(texts, query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking_module, "RERANKED", 0)
        found = ask(run, SearchQuery(query, max_snippets=50))
    assert len(expected) == found.matching_items
    assert len(expected) == len(found.snippets) + sum(snippet.repeats for snippet in found.snippets)
    scores = {f"{place}": score for score, place in expected}
    assert [pytest.approx(scores[name], abs=1e-9) for name in ids(found)] == [
        snippet.score for snippet in found.snippets
    ]
    # Scores that differ in the last digits only may stand either way.
    rounded = sorted(((round(score, 9), place) for score, place in expected), reverse=True)
    shown = set(ids(found))
    assert [f"{place}" for _, place in rounded if f"{place}" in shown] == ids(found)


def test_a_large_history_is_ranked_as_the_twin_ranks_it() -> None:
    """Some thousand passages of words as frequent as in a language: the same first ten."""
    chance = random.Random(7)
    vocabulary = [f"word{number}" for number in range(2_000)]
    weights = [1 / (number + 1) for number in range(2_000)]
    run = Recorder()
    texts = [
        "\n".join(" ".join(chance.choices(vocabulary, weights, k=10)) for _ in range(chance.randrange(1, 60)))
        for _ in range(200)
    ]
    for place, written in enumerate(texts):
        run.put(f"{place}", written, place + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking_module, "RERANKED", 0)
        for query in ("word1900 word3", "word50 word60 word70", "word1"):
            found = ask(run, SearchQuery(query, max_snippets=10, snippet_tokens=1_000), last_iteration=200)
            assert [f"{place}" for _, place in twin(texts, query)][:10] == ids(found)


def test_terms_that_stand_together_come_first() -> None:
    """Of passages with the same terms, the one where they are neighbours is better than a newer one without."""
    run = Recorder()
    run.put("together", "one thing, class Error here, and some other matters that nobody asked about", 1)
    run.put("apart", "one class here, and some other matters that nobody asked about, thing Error", 2)
    found = ask(run, "class Error")
    assert ["together", "apart"] == ids(found)
    assert pytest.approx(found.snippets[0].score) == found.snippets[1].score


def test_huge_items_are_not_read_for_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look has a bound of bytes; past it BM25 alone decides."""
    monkeypatch.setattr(ranking_module, "RERANKED_BYTES", 10)
    run = Recorder()
    run.put("together", "one thing, class Error here, and some other matters that nobody asked about", 1)
    run.put("apart", "one class here, and some other matters that nobody asked about, thing Error", 2)
    assert ["apart", "together"] == ids(ask(run, "class Error"))


def test_more_than_are_ranked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first ranking is used up by what is alike, the next one goes on in the same order."""
    monkeypatch.setattr(ranking_module, "RANKED", 2)
    monkeypatch.setattr(ranking_module, "WIDER", 2)
    run = Recorder()
    for number in range(20):
        run.put(f"{number}", f"needle {number}" if number < 5 else "needle again", number + 1)
    found = ask(run, "needle")
    # "again" is in many, a number in one: the commoner passages are no better, only newer.
    assert 20 == found.matching_items
    assert "19" == ids(found)[0]
    assert {"19", "4", "3", "2", "1"} == set(ids(found))
    assert 14 == found.snippets[0].repeats


@settings(max_examples=60)
@given(CORPUS, QUERIES, st.sets(st.integers(0, 7)), st.integers(1, 6))
def test_visible_items_come_behind(texts: list[str], query: str, seen: set[int], most: int) -> None:
    """The order is that of the hidden items alone and then that of the visible ones alone, the second look included.

    The slow twin asks three times, by filters: for the hidden ones, the visible ones, and all.
    """
    run = Recorder()
    texts = list(dict.fromkeys(texts))
    for place, written in enumerate(texts):
        run.put(f"{place}", f"{written}\nown{place}", place + 1)
    visible = frozenset(f"{place}" for place in seen)
    hidden = frozenset(f"{place}" for place in range(len(texts))) - visible
    many = SearchQuery(query, max_snippets=50)
    parts = [ids(ask(run, replace(many, stash_ids=part | {"none"}))) for part in (hidden, visible)]
    all_of_them = ids(ask(run, many))
    found = ask(run, many, visible=visible)
    assert parts[0] + parts[1] == ids(found)
    assert len(all_of_them) == found.matching_items
    few = ask(run, replace(many, max_snippets=most), visible=visible)
    assert (parts[0] + parts[1])[:most] == ids(few)
    expected = [name for name in all_of_them[:most] if name in visible and name not in ids(few)]
    assert expected == [one.item.stash_id for one in few.in_prompt]


def test_hidden_items_are_found_behind_many_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many visible items match better, hidden ones come first, also where they are ranked in several goes."""
    monkeypatch.setattr(ranking_module, "RANKED", 2)
    monkeypatch.setattr(ranking_module, "WIDER", 2)
    run = Recorder()
    for number in range(40):
        words = f"needle {number}" + " and much else that nobody asked for" * (number < 5)
        run.put(f"{number}", words, number + 1)
    visible = [f"{number}" for number in range(5, 40)]
    found = ask(run, SearchQuery("needle", max_snippets=7), visible=visible)
    assert ["4", "3", "2", "1", "0", "39", "38"] == ids(found)
    assert 40 == found.matching_items
