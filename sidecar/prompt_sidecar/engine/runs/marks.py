"""The share of its limit that a run's prompts have reached: announced once for each mark."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from prompt_sidecar.facts.history_size import HistorySize

MARKS: Final = (50, 80, 95)
"""Per cent of the limit that an answer announces. The default policy trims at 99, so 95 means that a cut is near."""
AGAIN_SHARE: Final = 0.5
"""A mark is announced again once the history was rewound to less than this share of what it was: a retry or a branch
near the end is the same run, a history cut to under half is a new start."""


def crossed(tokens: int, limit: int, already: Collection[int] = ()) -> tuple[int, ...]:
    """Return the marks that a prompt of this size has reached and that were not announced yet, lowest first.

    The size of the previous prompt is not considered: a limit that becomes lower crosses marks too, without any growth.
    """
    return tuple(mark for mark in MARKS if limit > 0 and tokens * 100 >= mark * limit and mark not in already)


@dataclass(slots=True)
class Marks:
    """The marks announced in one run's answers: each once, though trimming in batches crosses the lower ones often.

    Measured is the returned prompt: what the model's window has to hold. The marks are a notice and no decision, so
    each process keeps its own: one that takes over a run announces its marks again.
    """

    _announced: dict[int, int] = field(default_factory=dict)
    """For each announced mark, the tokens of the untrimmed history at that time."""

    def crossing(self, size: HistorySize, limit: int) -> tuple[int, ...]:
        """Return the marks to announce with this prompt. Changes nothing; size and limit are in the same tokens."""
        already = [mark for mark, sent in self._announced.items() if size.tokens_sent >= AGAIN_SHARE * sent]
        return crossed(size.tokens_returned, limit, already)

    def announce(self, size: HistorySize, limit: int) -> tuple[int, ...]:
        """Return the marks to announce with this prompt, and remember them as announced."""
        marks = self.crossing(size, limit)
        for mark in [mark for mark, sent in self._announced.items() if size.tokens_sent < AGAIN_SHARE * sent]:
            del self._announced[mark]
        self._announced.update(dict.fromkeys(marks, size.tokens_sent))
        return marks
