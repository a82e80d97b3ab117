"""The second look: terms held, and terms close together, raise a passage; nothing lowers one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.recall.analysis import terms
from prompt_sidecar.recall.rerank import PAIR, REACH, Candidate, identifiers, rerank, weights

WEIGHTS = {"error": 2.0, "class": 1.0, "code": 3.0}
TEXTS = st.lists(st.sampled_from(["error", "class", "code", "other", "thing"]), max_size=12).map(" ".join)


def twin(query_terms: Mapping[str, float], text: str) -> float:
    """The bonus by its definition: every pair of places, none of the query's terms between."""
    found = terms(text)
    best: dict[frozenset[str], float] = {}
    for here, there in itertools.combinations(range(len(found)), 2):
        pair = frozenset((found[here], found[there]))
        between = found[here + 1 : there]
        if (
            len(pair) == 2
            and pair <= set(query_terms)
            and not set(between) & set(query_terms)
            and there - here <= REACH
        ):
            worth = PAIR * min(query_terms[term] for term in pair) / (there - here)
            best[pair] = max(best.get(pair, 0.0), worth)
    return sum(query_terms[term] for term in set(found) & set(query_terms)) + sum(best.values())


@given(st.lists(TEXTS, max_size=5))
def test_the_bonus_is_its_definition(texts: list[str]) -> None:
    """Each candidate's bonus equals that of the slow twin, and the order follows; equals keep theirs."""
    given_ = [Candidate(number, 0, 1.0 / (1 + number), text) for number, text in enumerate(texts)]
    looked = rerank(WEIGHTS, given_)
    for candidate in looked:
        assert math.isclose(twin(WEIGHTS, candidate.text), candidate.bonus)
    by_sum = sorted(looked, key=lambda candidate: (-(candidate.score + candidate.bonus), candidate.item))
    assert by_sum == looked


def test_neighbours_come_first() -> None:
    """Of two passages with the same words, the one that has them side by side."""
    apart = Candidate(0, 0, 1.0, "class of a thing, and many other things, and much later an error")
    close = Candidate(1, 0, 1.0, "many other things, and much later a thing: class Error")
    assert [close.item, apart.item] == [candidate.item for candidate in rerank(WEIGHTS, [apart, close])]


def test_more_of_the_query_beats_more_of_one_term() -> None:
    """A passage that lacks a term does not make up for it by repeating another."""
    often = Candidate(0, 0, 3.0, "error; " * 5)
    whole = Candidate(1, 0, 2.5, "error, thing thing thing thing thing, code")
    assert [whole.item, often.item] == [candidate.item for candidate in rerank(WEIGHTS, [often, whole])]


def test_one_term_changes_nothing() -> None:
    """With a single term there is nothing to look at again."""
    candidates = [Candidate(0, 0, 1.0, "x"), Candidate(1, 0, 2.0, "error")]
    assert candidates == rerank({"error": 1.0}, candidates)


def test_weights_are_idf() -> None:
    """Rare terms weigh most; a term in no passage weighs nothing."""
    assert {"a": math.log(11), "b": math.log(11 / 10), "c": 0.0} == weights(["a", "b", "c"], [1, 10, 0], 10)


def test_a_part_of_an_identifier_finds_the_whole() -> None:
    """Of passages with the same words side by side, the one with the identifier to the letter comes first."""
    asked = {"agent_config": 3.0, "agent": 1.0, "config": 1.5}
    names = identifiers("Where is `agent_config`?", asked)
    assert {"agent_config": 1.5} == names
    apart = Candidate(0, 0, 1.0, "an agent config of some kind")
    whole = Candidate(1, 0, 1.0, "an agent_config_path of some kind")
    assert [1, 0] == [candidate.item for candidate in rerank(asked, [apart, whole], names)]


def test_words_are_no_identifiers() -> None:
    """Only names of several parts count to the letter."""
    assert {} == identifiers("where is the error, class?", WEIGHTS)
