"""The size of a prompt's history: tokens by kind, as sent and as returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from operator import sub


class SizeKind(StrEnum):
    """What tokens are used for. Every token of a prompt belongs to exactly one kind."""

    SYSTEM = "system"
    TOOL_SCHEMAS = "tool_schemas"
    USER = "user"
    ASSISTANT_TEXT = "assistant_text"
    CALLS = "calls"
    RESULTS = "results"
    MEDIA = "media"
    OWN_TEXT = "own_text"
    OTHER = "other"
    REASONING = "reasoning"


@dataclass(frozen=True, slots=True)
class KindSize:
    """One kind's share of a history."""

    tokens_sent: int
    """Untrimmed, as first sent."""
    tokens_returned: int
    """As it is returned."""
    items: int
    """Number of texts, calls, results, images; for OTHER, of messages with unknown blocks; dropped ones are counted."""


@dataclass(frozen=True, slots=True)
class HistorySize:
    """The size of one prompt's history. Tokens are estimates in the encoding of the prompt's token figures."""

    by_kind: Mapping[SizeKind, KindSize]
    """Every kind, in the order of `SizeKind`."""
    messages: int
    """Messages of the untrimmed history, leading system messages included."""
    messages_returned: int
    """Messages of the returned prompt, our own included."""
    tokens_sent: int
    tokens_returned: int
    share_of_limit: float
    """The returned prompt's share of the limit; above 1 it does not fit."""

    def scaled(self, calibrate: Callable[[int], int]) -> HistorySize:
        """Return the size in calibrated tokens; kinds still add up to the totals.

        The share of the limit stays: it was measured with the limit in the same tokens.

        Args:
            calibrate: turns raw tokens into calibrated ones, as in the prompt's token figures; 0 stays 0, and more
                never becomes less.
        """
        sent = _scaled([size.tokens_sent for size in self.by_kind.values()], calibrate)
        returned = _scaled([size.tokens_returned for size in self.by_kind.values()], calibrate)
        return replace(
            self,
            by_kind={
                kind: KindSize(*tokens, size.items)
                for (kind, size), tokens in zip(self.by_kind.items(), zip(sent, returned, strict=True), strict=True)
            },
            tokens_sent=sum(sent),
            tokens_returned=sum(returned),
        )


def _scaled(tokens: Sequence[int], calibrate: Callable[[int], int]) -> list[int]:
    """Convert numbers so that they add up to the converted total: each is converted together with those before it."""
    sums = [calibrate(total) for total in accumulate(tokens)]
    return list(map(sub, sums, [0, *sums]))
