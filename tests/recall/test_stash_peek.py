"""Looking into the stash without a trace: what search and index read is renewed by nothing and counted as nothing."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.recall import stash as stash_module
from prompt_sidecar.recall.holding import StoredOriginal
from prompt_sidecar.recall.outcome import Outcome
from prompt_sidecar.recall.stash import COMPRESS_AT_ONCE, PEEK_SLICE, Stash
from tests.recall.test_stash import TEXT, lines, make


def test_peek_gives_the_originals_of_the_living() -> None:
    """Known ids come back byte for byte; made-up ones, another run's and an unknown run's are left out."""
    stash, _ = make()
    stash.put("r", "o", "a", b"\xff raw", TEXT)
    stash.put("r", "o", "b", b"", TEXT)
    stash.put("other", "o", "c", b"c", TEXT)
    assert {"a": b"\xff raw", "b": b""} == stash.peek("r", ["b", "a", "c", "made up", "a"])
    assert {"a", "b"} == stash.alive("r", ["b", "a", "c", "made up", "a"])
    assert ({}, set()) == (stash.peek("unknown", ["a"]), stash.alive("unknown", ["a"]))
    assert Outcome.RUN_UNKNOWN == stash.get("unknown", "a")


def test_peek_gives_compressed_originals_whole() -> None:
    """Those that wait raw, those that were compressed and those compressed at once are the same to the reader."""
    stash, _ = make(total=50_000_000, run=50_000_000)
    small, large = lines(20_000), lines(COMPRESS_AT_ONCE + 5)
    stash.put("r", "o", "small", small, TEXT)
    stash.put("r", "o", "large", large, TEXT)
    assert {"small": small, "large": large} == stash.peek("r", ["small", "large"])
    stash.compress_some()
    assert {"small": small, "large": large} == stash.peek("r", ["small", "large"])


def test_peek_renews_nothing_and_counts_nothing() -> None:
    """An original that was only looked at dies when it would have, and no retrieval is reported."""
    stash, clock = make()
    stash.put("r", "o", "a", b"x", TEXT)
    clock.now = 59
    assert ({"a": b"x"}, {"a"}) == (stash.peek("r", ["a"]), stash.alive("r", ["a"]))
    assert dict.fromkeys(Outcome, 0) == stash.figures("r").retrievals
    assert dict.fromkeys(Outcome, 0) == stash.totals().retrievals
    clock.now = 60
    assert ({}, set()) == (stash.peek("r", ["a"]), stash.alive("r", ["a"]))
    assert Outcome.EXPIRED == stash.get("r", "a")


def test_peek_does_not_save_an_entry_from_eviction() -> None:
    """The oldest entry stays the first to go, however often it was looked at."""
    stash, _ = make(run=10)
    stash.put("r", "o", "old", b"12345", TEXT)
    stash.put("r", "o", "new", b"12345", TEXT)
    stash.peek("r", ["old"])
    stash.put("r", "o", "newest", b"12345", TEXT)
    assert {"new": b"12345", "newest": b"12345"} == stash.peek("r", ["old", "new", "newest"])
    assert Outcome.EVICTED == stash.get("r", "old")


def test_alive_asks_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand ids never hold the lock for one long stretch, and all are answered."""
    monkeypatch.setattr(stash_module, "PEEK_SLICE", 7)
    stash, _ = make(total=10_000, run=10_000)
    for number in range(50):
        stash.put("r", "o", f"{number}", b"x", TEXT)
    assert {f"{number}" for number in range(50)} == stash.alive("r", [f"{number}" for number in range(60)])
    assert PEEK_SLICE > 7


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 30)), max_size=30))
def test_alive_peek_and_get_agree(steps: list[tuple[str, int]]) -> None:
    """Whatever was put and however time passed: what is alive is what peek reads and what get would give."""
    stash, clock = make(run=6)
    for stash_id, wait in steps:
        stash.put("r", "o", stash_id, stash_id.encode() * 2, TEXT)
        clock.now += wait
    peeked = stash.peek("r", "abcde")
    assert peeked.keys() == stash.alive("r", "abcde")
    held = {stash_id: stash.get("r", stash_id) for stash_id in "abcde"}
    assert peeked == {stash_id: got.original for stash_id, got in held.items() if isinstance(got, StoredOriginal)}


def test_peek_beside_puts_and_sweeps() -> None:
    """Threads that store, evict and look at once: what is seen is always whole."""
    stash, _ = make(total=30_000, run=30_000)
    failures: list[str] = []
    text = {f"{number}": lines(2_000 + number) for number in range(40)}

    def write(stash: Stash) -> None:
        for _ in range(20):
            for stash_id, original in text.items():
                stash.put("r", "o", stash_id, original, TEXT)
            stash.compress_some()

    def look(stash: Stash) -> None:
        for _ in range(100):
            for stash_id, original in stash.peek("r", list(text)).items():
                if original != text[stash_id]:
                    failures.append(stash_id)

    threads = [threading.Thread(target=work, args=(stash,)) for work in (write, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [] == failures
