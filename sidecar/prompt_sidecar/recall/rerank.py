"""Ranking the best passages again: those with more of a query's terms, and with these close together, come first.

Theory. BM25 ignores order: a passage about `Error` that also has `class` somewhere scores like one with `class Error`.
And many occurrences of one term compensate for a missing one. So the best passages get a bonus on
their score, of three sums over the query's different terms, each weighed by its idf:

    for each term that the passage holds              weight
    for each pair within a distance of REACH terms     PAIR * min(weight, weight of the other) / distance
    for each identifier that it holds to the letter    weight of its rarest part

The first is the lower bound of BM25+ as its authors meant it, for terms that occur (Lv and Zhai, "Lower-Bounding Term
Frequency Normalization", 2011); the library whose scores our index has adds it for absent ones too: it ranks nothing.
The second is term proximity (Rasolofo and Savoy, "Term Proximity Scoring for Keyword-Based Retrieval Systems", 2003): a
pair counts once, at its closest, with no other term of the query between. A name's parts are adjacent in a text
as in a query, so names count a little more as well. The third finds the whole by a part: `agent_config` is a term of
its own, and none of `agent_config_path`.

A bonus is never negative: passages that were not ranked again stay behind those that were, in their order, and a place
in the list is explained by two numbers. Measured on code retrieval, where it pays on the held-out half too, and on
facts of recorded runs: docs/search-quality.md.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prompt_sidecar.recall import analysis

CANDIDATES: Final = 50
"""Passages that are ranked again, the best of as many items: 1.7 ms of work. With 20 half a point less is found between
the tenth and the twentieth place, and as much before."""
REACH: Final = 4
"""Terms from one term of a pair to the other; 2, 8 and 16 measure within a quarter of a point of it."""
PAIR: Final = 2.0
"""The value of a pair of neighbours, in weights of its commoner term. Chosen on half of the questions: 3 and 4 measure
the same there, 1 is 0.6 points of Pass@k lower."""


_AROUND: Final = "\"'`()[]{}<>,;:.!?"
_IDENTIFIER: Final = re.compile(r"[\w./@-]+", re.ASCII)
_NO_NAMES: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that BM25 found."""

    item: int
    passage: int
    score: float
    """BM25 score."""
    text: str
    """Decoded, as it was indexed: `analysis.plain` of its bytes."""
    bonus: float = 0.0
    """The bonus for its terms and pairs; set by `rerank`."""


def weights(terms: Sequence[str], frequencies: Sequence[int], passages: int) -> dict[str, float]:
    """Return the idf of each term, as in BM25+: of `passages`, `frequencies[i]` have `terms[i]`. 0 if none has it."""
    return {
        term: math.log((passages + 1) / frequency) if 0 < frequency <= passages else 0.0
        for term, frequency in zip(terms, frequencies, strict=True)
    }


def identifiers(query: str, query_terms: Mapping[str, float]) -> dict[str, float]:
    """Return a query's identifiers of several parts, in lower case, with the weight of the rarest part.

    `query_terms` maps each term to its weight (see `weights`).
    """
    found: dict[str, float] = {}
    for word in query.split():
        parts = analysis.query_terms(word)
        bare = word.strip(_AROUND).lower()
        if len(parts) > 2 and _IDENTIFIER.fullmatch(bare):  # itself and at least two parts
            found[bare] = max(query_terms.get(part, 0.0) for part in parts[1:])
    return found


def rerank(
    query_terms: Mapping[str, float], candidates: Sequence[Candidate], names: Mapping[str, float] = _NO_NAMES
) -> list[Candidate]:
    """Return the candidates by the sum of score and bonus, best first; equal ones in the given order.

    `query_terms` maps each term to its weight (see `weights`), `names` the query's identifiers (see `identifiers`).
    Linear in the candidates' text.
    """
    if len(query_terms) < 2:
        return list(candidates)
    looked = [replace(candidate, bonus=_bonus(query_terms, candidate.text, names)) for candidate in candidates]
    return sorted(looked, key=lambda candidate: -(candidate.score + candidate.bonus))


def _bonus(query_terms: Mapping[str, float], text: str, names: Mapping[str, float]) -> float:
    lower = text.lower() if names else ""
    literal = sum(weight for name, weight in names.items() if name in lower)
    asked = [(place, term) for place, term in enumerate(analysis.terms(text)) if term in query_terms]
    closest: dict[tuple[str, str], int] = {}
    for (place, term), (next_place, next_term) in itertools.pairwise(asked):
        distance = next_place - place
        if distance <= REACH and term != next_term:
            pair = (term, next_term) if term < next_term else (next_term, term)
            closest[pair] = min(distance, closest.get(pair, REACH))
    pairs = sum(min(query_terms[a], query_terms[b]) / distance for (a, b), distance in closest.items())
    return sum(query_terms[term] for term in {term for _, term in asked}) + PAIR * pairs + literal
