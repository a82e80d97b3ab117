"""The stash and the search index by themselves.

Of the stash: originals in and out, before and after they are compressed. Of the index, on a run of 10 MB: appending a
result, asking, memory; and rank-bm25 built afresh. The library holds the same passages as the same terms, given to it
ready-made; its part of an append is the rebuilding alone, without any analysis. Recorded runs are used where they are
there, each copy with many of its words respelled, so that the vocabulary grows as in a run; else generated text.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from statistics import median
from time import perf_counter, thread_time, time
from typing import Final

from rank_bm25 import BM25Plus

from prompt_sidecar.recall import analysis
from prompt_sidecar.recall.holding import COMPRESS_FROM, StoredOriginal
from prompt_sidecar.recall.index import Index
from prompt_sidecar.recall.passages import passages
from prompt_sidecar.recall.stash import COMPRESS_AT_ONCE, WAITING_BYTES, Stash
from tests.lab.harness.figures import Section, Spread, milliseconds, ratio
from tests.lab.harness.prompts import Writer, leaves
from tests.oracle.data import document, present

SIZES = (500, 2_000, 10_000, 50_000, 1_000_000)
MIB = 1024 * 1024


def stash(rounds: int) -> Section:
    """Tell what an original costs on its way in, raw and compressed out, and what compression saves."""
    rows = []
    facts: dict[str, object] = {}
    for size in SIZES:
        count = max(min(rounds * 20, WAITING_BYTES // size - 1), 3)
        figures = _figures([Writer(number).text(size).encode() for number in range(count)])
        smaller = figures.pop("smaller")
        rows.append([f"{size:,}", *(f"{value * 1e6:,.1f}" for value in figures.values()), f"{smaller:.2f}x"])
        facts[str(size)] = {name: round(value * 1e6, 2) for name, value in figures.items()} | {
            "smaller": round(smaller, 3)
        }
    return Section(
        "stash",
        "Stash: microseconds for each original, medians",
        ["bytes", "put", "get, raw", "compress, in the background", "get, compressed", "smaller by"],
        rows,
        facts,
        [
            f"from {COMPRESS_FROM:,} bytes originals are compressed (zstd 1) by housekeeping, not by the call",
            f"from {COMPRESS_AT_ONCE:,} bytes at once, which the put then takes",
        ],
    )


def _figures(originals: list[bytes]) -> dict[str, float]:
    """Seconds of each step for one original, and by what factor compression makes them smaller."""
    held = Stash(256 * MIB, 256 * MIB, 3_600, time)
    ids = [f"id-{number}" for number in range(len(originals))]

    def put(stash_id: str, original: bytes) -> None:
        held.put("run", "owner", stash_id, original, "text/plain")

    puts = [_wall(partial(put, *pair)) for pair in zip(ids, originals, strict=True)]
    raw = [_wall(partial(held.get, "run", stash_id)) for stash_id in ids]
    began = perf_counter()
    held.compress_some(1 << 40)
    squeezed = (perf_counter() - began) / len(originals)
    packed = [_wall(partial(held.get, "run", stash_id)) for stash_id in ids]
    last = held.get("run", ids[-1])
    assert isinstance(last, StoredOriginal)
    assert last.original == originals[-1]
    totals = held.totals()
    return {
        "put_us": median(puts),
        "get_us": median(raw),
        "compress_us": squeezed,
        "get_compressed_us": median(packed),
        "smaller": totals.original_bytes / totals.held_bytes,
    }


def _wall(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


RESULT: Final = 20_000
"""Bytes of the result that is appended."""
RESPELLED: Final = 0.4
"""Share of the words that a copy of a recorded run spells anew: the vocabulary then grows with the 3/4th power of the
bytes, as it does within the recorded runs."""
HITS: Final = 50
"""Passages that a query asks for: the most snippets of an answer."""
QUERY_TERMS: Final = 3

_WORD: Final = re.compile(r"[A-Za-z]{4,}|[0-9]{3,}")

Analyse = Callable[[bytes, str], list[str]]


def index(rounds: int, size: int) -> Section:
    """Tell what appending to a run of `size` bytes costs, what a query costs, and how much memory the index takes."""
    corpus = _Corpus(size, rounds)
    rows, facts = [], {}
    for name, spread, other in _appends(corpus, rounds) + _queries(corpus, rounds):
        faster = ratio(other, spread.p50)
        rows.append([name, milliseconds(spread.p50), milliseconds(spread.p99), milliseconds(other), f"{faster:,.0f}x"])
        facts[name] = {**spread.facts(), "library_p50_us": round(other * 1e6, 1), "faster": round(faster, 1)}
    share = corpus.index.bytes / corpus.bytes
    return Section(
        "index",
        f"Search index on {corpus.bytes / 1e6:.1f} MB of {corpus.origin}: processor milliseconds",
        ["", "p50", "p99", "rank-bm25, p50", "faster by"],
        rows,
        {**facts, "bytes_per_byte": round(share, 3), "passages": corpus.index.passages},
        [
            f"an append is a result of {RESULT:,} bytes with words of its own; the library is rebuilt, its terms ready",
            f"a query has {QUERY_TERMS} terms and asks for the {HITS} best passages, as the library's get_top_n does",
            f"{corpus.index.passages:,} passages; the index takes {share:.2f} bytes for a byte of text",
        ],
    )


class _Corpus:
    """A run of so many bytes, indexed, and results to append to it. The analysis can be exchanged."""

    def __init__(self, size: int, rounds: int) -> None:
        recorded = [
            text
            for path in present("runs/*-large.*.json.gz")
            for text in leaves(document(path)["messages"])
            if len(text) > 100  # no names and ids
        ]
        self.origin = "recorded runs" if recorded else "generated text"
        source = _respelled(recorded) if recorded else _generated()
        self.originals = list(_taken(source, size))
        self.bytes = sum(map(len, self.originals))
        self.results = [b"\n".join(_taken(source, RESULT))[:RESULT] for _ in range(3 * rounds)]
        self.analyse: Analyse = _analysed_by(analysis.terms)
        self._numbers = count()
        self.index = Index(analyse=self._terms)
        for original in self.originals:
            self.add(original)
        self.terms = [
            self.analyse(original[start:end], "text/plain")
            for original in self.originals
            for start, end in passages(original)
        ]
        self.terms = [terms for terms in self.terms if terms]
        self.numbers = range(len(self.terms))
        began = thread_time()
        self.library = BM25Plus(self.terms)
        self.rebuild = thread_time() - began

    def _terms(self, original: bytes, content_type: str) -> list[str]:
        return self.analyse(original, content_type)  # whichever it is by then

    def add(self, original: bytes) -> None:
        """As the newest item."""
        for _ in self.index.add(next(self._numbers), original, "text/plain"):
            pass


def _appends(corpus: _Corpus, rounds: int) -> list[tuple[str, Spread, float]]:
    """What appending costs with the analysis as it is, without stemming, and with the terms given."""
    unstemmed = analysis.Analyser(stem=False).terms
    for original in corpus.originals:  # as warm as the other one
        unstemmed(original.decode())
    ready: dict[bytes, list[str]] = {}
    for result in corpus.results[2 * rounds :]:
        for start, end in passages(result):
            ready[result[start:end]] = analysis.terms(analysis.plain(result[start:end], "text/plain"))
    kinds: list[tuple[str, Analyse]] = [
        ("append", _analysed_by(analysis.terms)),
        ("append, not stemmed", _analysed_by(unstemmed)),
        ("append, terms given", lambda original, _: ready[original]),
    ]
    found = []
    for number, (name, analyse) in enumerate(kinds):
        corpus.analyse = analyse
        results = corpus.results[number * rounds : (number + 1) * rounds]
        spread = Spread.of(_timed(partial(corpus.add, result)) for result in results)
        found.append((name, spread, corpus.rebuild))
    return found


def _queries(corpus: _Corpus, rounds: int) -> list[tuple[str, Spread, float]]:
    """What asking costs for terms of different frequency; the library answers the same questions in turn."""
    counts = Counter(term for terms in corpus.terms for term in set(terms))
    ranked = [term for term, _ in counts.most_common()]
    hundredth = [term for term in ranked if 0.005 <= counts[term] / len(corpus.terms) <= 0.02]
    chance = random.Random(5)
    found = []
    for name, pool in (("frequent", ranked[:50]), ("medium", hundredth), ("rare", ranked[len(ranked) // 2 :])):
        ours, theirs = [], []
        for number in range(20 * rounds):
            query = chance.sample(pool, min(QUERY_TERMS, len(pool)))
            ours.append(_timed(partial(corpus.index.best, query, HITS)))
            if number % 10 == 0:
                theirs.append(_timed(partial(corpus.library.get_top_n, query, corpus.numbers, HITS)))
        found.append((f"query, {name} terms", Spread.of(ours), Spread.of(theirs).p50))
    return found


def _analysed_by(terms: Callable[[str], list[str]]) -> Analyse:
    return lambda original, content_type: terms(analysis.plain(original, content_type))


def _timed(work: Callable[[], object]) -> float:
    began = thread_time()
    work()
    return thread_time() - began


def _taken(source: Iterator[str], size: int) -> Iterator[bytes]:
    """Texts from a source until they have so many bytes."""
    taken = 0
    while taken < size:
        original = next(source).encode()
        taken += len(original)
        yield original


def _generated() -> Iterator[str]:
    writer = Writer(9)
    while True:
        yield writer.text(writer.size(4_000, 120_000))


def _respelled(texts: Sequence[str]) -> Iterator[str]:
    """The texts over and over; from the second time on, many a word has its letters in another order."""
    yield from texts
    seed = 0
    while True:
        seed += 1
        chance = random.Random(seed)
        spelled: dict[str, str] = {}

        def respell(match: re.Match[str], chance: random.Random = chance, spelled: dict[str, str] = spelled) -> str:
            word = match[0]
            if word not in spelled:
                new = chance.random() < RESPELLED
                spelled[word] = "".join(chance.sample(word, len(word))) if new else word
            return spelled[word]

        for text in texts:
            yield _WORD.sub(respell, text)
