"""Which items of a history a query finds, best first.

Theory. Items whose stash id or call id the query names come first, the newest before the others. After them come items
by their best passage: BM25 ranks all, and the best few dozen are ranked again by the proximity of terms
(`prompt_sidecar.recall.rerank`). Equal items are ordered by recency, as an agent most likely means what it saw last.

Items are only ranked as needed: for five items of twenty thousand about a hundred are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from prompt_sidecar.recall import rerank
from prompt_sidecar.recall.analysis import plain, query_terms
from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.history import History
from prompt_sidecar.recall.index import Hit
from prompt_sidecar.recall.item import HistoryItem

RANKED: Final = 128
"""Items ranked at once: twice the most of one answer, as some are gone or alike."""
WIDER: Final = 8
"""Factor by which more are ranked if these do not suffice."""
RERANKED: Final = rerank.CANDIDATES
"""Items that are ranked again."""
RERANKED_BYTES: Final = 16_777_216
"""Bytes of originals read for that, the best first: some 30 ms where results are huge, else under 1 ms."""
LEAST_NAME: Final = 6
"""Characters from which a word of a longer query can be an id; some providers number calls from 0."""

_AROUND_ID: Final = "\"'`()[]{}<>,;:.!?"
_ID_LABEL: Final = re.compile(r"^(?:call_|tool_call_|stash_)?id[=:]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that matches."""

    number: int
    item: HistoryItem
    alive: bool
    score: float
    """BM25's; 0 where the query names the item."""
    rank: float
    """Sort key of candidates."""
    hit: Hit | None
    """Its best passage; None: show its start."""


@dataclass(slots=True)
class Ranking:
    """The matching items: the ranked ones, and the number of the rest."""

    seen: set[int] = field(default_factory=set)
    alive: int = 0
    gone: int = 0
    total: int = 0

    @property
    def matching(self) -> int:
        """Number of matching items that are still stored, at most: unranked ones are assumed to be."""
        return max(self.alive, self.total - self.gone)

    @property
    def exact(self) -> bool:
        """Whether `matching` is exact: not if some are gone and not all were ranked."""
        return self.gone == 0 or self.alive + self.gone >= self.total


def weigh(history: History, terms: Sequence[str], most: int) -> tuple[dict[str, float], int]:
    """The terms that are used, with their rarity, and the number of those left out.

    Terms without matches are ignored; of the others the rarest are used.
    """
    different = list(dict.fromkeys(terms))
    frequencies = dict(zip(different, history.frequencies(different), strict=True))
    present = sorted((term for term in frequencies if frequencies[term]), key=lambda term: frequencies[term])
    counted = present[:most]
    passages = history.figures().passages
    return rerank.weights(counted, [frequencies[term] for term in counted], passages), len(present) - len(counted)


def ranked(
    history: History,
    query: SearchQuery,
    weights: Mapping[str, float],
    ranking: Ranking,
    check: Callable[[], None],
) -> Iterator[Candidate]:
    """The items that match within the query's filters, best first; keeps `ranking` up to date."""
    numbers, others = _named(history, query.query)
    within = history.within(numbers, query)
    ranking.total = len(within)
    named = _candidates(history, [(number, None) for number in within[:RANKED]], ranking)
    terms = [term for term in query_terms(query.query) if term in weights]  # with repeats: they count as often
    most, ended = RANKED, not terms
    rest: list[Candidate] = []
    while not ended or named:
        if not ended:
            check()
            hits, total = history.best_items(terms, most, query)
            ranking.total = max(ranking.total, total)
            rest = _candidates(history, [(hit.item, hit) for hit in hits if hit.item not in ranking.seen], ranking)
            if most == RANKED:
                rest = _reranked(history, rest, weights)
            most, ended = most * WIDER, len(hits) >= total
        for candidate in named:
            hit = history.best_of(candidate.number, others) if others and candidate.alive else None
            yield replace(candidate, hit=hit)
        named = []
        yield from rest
        rest = []


def _candidates(history: History, matches: Sequence[tuple[int, Hit | None]], ranking: Ranking) -> list[Candidate]:
    """The items of numbers, best first, of equals the newest, and whether they are still there."""
    items = history.at([number for number, _ in matches])
    living = history.alive([item.stash_id for item in items.values()])
    candidates = [
        Candidate(
            number=number,
            item=item,
            alive=item.stash_id in living,
            score=hit.score if hit else 0.0,
            rank=hit.score if hit else math.inf,
            hit=hit,
        )
        for number, hit in matches
        if (item := items.get(number)) is not None
    ]
    ranking.seen.update(items)
    alive = sum(candidate.alive for candidate in candidates)
    ranking.alive += alive
    ranking.gone += len(candidates) - alive
    return sorted(candidates, key=lambda found: (-found.rank, -found.item.iteration, -found.number))


def _named(history: History, query: str) -> tuple[list[int], list[str]]:
    """Numbers of the items whose id the query is or holds, and the terms of the rest of it."""
    whole = history.named(query.strip())
    if whole:
        return whole, []
    numbers: dict[int, None] = {}
    rest = []
    for word in query.split():
        bare = _ID_LABEL.sub("", word.strip(_AROUND_ID)).strip(_AROUND_ID)
        named = history.named(bare) if len(bare) >= LEAST_NAME else []
        numbers.update(dict.fromkeys(named))
        if not named:
            rest.append(word)
    return list(numbers), query_terms(" ".join(rest)) if numbers else []


def _reranked(history: History, candidates: list[Candidate], weights: Mapping[str, float]) -> list[Candidate]:
    """The candidates with the best of them ranked again; lost ones keep their place by BM25."""
    if len(weights) < 2:
        return candidates
    looked: dict[int, Candidate] = {}
    room = RERANKED_BYTES
    for candidate in candidates[:RERANKED]:
        room -= candidate.item.size
        if room < 0:
            break
        looked[candidate.number] = candidate
    originals = history.read([candidate.item.stash_id for candidate in looked.values()])
    again = rerank.rerank(weights, [_passage(candidate, originals) for candidate in looked.values()])
    best = [replace(looked[one.item], rank=one.score + one.bonus) for one in again]
    return best + candidates[len(looked) :]


def _passage(candidate: Candidate, originals: Mapping[str, bytes]) -> rerank.Candidate:
    hit = candidate.hit
    assert hit is not None
    stretch = originals.get(candidate.item.stash_id, b"")[hit.start : hit.end]
    text = plain(stretch, candidate.item.content_type)
    return rerank.Candidate(item=candidate.number, passage=hit.passage, score=hit.score, text=text)
