"""Search finds as much as was measured: on code retrieval, on facts of recorded runs, and on a generated corpus."""

from __future__ import annotations

import random

import pytest

from tests.lab.retrieval import asking, manuals
from tests.lab.retrieval.search import by_history, by_index
from tests.oracle.data import need

LEAST = (80.9, 86.5, 89.3)
"""Pass@5, 10 and 20 of BM25 over split, stemmed words without function words, as measured before this was written."""


def test_code_retrieval() -> None:
    """Pass@5/10/20 reach what BM25 with good words reaches, and the second look pays on the held-out half."""
    texts, questions = asking.load(need(asking.CHUNKS), need(asking.QUESTIONS))
    bare = asking.passes(by_index(texts, reranked=False), questions, texts)
    final = asking.passes(by_index(texts), questions, texts)
    for passes in (bare, final):
        assert [] == [(least, had) for least, had in zip(LEAST, passes.all, strict=True) if round(had, 1) < least]
    assert sum(final.held_out) > sum(bare.held_out)


@pytest.mark.parametrize("name", asking.RUNS)
def test_facts_of_a_run(name: str) -> None:
    """Of facts whose words single them out 95 % are found first and 99 % among the first three."""
    texts = asking.results(need(name))
    found = asking.found_of(by_index(texts), asking.sample(texts))
    assert (True, True) == (found.first >= 95, found.three >= 99), found


def _corpus(seed: int, count: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Files of functions with names from a small vocabulary, and questions on one function each."""
    draw = random.Random(seed)
    verbs = ["load", "parse", "merge", "render", "verify", "encode", "retry", "flush"]
    nouns = ["invoice", "session", "token", "header", "cluster", "ledger", "packet", "schema"]
    names = [(verb, noun) for verb in verbs for noun in nouns]
    draw.shuffle(names)
    texts, asked = [], []
    for number, (verb, noun) in enumerate(names[:count]):
        code = f"E{draw.randrange(1000, 9999)}"
        filler = "\n".join(f"    check({draw.choice(nouns)}, {draw.random()})" for _ in range(40))
        texts.append(f"def {verb}{noun.title()}(value):\n{filler}\n    raise Failure('{code}: cannot {verb} it')")
        asked += [(f"How does {verb}{noun.title()} work?", number), (code.lower(), number)]
        asked.append((f"the function that {verb}s the {noun}", number))
    return texts, asked


def test_generated_corpus() -> None:
    """Names, parts of names and error codes lead to the function they belong to."""
    texts, asked = _corpus(7, 60)
    search = by_index(texts)
    missed = [query for query, number in asked if search(query)[:1] != [number]]
    assert [] == missed


def test_facts_are_drawn_alike() -> None:
    """The same seed draws the same facts, each from a large text, and of telling ones no other text has all words."""
    draw = random.Random(2)
    texts = [
        "\n".join(f"line {draw.random()} of {draw.choice(('red', 'blue'))} things" for _ in range(90)) for _ in range(5)
    ]
    drawn = asking.sample(texts, count=10)
    assert drawn == asking.sample(texts, count=10)
    assert [True] * 10 == [fact.telling and fact.line in texts[min(fact.holders)] for fact in drawn]


MANUAL = """\x1f
File: made.info,  Node: Top,  Up: (dir)

Made
****

Words of welcome.
\x1f
File: made.info,  Node: Sorting,  Next: Index,  Up: Top

1 Sorting lines
===============

The lines are ordered by their keys.
\x1f
File: made.info,  Node: Index,  Prev: Sorting,  Up: Top

Index
*****

* Menu:

* keys, order by:                        Sorting.              (line  5)
* lines:                                 Sorting.              (line  5)
"""


def test_a_manual_is_a_conversation() -> None:
    """Titles and texts of sections in turn; index entries of two terms and more are questions on them."""
    made = manuals.conversation(MANUAL)
    sections = ("Made", "Words of welcome.", "1 Sorting lines", "The lines are ordered by their keys.")
    assert (sections, (("keys, order by", 3),)) == (made.messages, made.questions)
    assert ((100.0, 100.0), (100.0, 100.0)) == manuals.recall(by_history(made.messages), made)
