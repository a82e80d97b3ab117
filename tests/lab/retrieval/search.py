"""The seam: texts in, a search over them out. In process by the index, or by rank-bm25 for the ablation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import rank_bm25

from prompt_sidecar.recall import analysis
from prompt_sidecar.recall.index import Hit, Index
from prompt_sidecar.recall.rerank import CANDIDATES, Candidate, rerank, weights

Search = Callable[[str], Sequence[int]]
"""The numbers of the texts that a query finds, best first, each once."""
SHOWN: Final = 20
"""Texts that a query may find."""


def by_library(texts: Sequence[str], analyser: analysis.Analyser, *, plus: bool) -> Search:
    """Whole texts, ranked by rank-bm25: BM25Plus or BM25Okapi."""
    made = rank_bm25.BM25Plus if plus else rank_bm25.BM25Okapi
    library = made([analyser.terms(text) for text in texts])

    def search(query: str) -> Sequence[int]:
        scores = library.get_scores(analyser.terms(query))
        return sorted(range(len(texts)), key=lambda number: (-scores[number], -number))[:SHOWN]

    return search


def by_index(texts: Sequence[str], *, reranked: bool = True) -> Search:
    """Passages, ranked by our index; a text ranks as its best passage. `reranked`: with a second look at the best."""
    index, originals = Index(), [text.encode() for text in texts]
    for number, original in enumerate(originals):
        for _ in index.add(number, original, "text/plain"):
            pass

    def candidate(hit: Hit) -> Candidate:
        text = analysis.plain(originals[hit.item][hit.start : hit.end], "text/plain")
        return Candidate(hit.item, hit.passage, hit.score, text)

    def search(query: str) -> Sequence[int]:
        terms = analysis.query_terms(query)
        hits, _ = index.best_of_items(terms, max(SHOWN, CANDIDATES))
        found = [hit.item for hit in hits]
        if reranked:
            weighed = weights(terms, index.document_frequencies(terms), index.passages)
            again = rerank(weighed, [candidate(hit) for hit in hits[:CANDIDATES]])
            found[: len(again)] = [each.item for each in again]
        return found[:SHOWN]

    return search
