"""The index: its scores are the library's, whatever was appended or removed in what order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Plus

from prompt_sidecar.recall.analysis import plain, terms
from prompt_sidecar.recall.index import STEP_BYTES, Bm25, Hit, Index
from prompt_sidecar.recall.passages import passages

_WORDS = [f"w{number}" for number in range(12)]
_TEXTS = st.lists(st.sampled_from([*_WORDS, "\n"]), max_size=300).map(" ".join)
_QUERIES = st.lists(st.sampled_from([*_WORDS, "unknown"]), min_size=1, max_size=6)


def split(original: bytes, _content_type: str) -> list[str]:
    """The simplest analysis."""
    return original.decode().split()


def fill(index: Index, item: int, text: str) -> list[int]:
    """Add an item; the bytes of its steps."""
    return list(index.add(item, text.encode(), "text/plain"))


class Twin:
    """The slow twin: all passages in a list, and the library built afresh for each query."""

    def __init__(self, **parameters: float) -> None:
        self.corpus: list[list[str]] = []
        self.hits: list[Hit] = []
        self.parameters = parameters

    def add(self, item: int, text: str) -> None:
        """As the index."""
        original = text.encode()
        for number, (start, end) in enumerate(passages(original)):
            self.corpus.append(split(original[start:end], ""))
            self.hits.append(Hit(item, number, start, end, 0.0))

    def remove(self, item: int) -> None:
        """As the index after `compact`."""
        kept = [number for number, hit in enumerate(self.hits) if hit.item != item]
        self.corpus = [self.corpus[number] for number in kept]
        self.hits = [self.hits[number] for number in kept]

    def best(self, query: Sequence[str], most: int) -> list[Hit]:
        """As the index."""
        if not any(self.corpus):
            return []
        # Passages without a term are no documents: they would make N and avgdl tell of blank lines.
        documents = [number for number, words in enumerate(self.corpus) if words]
        library = BM25Plus([self.corpus[number] for number in documents], **self.parameters)
        scores = dict(zip(documents, library.get_scores(query), strict=True))
        found = [number for number, words in enumerate(self.corpus) if set(words) & set(query)]
        # Scores that differ in their last digits only are those of like passages.
        found.sort(key=lambda number: (round(scores[number], 10), number), reverse=True)
        return [
            Hit(hit.item, hit.passage, hit.start, hit.end, float(scores[number]))
            for number in found[:most]
            for hit in [self.hits[number]]
        ]


def assert_same(expected: Sequence[Hit], actual: Sequence[Hit]) -> None:
    """The same passages in the same order, with scores equal to 1e-9."""
    assert [(hit.item, hit.passage, hit.start, hit.end) for hit in expected] == [
        (hit.item, hit.passage, hit.start, hit.end) for hit in actual
    ]
    assert [hit.score for hit in expected] == pytest.approx([hit.score for hit in actual], rel=0, abs=1e-9)


@given(st.lists(_TEXTS, max_size=8), _QUERIES)
def test_scores_are_the_librarys(texts: list[str], query: list[str]) -> None:
    """After each append, and on no, one and two documents too; repeated query terms count repeatedly."""
    index, twin = Index(analyse=split), Twin()
    for item, text in enumerate(texts):
        assert_same(twin.best(query, 99), index.best(query, 99))
        fill(index, item, text)
        twin.add(item, text)

    assert_same(twin.best(query, 99), index.best(query, 99))


@given(
    st.lists(_TEXTS, min_size=1, max_size=6),
    _QUERIES,
    st.sampled_from([0.5, 1.2, 3.0]),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.sampled_from([0.0, 0.5, 2.0]),
)
def test_parameters_are_the_librarys(texts: list[str], query: list[str], k1: float, b: float, delta: float) -> None:
    """Other values of k1, b and delta mean the same as there."""
    index, twin = Index(Bm25(k1, b, delta), split), Twin(k1=k1, b=b, delta=delta)
    for item, text in enumerate(texts):
        fill(index, item, text)
        twin.add(item, text)

    assert_same(twin.best(query, 99), index.best(query, 99))


@given(st.lists(st.one_of(_TEXTS, st.integers(0, 20)), max_size=40), _QUERIES)
def test_removed_items_are_as_if_they_had_never_been(changes: list[str | int], query: list[str]) -> None:
    """At once none of their passages is found; after compaction no score remembers them."""
    index, twin = Index(analyse=split), Twin()
    for item, change in enumerate(changes):
        if isinstance(change, str):
            fill(index, item, change)
            twin.add(item, change)
        else:
            index.remove(change)
            twin.remove(change)
        assert {(hit.item, hit.passage) for hit in twin.best(query, 999)} == {
            (hit.item, hit.passage) for hit in index.best(query, 999)
        }
    index.compact()

    assert_same(twin.best(query, 99), index.best(query, 99))
    assert len(twin.hits) == index.passages


def corpus(seed: int, items: int) -> list[str]:
    """Texts of words that are as unevenly frequent as in language, a few of them very long."""
    chance = random.Random(seed)
    words = [f"t{number}" for number in range(3_000)]
    weights = [1 / (number + 1) for number in range(len(words))]
    return [
        " ".join(chance.choices([*words, "\n"], [*weights, 0.5], k=chance.choice([0, 5, 50, 500, 5_000])))
        for _ in range(items)
    ]


def test_a_large_run_scores_as_the_library_through_all_its_merges() -> None:
    """Thousands of passages, many segments and levels, removals among them."""
    index, twin = Index(analyse=split), Twin()
    for item, text in enumerate(corpus(1, 220)):
        fill(index, item, text)
        twin.add(item, text)
        if item % 7 == 3:
            index.remove(item - 2)
            twin.remove(item - 2)
    index.compact()

    assert len(twin.corpus) > 2_000
    for query in (["t0"], ["t0", "t1", "t2"], ["t900", "t2500"], ["t5", "t5", "t2999", "nowhere"]):
        assert_same(twin.best(query, 50), index.best(query, 50))
        assert [sum(term in words for words in twin.corpus) for term in query] == index.document_frequencies(query)


def test_frequencies_beyond_four_bits_are_exact() -> None:
    """A passage that repeats a term hundreds of times scores as in the library, after merges too."""
    index, twin = Index(analyse=lambda original, _: list(original.decode())), Twin()
    for item in range(40):
        text = "ab"[item % 2] * (14 + item % 5) + "c" * (item * 20)
        fill(index, item, text)
        twin.corpus.append(list(text))
        twin.hits.append(Hit(item, 0, 0, len(text), 0.0))

    for query in (["a"], ["b", "c"], ["c"]):
        assert_same(twin.best(query, 40), index.best(query, 40))


@given(
    st.lists(_TEXTS, max_size=8),
    _QUERIES,
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.integers(0, 5),
    st.sets(st.integers(0, 9)),
)
def test_items_are_ranked_by_their_best_passage(
    texts: list[str], query: list[str], may: list[bool], most: int, behind: set[int]
) -> None:
    """One hit an item, only of allowed items, and how many of those match in all; some behind all others."""
    index = Index(analyse=split)
    for item, text in enumerate(texts):
        fill(index, item, text)
    allowed = bytes(may)
    every = [hit for hit in index.best(query, 999) if may[hit.item]]
    expected = list({hit.item: hit for hit in reversed(every)}.values())
    expected.sort(key=every.index)

    found = index.best_of_items(query, most, allowed)
    hits, matching = found.hits, found.total
    assert expected[:most] == hits
    assert len(expected) == matching
    first = [hit for hit in expected if hit.item not in behind][:most]
    last = [hit for hit in expected if hit.item in behind][:most]
    found = index.best_of_items(query, most, allowed, behind)
    assert (first + last, len(expected)) == (found.hits, found.total)
    assert every[:most] == index.best(query, most, allowed)


def test_of_equal_passages_the_newest_comes_first() -> None:
    """However many are equal, and within an item too."""
    index = Index(analyse=split)
    for item in range(300):
        fill(index, item, "the same words\n" * 60)

    hits = index.best(["same"], 5)
    assert [(299, 1), (299, 0), (298, 1), (298, 0), (297, 1)] == [(hit.item, hit.passage) for hit in hits]
    assert [(299, 1), (298, 1)] == [(hit.item, hit.passage) for hit in index.best_of_items(["same"], 2).hits]


def test_steps_are_bounded_and_can_be_searched_between() -> None:
    """Each step does some passages more than its bytes at most, and what it did can be found at once."""
    index = Index(analyse=split)
    text = "".join(f"line {number} of the text\n" for number in range(3_000))
    steps = []
    for done in index.add(7, text.encode(), "text/plain"):
        steps.append(done)
        reached = text.encode()[: sum(steps)].decode().split()[-4]
        assert [7] == [hit.item for hit in index.best([reached], 9)]
        assert sum(steps) == index.passages_of(7)[-1][1]

    assert len(text) == sum(steps)
    assert all(STEP_BYTES <= done < STEP_BYTES + 1_024 for done in steps[:-1])
    assert list(passages(text.encode())) == index.passages_of(7)


def test_an_item_removed_while_it_is_indexed_is_given_up() -> None:
    """Its remaining steps do nothing."""
    index = Index(analyse=split)
    steps = index.add(0, b"some words\n" * 5_000, "text/plain")
    next(steps)
    index.remove(0)

    assert [] == list(steps)
    assert [] == index.best(["some"], 9)
    assert () == index.passages_of(0)
    assert 0 == index.passages


def test_items_come_one_after_another() -> None:
    """A number that is not above the last is refused, and so is going back to an unfinished item."""
    index = Index(analyse=split)
    unfinished = index.add(3, b"some words\n" * 5_000, "text/plain")
    next(unfinished)
    with pytest.raises(ValueError, match="item 3 is not above 3"):
        fill(index, 3, "again")
    fill(index, 5, "later")

    with pytest.raises(RuntimeError, match="item 3 was not finished"):
        next(unfinished)
    assert [5] == [hit.item for hit in index.best(["later"], 9)]


@pytest.mark.parametrize("text", ["", "\n\n\n"])
def test_items_without_words_are_known_and_never_found(text: str) -> None:
    """Nor do they trouble a query."""
    index = Index(analyse=split)
    fill(index, 0, text)
    assert [] == index.best(["any"], 5)
    fill(index, 1, "any thing")
    fill(index, 2, text)

    assert [(1, 0, 0, 9)] == [(hit.item, hit.passage, hit.start, hit.end) for hit in index.best(["any"], 5)]
    assert [] == index.best([], 5)
    assert ([], 0) == (index.best_of_items([], 5).hits, index.best_of_items([], 5).total)
    assert [] == index.best(["any"], 0)
    index.remove(0)
    index.remove(99)
    assert 1 == len(index.passages_of(1))


def test_the_real_analysis_is_used() -> None:
    """Parts of names are found, in JSON's escapes too."""
    index = Index()
    list(index.add(0, b"class RunLoop: ...", "text/plain"))
    list(index.add(1, rb'{"text":"caf\u00e9\nmenu"}', "application/json"))

    assert [0] == [hit.item for hit in index.best(terms("loop"), 5)]
    assert [1] == [hit.item for hit in index.best(terms("café"), 5)]
    assert terms(plain(rb'{"text":"caf\u00e9\nmenu"}', "application/json"))[-1] == terms("menu")[0]
