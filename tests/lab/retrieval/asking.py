"""What search is asked, and how often it finds it: a set of questions on chunks of code, and facts of recorded runs.

The set is from Anthropic's cookbook on contextual retrieval; its metric is Pass@k. The questions are split in two by a
hash, so that what is tuned on one half is told by the other. A fact is a rare line of a tool result, asked for by two
or three of its rarer words.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prompt_sidecar.recall.analysis import STOPWORDS
from tests.lab.peers.material import result_texts
from tests.lab.retrieval.search import Search
from tests.oracle.data import document, lines
from tests.oracle.runs import recorded

CHUNKS: Final = "retrieval/codebase_chunks.json.gz"
QUESTIONS: Final = "retrieval/evaluation_set.jsonl.gz"
DEPTHS: Final = (5, 10, 20)
"""The k of Pass@k."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the numbers of the chunks that answer it."""

    text: str
    golden: tuple[int, ...]

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the half that nothing was tuned on."""
        return bool(hashlib.sha256(self.text.encode()).digest()[0] & 1)


@dataclass(frozen=True, slots=True)
class Passes:
    """Pass@5, @10 and @20 in per cent: of all questions, of the half to tune on, of the half held out."""

    all: tuple[float, ...]
    tuned: tuple[float, ...]
    held_out: tuple[float, ...]


def load(chunks: Path, questions: Path) -> tuple[list[str], list[Question]]:
    """The chunks' texts and the questions."""
    texts: list[str] = []
    numbers: dict[tuple[str, int], int] = {}
    for file in document(chunks):
        for chunk in file["chunks"]:
            numbers[file["original_uuid"], chunk["original_index"]] = len(texts)
            texts.append(chunk["content"])
    asked = [
        Question(line["query"], tuple(numbers[uuid, index] for uuid, index in line["golden_chunk_uuids"]))
        for line in lines(questions)
    ]
    return texts, asked


def passes(search: Search, questions: Sequence[Question], texts: Sequence[str]) -> Passes:
    """Pass@k: for each question the share of its chunks among the first k found, averaged.

    Search may show equal texts once, so a chunk counts as found where one of the same text is.
    """
    rows: list[tuple[float, ...]] = []
    for question in questions:
        found = [texts[number] for number in search(question.text)]
        wanted = [texts[number] for number in question.golden]
        rows.append(tuple(100 * sum(text in found[:depth] for text in wanted) / len(wanted) for depth in DEPTHS))
    held = [question.held_out for question in questions]
    return Passes(
        all=_mean(rows),
        tuned=_mean([row for row, out in zip(rows, held, strict=True) if not out]),
        held_out=_mean([row for row, out in zip(rows, held, strict=True) if out]),
    )


def _mean(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(column) / len(rows) for column in zip(*rows, strict=True)) if rows else (0.0,) * len(DEPTHS)


RUNS: Final = ("runs/pi-large.openai_chat.json.gz", "runs/claude-code-large.anthropic.json.gz")
SEED: Final = 3
FACTS: Final = 100
LARGE: Final = 2_000
"""Characters from which a result is worth eliding; what is shorter is clipped at most."""
RARE: Final = 2
"""Results that may hold a rare line: the one that it comes from and a repeat."""
LINE: Final = range(20, 301)
"""Characters of a line that tells something and can be asked for."""

_WORD = re.compile(r"[^\W_]\w{2,63}")


@dataclass(frozen=True, slots=True)
class Fact:
    """What is asked, and the numbers of the results whose text holds the line."""

    query: str
    line: str
    holders: frozenset[int]
    telling: bool
    """Whether its words single the line out: no result without the line holds all of them."""


@dataclass(frozen=True, slots=True)
class Found:
    """Of the facts, in per cent: found in the first result, and within the first three; and those that were not."""

    first: float
    three: float
    missed: tuple[Fact, ...]


def results(path: Path) -> list[str]:
    """The texts of a run's tool results, in order."""
    run = recorded(path)
    return [text for message in run.messages for _, text in result_texts(run.format, message)]


def sample(texts: Sequence[str], *, telling: bool = True, seed: int = SEED, count: int = FACTS) -> list[Fact]:
    """Facts from large results: each a line that few results hold, asked for by words that few hold.

    `telling`: only facts that are. Of the others ("expected ts2554" in a run that compiled six times) no search can
    know which result is meant.
    """
    draw = random.Random(seed)
    words = [_words(text) for text in texts]
    frequency = Counter(word for each in words for word in each)
    large = [text for text in texts if len(text) >= LARGE]
    chosen: dict[str, Fact] = {}
    for _ in range(100 * count):
        if len(chosen) == count or not large:
            break
        line = draw.choice(draw.choice(large).splitlines()).strip()
        asked = sorted(_words(line), key=lambda word: (frequency[word], word))
        if line in chosen or len(line) not in LINE or len(asked) < 3:
            continue
        holders = frozenset(number for number, text in enumerate(texts) if line in text)
        if len(holders) <= RARE:
            rarer = draw.sample(asked[:3], draw.choice((2, 3)))
            holding = {number for number, held in enumerate(words) if held.issuperset(rarer)}
            if holding <= holders or not telling:
                chosen[line] = Fact(" ".join(rarer), line, holders, telling=holding <= holders)
    return list(chosen.values())


def _words(text: str) -> set[str]:
    """Words that can be asked for: function words are no terms, though some are rare in logs."""
    return {word.lower() for word in _WORD.findall(text)} - STOPWORDS


def found_of(search: Search, facts: Sequence[Fact]) -> Found:
    """How many facts are found first, and among the first three."""
    places = [_place(search(fact.query), fact) for fact in facts]
    return Found(
        first=100 * sum(place == 0 for place in places) / len(facts),
        three=100 * sum(place < 3 for place in places) / len(facts),
        missed=tuple(fact for fact, place in zip(facts, places, strict=True) if place),
    )


def _place(found: Sequence[int], fact: Fact) -> int:
    return next((place for place, number in enumerate(found) if number in fact.holders), len(found) + 3)
