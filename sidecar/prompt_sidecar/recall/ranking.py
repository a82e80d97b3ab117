"""Which items of a history a query finds, best first.

Theory. Items whose stash id or call id the query names come first, the newest before the others. After them come items
by their best passage: BM25 ranks all, the best of them lend to their neighbours
(`prompt_sidecar.recall.lending`), and the best few dozen are ranked again by the proximity of terms
(`prompt_sidecar.recall.rerank`). Equal items are ordered by recency, as an agent most likely means what it saw last.
Items that the returned prompt shows whole come after all others: a search most likely looks for what is not shown. They
are moved before the second ranking, so that it is spent on hidden items.

Items are only ranked as needed: for five items of twenty thousand about a hundred are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from prompt_sidecar.recall import rerank
from prompt_sidecar.recall.analysis import plain, query_terms
from prompt_sidecar.recall.found import SearchQuery
from prompt_sidecar.recall.history import History, Matches
from prompt_sidecar.recall.index import Hit
from prompt_sidecar.recall.item import HistoryItem
from prompt_sidecar.recall.lending import ANSWERS, divisor, is_message, lent

RANKED: Final = 128
"""Items ranked at once: twice the most of one answer, as some are gone or alike."""
WIDER: Final = 8
"""Factor by which more items are ranked if these do not suffice."""
RERANKED: Final = rerank.CANDIDATES
"""Items that are ranked again."""
RERANKED_BYTES: Final = 16_777_216
"""Bytes of originals read for the second ranking, the best first: some 30 ms where results are huge, else under 1 ms.
"""
LEAST_NAME: Final = 6
"""Characters from which a word of a longer query can be an id; some providers number calls from 0."""

_AROUND_ID: Final = "\"'`()[]{}<>,;:.!?"
_ID_LABEL: Final = re.compile(r"^(?:call_|tool_call_|stash_)?id[=:]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RankedItem:
    """An item that matches."""

    number: int
    item: HistoryItem
    alive: bool
    visible: bool
    """Whether its text is whole in the returned prompt."""
    score: float
    """BM25 score; 0 where the query names the item."""
    strength: float
    """Its score, divided by its length, with the share lent to it and the bonus of the second ranking."""
    hit: Hit | None
    """Its best passage; None: its start is shown."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key of candidates; those that the query names come first, visible or not."""
        return self.strength == math.inf or not self.visible, self.strength


@dataclass(slots=True)
class Ranking:
    """The matching items: the ranked ones, and the number of the rest."""

    seen: set[int] = field(default_factory=set)
    alive: int = 0
    gone: int = 0
    total: int = 0
    hidden: int = 0
    """Number of ranked items that are alive and not whole in the prompt."""
    regardless: list[RankedItem] = field(default_factory=list)
    """The best ones by a ranking that ignores visibility, at most `RANKED`."""

    @property
    def matching(self) -> int:
        """Most matching items that are still stored: unranked ones are assumed to be."""
        return max(self.alive, self.total - self.gone)

    @property
    def exact(self) -> bool:
        """Whether `matching` is exact: not if some are gone and not all were ranked."""
        return self.gone == 0 or self.alive + self.gone >= self.total


def weigh(history: History, terms: Sequence[str], most: int) -> tuple[dict[str, float], int]:
    """Return the terms that are used, with their rarity, and the number of terms left out.

    Terms without matches are ignored; of the others the rarest are used.
    """
    different = list(dict.fromkeys(terms))
    frequencies = dict(zip(different, history.frequencies(different), strict=True))
    present = sorted((term for term in frequencies if frequencies[term]), key=lambda term: frequencies[term])
    counted = present[:most]
    passages = history.figures().passages
    return rerank.weights(counted, [frequencies[term] for term in counted], passages), len(present) - len(counted)


def ranked(  # noqa: PLR0917 - what is searched, for what, and two that every step needs
    history: History,
    query: SearchQuery,
    weights: Mapping[str, float],
    ranking: Ranking,
    check: Callable[[], None],
    visible: AbstractSet[str] = frozenset(),
) -> Iterator[RankedItem]:
    """Yield the items that match within the query's filters, best first; keeps `ranking` up to date.

    Items whose ids are `visible` come after all others, unless the query names them.
    """
    numbers, others = _named(history, query.query)
    within = history.fetched(history.within(numbers, query), check)
    ranking.total = len(within)
    behind = history.numbers(visible)
    named = _candidates(history, [(number, None) for number in within[:RANKED]], behind, ranking)
    ranking.regardless = named
    terms = [term for term in query_terms(query.query) if term in weights]  # with repeats: each counts
    most, ended = RANKED, not terms
    rest: list[RankedItem] = []
    last: list[RankedItem] = []
    while not ended or named:
        if not ended:
            check()
            matches = history.best_items(terms, most, query, behind)
            best = matches.best
            ranking.total = max(ranking.total, best.total)
            unseen: list[tuple[int, Hit | None]] = [
                (hit.item, hit) for hit in (*best.hits, *best.neighbours) if hit.item not in ranking.seen
            ]
            if most == RANKED:
                answers = _answers(history, matches, query)
                unseen += [(number, None) for number in answers if number not in ranking.seen]
            found = _candidates(history, unseen, behind, ranking, matches)
            if most == RANKED:
                found = _reranked(history, found, weights, ranking, query.query)
            ended = len(best.hits) >= best.total
            rest = [candidate for candidate in found if not candidate.visible]
            last += [candidate for candidate in found if candidate.visible]
            if ended or sum(hit.item not in behind for hit in best.hits) < most:
                rest, last = rest + last, []
            most *= WIDER
        for candidate in named:
            hit = history.best_of(candidate.number, others) if others and candidate.alive else None
            yield replace(candidate, hit=hit)
        named = []
        yield from rest
        rest = []


def _candidates(
    history: History,
    found: Sequence[tuple[int, Hit | None]],
    behind: AbstractSet[int],
    ranking: Ranking,
    matches: Matches | None = None,
) -> list[RankedItem]:
    """Return the items of numbers by strength, of equal ones the newest first, without those that are gone.

    Without `matches` the query names them, and their strength is infinite.
    """
    items = history.at([number for number, _ in found])
    living = history.alive([item.stash_id for item in items.values()])
    strengths = _strengths(items, found, matches) if matches else {}
    candidates = [
        RankedItem(
            number=number,
            item=item,
            alive=item.stash_id in living,
            visible=number in behind,
            score=hit.score if hit else 0.0,
            strength=strengths.get(number, math.inf),
            hit=hit,
        )
        for number, hit in found
        if (item := items.get(number)) is not None
    ]
    ranking.seen.update(items)
    alive = sum(candidate.alive for candidate in candidates)
    ranking.alive += alive
    ranking.hidden += sum(candidate.alive and not candidate.visible for candidate in candidates)
    ranking.gone += len(candidates) - alive
    return sorted(candidates, key=lambda one: (-one.strength, -one.item.iteration, -one.number))


def _strengths(
    items: Mapping[int, HistoryItem], found: Sequence[tuple[int, Hit | None]], matches: Matches
) -> dict[int, float]:
    """Return each item's strength: its best passage and length, plus the share that neighbours lend to it."""
    constant = matches.best.constant
    own = {
        number: (hit.score - constant) / divisor(items[number], hit.of) if hit else 0.0
        for number, hit in found
        if number in items
    }
    return {number: score + lent(number, own, matches.lenders) for number, score in own.items()}


def _named(history: History, query: str) -> tuple[list[int], list[str]]:
    """Return the numbers of items whose id the query is or contains, and the terms of the rest of it."""
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


def _reranked(
    history: History, candidates: list[RankedItem], weights: Mapping[str, float], ranking: Ranking, query: str
) -> list[RankedItem]:
    """Return the candidates, hidden ones first, the best of each ranked again; lost ones keep their BM25 position."""
    hidden = [candidate for candidate in candidates if not candidate.visible]
    visible = [candidate for candidate in candidates if candidate.visible]
    lists = (hidden, visible, candidates[:RANKED])
    if len(weights) > 1:
        looked = [_first(each) for each in (lists if visible else (hidden,))]
        again = {candidate.number: candidate for each in looked for candidate in each}
        originals = history.read([candidate.item.stash_id for candidate in again.values()])
        passages = [_passage(candidate, originals) for candidate in again.values()]
        names = rerank.identifiers(query, weights)
        bonuses = {one.item: one.bonus for one in rerank.rerank(weights, passages, names)}
        strengths = {
            one.number: one.strength + bonuses[one.number] / divisor(one.item, one.hit.of if one.hit else 0)
            for one in again.values()
        }
        hidden, visible, regardless = (_by_strength(each, strengths) for each in lists)
    else:
        regardless = candidates[:RANKED]
    ranking.regardless = ranking.regardless + regardless
    return hidden + visible


def _answers(history: History, matches: Matches, query: SearchQuery) -> list[int]:
    """Return the messages next to the best few hits that have no term themselves, such as answers to a question."""
    matching = {hit.item for hit in (*matches.best.hits, *matches.best.neighbours)}
    numbers = dict.fromkeys(
        lender.number
        for hit in matches.best.hits[:ANSWERS]
        for lender in matches.lenders.get(hit.item, ())
        if lender.number not in matching
    )
    items = history.at(numbers)
    return history.within([number for number in numbers if number in items and is_message(items[number])], query)


def _first(candidates: list[RankedItem]) -> list[RankedItem]:
    """Return the candidates to rank again: the best few, within the bound of bytes."""
    sizes = accumulate(candidate.item.size for candidate in candidates[:RERANKED])
    return candidates[: sum(size <= RERANKED_BYTES for size in sizes)]


def _by_strength(candidates: list[RankedItem], strengths: Mapping[int, float]) -> list[RankedItem]:
    """Return the candidates with the first ones in the order of the second ranking."""
    count = len(_first(candidates))
    best = [replace(candidate, strength=strengths[candidate.number]) for candidate in candidates[:count]]
    return sorted(best, key=lambda candidate: -candidate.strength) + candidates[count:]


def _passage(candidate: RankedItem, originals: Mapping[str, bytes]) -> rerank.Candidate:
    hit = candidate.hit
    if hit is None:
        return rerank.Candidate(item=candidate.number, passage=0, score=0.0, text="")
    stretch = originals.get(candidate.item.stash_id, b"")[hit.start : hit.end]
    text = plain(stretch, candidate.item.content_type)
    return rerank.Candidate(item=candidate.number, passage=hit.passage, score=hit.score, text=text)
