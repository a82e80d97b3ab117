"""Tokens of a message: its items one by one, and what stands around them.

Counts are of decoded text, so that every spelling of a message weighs the same. What a provider puts around messages is
not published in full; the constants follow the figures that are, and are the same for every format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sidecar.prompt.items import Item, ItemKind, Message

PER_MESSAGE: Final = 4
"""Role and separators: 3 and 1 in OpenAI's cookbook, "How to count tokens with tiktoken"."""
PER_CALL: Final = 8
"""A tool call's or result's own framing and its id as a provider shows it to the model."""
PRIMING: Final = 3
"""What opens the answer, same source."""
IMAGE_TOKENS: Final = 1_600
"""An image at its largest in Anthropic's "Vision" page; OpenAI's high detail is 765 to 1,105 for common sizes."""
BINARY_CHARACTERS: Final = 4_096
"""Characters from which an unbroken run in an unknown block is taken for encoded binary, which is not read as text."""
BINARY_TOKENS: Final = 1_600
"""Tokens that such a run is taken for, for each 100,000 characters or part of them: about a page of a document."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Tokens of a message and of each of its items."""

    items: tuple[int, ...]
    total: int


def weigh(message: Message, count: Callable[[str], int]) -> Weight:
    """Count a message. `count` may raise, to stop when the caller is gone."""
    items = tuple(_item(item, count) for item in message.items)
    around = PER_MESSAGE + PER_CALL * (len(message.calls) + len(message.answers))
    if message.other:
        around += count_opaque(message.other, count)
    return Weight(items, around + sum(items))


def count_opaque(text: str, count: Callable[[str], int]) -> int:
    """Count text that may hold encoded binary, such as a document or a signature."""
    if len(text) < BINARY_CHARACTERS:
        return count(text)
    tokens = 0
    kept: list[str] = []
    for piece in text.split('"'):
        if len(piece) >= BINARY_CHARACTERS and " " not in piece[:BINARY_CHARACTERS]:
            tokens += BINARY_TOKENS * (1 + len(piece) // 100_000)
        else:
            kept.append(piece)
    return tokens + count('"'.join(kept))


def _item(item: Item, count: Callable[[str], int]) -> int:
    if item.kind is ItemKind.IMAGE:
        return IMAGE_TOKENS
    return count(item.text) if item.text else 0
