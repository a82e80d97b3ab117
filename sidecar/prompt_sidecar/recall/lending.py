"""How an item's neighbours and its length change its score.

Theory. A question is often answered next to the text that has its words: a result does not repeat the path that its
call asks for, and "I did, in March" has no word of the question before it. So an item gets a share of the score of its
best neighbour: a result from its call, by call id, and a message from the one before or after it, if no tool call is
between them. A result lends nothing to its call, which says less, nor to other results, which have other subjects.

The share is of the BM25 score, without the part that all matching passages share, and before the second ranking. Only
the best of several lenders counts, and a lent share is not lent further.

A long text has many passages, of which the best one counts: by chance alone that is better than the one of a short
text, the more so the more there are. The score of a long answer of the model, and its bonus from the second ranking, is
therefore divided by 1 + LENGTH * ln(passages). This is not done for a user's text, which is mostly what is meant, nor
for tool results, which contain the facts.

docs/search-quality.md has the gain and the cost of each.
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
"""Share of its score that a message lends to its neighbours; from 0.2 to 0.4 results differ little."""
LENGTH: Final = 0.2
"""Strength of the division for long answers: one of 20 passages is divided by 1.6."""
ANSWERS: Final = 20
"""Best items whose neighbouring messages are ranked too, though they hold no term."""
NEIGHBOUR_REACH: Final = 8
"""Items looked at on each side for the neighbour of a message: reasoning and images may be between them."""
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
    """Return the divisor of an item's score and bonus, from the number of its passages."""
    if passages < 2 or item.kind is not ItemKind.TEXT or item.role is not Role.ASSISTANT:
        return 1.0
    return 1 + LENGTH * math.log(passages)


def lent(number: int, scores: Mapping[int, float], lenders: Mapping[int, Sequence[Lender]]) -> float:
    """Return the share that the best lender of an item lends to it, from the items' own scores; 0 if none matches."""
    return max((share * scores.get(other, 0.0) for other, share in lenders.get(number, ())), default=0.0)
