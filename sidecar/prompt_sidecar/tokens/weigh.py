"""Tokens of a message: its items one by one, and what stands around them.

Counts are of decoded text, so that every spelling of a message weighs the same. Encrypted text, which no tokenizer
counts, is weighed by its length, and told apart so that calibration can weigh it by a factor of its own. What a
provider puts around messages is not published in full; the constants follow the figures that are, and are the same for
every format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from prompt_sidecar.prompt.format import CALL_TOKENS
from prompt_sidecar.prompt.items import ItemKind, Message

PER_MESSAGE: Final = 4
"""Role and separators: 3 and 1 in OpenAI's cookbook, "How to count tokens with tiktoken"."""
PRIMING: Final = 3
"""What opens the answer, same source."""
IMAGE_TOKENS: Final = 1_600
"""An image at its largest in Anthropic's "Vision" page; OpenAI's high detail is 765 to 1,105 for common sizes."""
BINARY_CHARACTERS: Final = 4_096
"""Characters from which an unbroken run in an unknown block is taken for encoded binary, which is not read as text."""
BINARY_TOKENS: Final = 1_600
"""Tokens that such a run is taken for, for each 100,000 characters or part of them: about a page of a document."""


class Weight(NamedTuple):
    """Tokens of a message and of each of its items."""

    items: tuple[int, ...]
    total: int
    opaque: int = 0
    """Of the total, tokens of encrypted text."""


def weigh(
    messages: Sequence[Message], count_many: Callable[[Sequence[str]], Sequence[int]], call_tokens: int = CALL_TOKENS
) -> list[Weight]:
    """Count messages.

    Args:
        messages: the messages.
        count_many: counts each of some texts, and may raise, to stop when the caller is gone.
        call_tokens: what the format puts around a call, and around a result.
    """
    texts: list[str] = []
    binary: list[int] = []
    image = ItemKind.IMAGE
    for message in messages:
        texts += ["" if item.kind is image or item.opaque else item.text for item in message.items]
        plain, tokens = without_binary(message.other)
        texts.append(plain)
        binary.append(tokens)
    counts = iter(count_many(texts))
    weights: list[Weight] = []
    for message, tokens in zip(messages, binary, strict=True):
        items = tuple(islice(counts, len(message.items)))
        if message.media:
            items = tuple(
                IMAGE_TOKENS * (item.kind is image) + counted
                for item, counted in zip(message.items, items, strict=True)
            )
        opaque = message.opaque
        if any(item.opaque for item in message.items):
            items = tuple(item.opaque or counted for item, counted in zip(message.items, items, strict=True))
            opaque += sum(item.opaque for item in message.items)
        around = PER_MESSAGE + call_tokens * (len(message.calls) + len(message.answers)) + tokens + next(counts)
        around += message.opaque
        weights.append(Weight(items, around + sum(items), opaque))
    return weights


def count_opaque(text: str, count: Callable[[str], int]) -> int:
    """Count text that may hold encoded binary, such as a document or a signature."""
    plain, tokens = without_binary(text)
    return tokens + count(plain)


def without_binary(text: str) -> tuple[str, int]:
    """A text without encoded binary, and the tokens that this is taken for."""
    if len(text) < BINARY_CHARACTERS:
        return text, 0
    tokens = 0
    kept: list[str] = []
    for piece in text.split('"'):
        if len(piece) >= BINARY_CHARACTERS and " " not in piece[:BINARY_CHARACTERS]:
            tokens += BINARY_TOKENS * (1 + len(piece) // 100_000)
        else:
            kept.append(piece)
    return '"'.join(kept), tokens
