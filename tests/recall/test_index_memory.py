"""What an index costs: its own estimate holds against measured memory, and hostile texts stay within bounds."""

from __future__ import annotations

import gc
import itertools
import random
import string
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from prompt_sidecar.recall.index import Index
from tests.lab.harness.prompts import Writer
from tests.steps import growth, steps


def split(original: bytes, _content_type: str) -> list[str]:
    """The simplest analysis: it leaves nothing in memory that would be measured."""
    return original.decode().split()


def fill(index: Index, originals: Sequence[bytes]) -> None:
    """Add items."""
    for item, original in enumerate(originals):
        for _ in index.add(item, original, "text/plain"):
            pass


def agents_texts(size: int) -> list[bytes]:
    """Results of an agent's tools."""
    writer = Writer(3)
    return [writer.text(20_000).encode() for _ in range(size // 20_000)]


def unique_words(size: int) -> list[bytes]:
    """Short words, none of them twice: the most terms and postings that a text can have."""
    words = [
        "".join(letters) for letters in itertools.islice(itertools.product(string.ascii_lowercase, repeat=4), size)
    ]
    random.Random(4).shuffle(words)
    text = " ".join(words).encode()[:size]
    return [text[start : start + 100_000] for start in range(0, size, 100_000)]


def tiny_items(size: int) -> list[bytes]:
    """Many items of a few words."""
    return [f"result {number} ok".encode() for number in range(size // 15)]


@pytest.mark.parametrize(
    ("make", "size", "most"),
    [(agents_texts, 1_000_000, 1.2), (unique_words, 1_000_000, 4.0), (tiny_items, 45_000, 5.0)],
    ids=["agents", "unique", "tiny"],
)
def test_the_estimate_holds_against_measured_memory(make: Callable[[int], list[bytes]], size: int, most: float) -> None:
    """Within a third, and so many bytes for a byte of text; what is removed is given back, but its places."""
    originals = make(size)
    fill(Index(analyse=split), originals[:10])  # what the first use of anything leaves behind
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = Index(analyse=split)
        fill(index, originals)
        gc.collect()
        measured = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    held = index.bytes

    assert 0.65 * measured <= held <= 1.35 * measured
    assert held <= most * sum(map(len, originals))
    for item in range(len(originals)):
        index.remove(item)
    assert index.bytes < held


@pytest.mark.parametrize(
    "original",
    [b"x" * 2_000_000, b"\n" * 2_000_000, b" " * 2_000_000, b"a " * 1_000_000, b"word " * 400_000, b'\\"' * 1_000_000],
    ids=["one word", "line feeds", "spaces", "letters", "a word", "escapes"],
)
def test_hostile_texts_cost_little(original: bytes) -> None:
    """Two megabytes of nothing take less memory than they are; four times the text takes about four times the steps."""

    def indexed(size: int) -> Index:
        index = Index()
        for _ in index.add(0, original[:size], "application/json"):
            pass
        return index

    assert indexed(len(original)).bytes <= 0.5 * len(original)
    assert growth(indexed, 20_000) < 6


def test_a_query_for_everything_is_linear_in_the_passages() -> None:
    """Thousands of passages with the same terms in each: a pass over arrays, whatever the query repeats."""
    index = Index(analyse=split)
    fill(index, [b"the same words in every line\n" * 700] * 200)
    assert index.passages > 8_000
    query = ["the", "same", "words"] * 20

    assert 50 == len(index.best(query, 50))
    assert steps(lambda: index.best(query, 50)) < 300 * index.passages  # one pass takes 175 for each
