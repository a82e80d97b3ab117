"""The code retrieval set: chunks of code, questions, and for each question the chunks that answer it.

From Anthropic's cookbook on contextual retrieval; its metric is Pass@k. The questions are split in two by a hash, so
that what is tuned on one half is told by the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.retrieval.search import Search
from tests.oracle.data import document, lines

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


def measure(search: Search, questions: Sequence[Question], texts: Sequence[str]) -> Passes:
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
