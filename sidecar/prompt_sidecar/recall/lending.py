"""What an item's score owes to its neighbours and to its length.

Theory. A question is often answered next to the text that has its words: a result does not repeat the path that its
call asks for, and "I did, in March" has no word of the question before it. So an item is lent a share of the score of
the best neighbour: a result of its call, by call id, and a message of the one before or after it, where no tool call
stands between. A result lends nothing to its call, which says less, nor to other results, which are of other
subjects.

What is lent is a share of the score by BM25, without the part that all matching passages have alike and before the
second look. The best of several lenders counts, and nothing is lent on.

A long text has many passages, of which the best one counts: by chance alone that is better than the one of a short
text, the more so the more there are. For a long answer of the model its score, and its bonus of the second look, is
therefore divided by 1 + LENGTH * ln(passages). Not for what a user wrote, as that is what is mostly meant, and not for
tool results, where facts stand.

docs/search-quality.md has what each of these gives and costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from prompt_sidecar.prompt.items import ItemKind, Role
from prompt_sidecar.recall.item import HistoryItem

CALL_SHARE: Final = 0.4
"""Share of its score that a call lends to its result; with 0.8 less is found by name."""
MESSAGE_SHARE: Final = 0.3
"""Share of its score that a message lends to the ones before and after it; from 0.2 to 0.4 it is much the same."""
LENGTH: Final = 0.2
"""By how much a long answer is divided: one of 20 passages by 1.6."""
ANSWERS: Final = 20
"""Best items whose neighbouring messages are ranked too, though they hold no term."""
NEIGHBOUR_REACH: Final = 8
"""Items looked at on each side for the neighbour of a message: reasoning and images may stand between."""
MOST_OF_CALL: Final = 8
"""Items of one call id that are looked at: some agents number the calls of each answer from 0."""

OF_CALLS: Final = frozenset({ItemKind.ARGUMENTS, ItemKind.RESULT})
"""Kinds of the parts of a call."""
_SPOKEN: Final = frozenset({Role.USER, Role.ASSISTANT})


class Lender(NamedTuple):
    """An item that lends a share of its score to a neighbour."""

    number: int
    share: float


def is_message(item: HistoryItem) -> bool:
    """Whether an item is a text that the user or the model wrote."""
    return item.kind is ItemKind.TEXT and item.role in _SPOKEN


def divisor(item: HistoryItem, passages: int) -> float:
    """By what an item's score and bonus are divided, given the number of its passages."""
    if passages < 2 or item.kind is not ItemKind.TEXT or item.role is not Role.ASSISTANT:
        return 1.0
    return 1 + LENGTH * math.log(passages)


def lent(number: int, scores: Mapping[int, float], lenders: Mapping[int, Sequence[Lender]]) -> float:
    """What the best lender of an item lends to it, given what each has of itself; 0 if none of them matches."""
    return max((share * scores.get(other, 0.0) for other, share in lenders.get(number, ())), default=0.0)
