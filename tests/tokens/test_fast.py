"""The faster counter counts as tiktoken does, or is not used."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from sidecar.tokens import ENCODINGS, Counter, load, load_fast
from sidecar.tokens.count import CACHE_FROM_CHARS, SLICE_CHARS
from sidecar.tokens.fast import PROBES

toktok = pytest.importorskip("toktok", reason="the extra `fast` is not installed")

LOADED: Mapping[str, tiktoken.Encoding] = {name: load(name) for name in ENCODINGS}


def test_it_passes_its_probes() -> None:
    """The installed version counts every probe as tiktoken does, in every encoding, and the log can say so."""
    counters, found = load_fast(LOADED)
    assert set(LOADED) == set(counters)
    assert str(len(PROBES)) in found


def test_without_the_extra_tiktoken_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed there is no faster counter, and the log says why."""
    monkeypatch.setitem(sys.modules, "toktok", None)
    counters, found = load_fast(LOADED)
    assert {} == counters
    assert "not installed" in found


def test_a_version_that_counts_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that differs on one probe, or fails, is left out for that encoding alone."""
    true_count = toktok.batch_count

    def wrong(texts: list[str], encoding: str, threads: int) -> list[int]:
        if encoding == "cl100k_base":
            raise ValueError("broken")
        return [
            count + (text == PROBES[3]) for text, count in zip(texts, true_count(texts, encoding, threads), strict=True)
        ]

    monkeypatch.setattr(toktok, "batch_count", wrong)
    counters, found = load_fast(LOADED)
    assert {} == counters
    assert "o200k_base, cl100k_base" in found or "cl100k_base, o200k_base" in found


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(unit=st.text(min_size=1, max_size=40), times=st.integers(1, 3))
def test_counts_are_tiktokens(encoding: str, unit: str, times: int) -> None:
    """Any text long enough to be counted by it has the count that tiktoken gives, cuts included."""
    text = unit * (times * SLICE_CHARS // 2 // len(unit) + CACHE_FROM_CHARS)
    fast, _ = load_fast(LOADED)
    assert Counter(LOADED).count(text, encoding) == Counter(LOADED, fast=fast).count(text, encoding)


def test_what_it_cannot_take_tiktoken_does() -> None:
    """A lone surrogate, which it refuses, is counted as the replacement character, as without it."""
    fast, _ = load_fast(LOADED)
    text = "text \ud800 " * 400
    assert Counter(LOADED).count(text, "o200k_base") == Counter(LOADED, fast=fast).count(text, "o200k_base")


@given(
    texts=st.lists(
        st.one_of(st.text(max_size=30), st.integers(1, 3_000).map(lambda size: "ab c\n" * (size // 5))), max_size=12
    )
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_many_at_once_are_counted_as_one_by_one(encoding: str, texts: list[str]) -> None:
    """Counting texts together gives what counting each gives, with the faster counter and without."""
    fast, _ = load_fast(LOADED)
    expected = [Counter(LOADED).count(text, encoding) for text in texts]
    assert expected == Counter(LOADED, fast=fast).count_many(texts, encoding)
    assert expected == Counter(LOADED).count_many(texts, encoding)


def test_many_short_texts_can_be_stopped() -> None:
    """Between batches of short texts the caller may stop the count."""
    fast, _ = load_fast(LOADED)
    calls: list[int] = []
    Counter(LOADED, fast=fast).count_many(["some words here"] * 20_000, "o200k_base", lambda: calls.append(1))
    assert 4 == len(calls)
