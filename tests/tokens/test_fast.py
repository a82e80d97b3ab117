"""The faster counter counts as tiktoken does, or is not used."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.tokens import ENCODINGS, Counter, EncodingName, load_counting
from prompt_sidecar.tokens.count import CACHE_FROM_CHARS, SLICE_CHARS
from prompt_sidecar.tokens.fast import EXPECTED, PROBES, CountSlice, load_fast
from prompt_sidecar.tokens.loading import load_slow
from tests.lab.harness.servers import memory
from tests.tokens.encodings import ENCODED

toktok = pytest.importorskip("toktok", reason="the extra `fast` is not installed")

SLOW = Counter(ENCODED)


def refuse() -> NoReturn:
    """What would load tiktoken's vocabulary."""
    raise AssertionError("tiktoken was asked")


def fast_of(name: EncodingName) -> CountSlice:
    """The faster counter of an encoding, which must do without tiktoken."""
    counter, _ = load_fast(name, refuse)
    assert counter is not None
    return counter


FAST = Counter({name: partial(fast_of, name) for name in ENCODINGS})


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_expected_counts_are_tiktokens(name: EncodingName) -> None:
    """What is written down for each probe is what the installed tiktoken counts."""
    assert EXPECTED[name] == tuple(len(ENCODED[name].encode_ordinary(probe)) for probe in PROBES)


@pytest.mark.parametrize("name", ENCODINGS)
def test_it_passes_its_probes(name: EncodingName) -> None:
    """The installed version counts every probe as tiktoken does, and the log can say so; no vocabulary is loaded."""
    counter, found = load_fast(name, refuse)
    assert counter is not None
    assert f"all {len(PROBES)} probes" in found


def test_without_the_extra_tiktoken_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed there is no faster counter, and the log says why."""
    monkeypatch.setitem(sys.modules, "toktok", None)
    counter, found = load_fast("o200k_base", refuse)
    assert counter is None
    assert "not installed" in found


@pytest.mark.parametrize("failure", ["one more", "raises"])
def test_a_version_that_counts_otherwise_is_not_used(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that differs on one probe, or fails, is left out for that encoding alone."""
    truncate = toktok.truncate

    def wrong(text: str, most: int, encoding: str) -> tuple[str, int]:
        if text == PROBES[3] and encoding == "cl100k_base":
            if failure == "raises":
                raise ValueError("broken")
            return text, truncate(text, most, encoding)[1] + 1
        return truncate(text, most, encoding)  # type: ignore[no-any-return]

    monkeypatch.setattr(toktok, "truncate", wrong)
    assert load_fast("o200k_base", refuse)[0] is not None
    reports: list[str] = []
    counter = load_counting("cl100k_base", fast=True, report=reports.append)
    assert EXPECTED["cl100k_base"] == tuple(map(counter, PROBES))
    assert "some of its probes otherwise" in reports[0]


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the settings say tiktoken, the faster one is not even tried."""
    monkeypatch.setattr(toktok, "truncate", refuse)
    reports: list[str] = []
    assert 7 == load_counting("o200k_base", fast=False, report=reports.append)("<|endoftext|>")
    assert ["o200k_base: tiktoken counts"] == reports


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(unit=st.text(min_size=1, max_size=40), times=st.integers(1, 3))
def test_counts_are_tiktokens(encoding: str, unit: str, times: int) -> None:
    """Any text has the count that tiktoken gives, cuts included."""
    text = unit * (times * SLICE_CHARS // 2 // len(unit) + CACHE_FROM_CHARS)
    assert SLOW.count(text, encoding) == FAST.count(text, encoding)
    assert SLOW.count(unit, encoding) == FAST.count(unit, encoding)


@pytest.mark.parametrize("text", ["text \ud800 " * 400, "\udfff"])
def test_a_lone_surrogate_is_counted_as_tiktoken_does(text: str) -> None:
    """A lone surrogate, which it refuses, is counted as the replacement character."""
    assert SLOW.count(text, "o200k_base") == FAST.count(text, "o200k_base")


class PanicException(BaseException):
    """As what Rust's panics become: no Exception."""


@pytest.mark.parametrize("failure", [PanicException("slice index"), RuntimeError("poisoned")])
def test_what_it_fails_on_tiktoken_counts(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text on which it fails is counted by tiktoken, loaded then and once; others go on as before."""
    truncate = toktok.truncate

    def fails(text: str, most: int, encoding: str) -> tuple[str, int]:
        if text == "fails":
            raise failure
        return truncate(text, most, encoding)  # type: ignore[no-any-return]

    loads: list[EncodingName] = []

    def slow(name: EncodingName) -> CountSlice:
        loads.append(name)
        return load_slow(name)

    monkeypatch.setattr(toktok, "truncate", fails)
    counter, _ = load_fast("o200k_base", partial(slow, "o200k_base"))
    assert counter is not None
    assert (2, 1, 1, 1) == (counter("two words"), counter("fails"), counter("fails"), counter("one"))
    assert ["o200k_base"] == loads


def test_an_interrupt_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is neither an error nor a panic goes on its way."""
    counter, _ = load_fast("o200k_base", refuse)
    assert counter is not None

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(counter, "_truncate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        counter("text")


@given(
    texts=st.lists(
        st.one_of(st.text(max_size=30), st.integers(1, 3_000).map(lambda size: "ab c\n" * (size // 5))), max_size=12
    )
)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_many_at_once_are_counted_as_one_by_one(encoding: str, texts: list[str]) -> None:
    """Counting texts together gives what counting each gives, with the faster counter and without."""
    expected = [SLOW.count(text, encoding) for text in texts]
    assert expected == FAST.count_many(texts, encoding)
    assert expected == SLOW.count_many(texts, encoding)


@pytest.mark.parametrize("counter", [FAST, SLOW])
def test_many_short_texts_can_be_stopped(counter: Counter) -> None:
    """Between batches of short texts the caller may stop the count."""
    calls: list[int] = []
    counter.count_many(["some words here"] * 20_000, "o200k_base", lambda: calls.append(1))
    assert 4 == len(calls)


def test_threads_that_count_have_small_tables() -> None:
    """What nine threads keep of words that they have counted is less than two of toktok's own tables."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(grown_by_threads, (9,)) < 24_000_000


def grown_by_threads(threads: int) -> int:
    """Bytes by which this process, which should be a fresh one, grows when so many threads begin to count."""
    toktok.batch_count([], "o200k_base")  # loads the vocabulary, and counts nothing
    before = memory()
    counter = fast_of("o200k_base")
    together = threading.Barrier(threads)

    def count() -> int:
        together.wait()
        counted = counter("two words")
        together.wait()
        return counted

    with ThreadPoolExecutor(threads) as pool:
        assert [2] * threads == [future.result() for future in [pool.submit(count) for _ in range(threads)]]
        return memory() - before


def test_a_thread_counts_where_it_can_have_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system lets no more threads begin, so that there is no batch, counts are the same."""

    def no_threads(*_: object, **__: object) -> NoReturn:
        raise PanicException("failed to spawn thread")

    monkeypatch.setattr(toktok, "batch_count", no_threads)
    assert 2 == fast_of("o200k_base")("two words")


def test_a_thread_takes_its_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many texts a thread counts, it has one batch counted, before the first of them."""
    asked: list[str] = []
    batch_count, truncate = toktok.batch_count, toktok.truncate

    def batch(texts: Sequence[str], encoding: str, threads: int) -> list[int]:
        asked.append("batch")
        return batch_count(texts, encoding, threads)  # type: ignore[no-any-return]

    def single(text: str, most: int, encoding: str) -> tuple[str, int]:
        asked.append("text")
        return truncate(text, most, encoding)  # type: ignore[no-any-return]

    monkeypatch.setattr(toktok, "batch_count", batch)
    monkeypatch.setattr(toktok, "truncate", single)
    counter = fast_of("o200k_base")
    with ThreadPoolExecutor(1) as pool:
        assert [2, 2] == list(pool.map(counter, ["two words", "more words"]))
    assert 2 == asked.count("batch")  # here and in the thread
    assert "batch" == asked[0]
    assert ["batch", "text", "text", "text"] == asked[-4:]
