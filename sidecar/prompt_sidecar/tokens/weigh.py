"""Tokens of a message: its items one by one, and their framing.

Counts are of decoded text, so that they do not depend on a message's encoding. Encrypted text, which no tokenizer
counts, is estimated by its length and counted separately, as it has a calibration factor of its own. Providers do not
publish their framing in full; the constants follow the published figures, and are the same for every format.
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
"""Tokens that begin the answer; same source."""
IMAGE_TOKENS: Final = 1_600
"""Tokens of the largest image in Anthropic's "Vision" page; OpenAI's high detail is 765 to 1,105 for common sizes."""
BINARY_CHARACTERS: Final = 4_096
"""Length from which an unbroken run in an unknown block is treated as encoded binary rather than text."""
BINARY_TOKENS: Final = 1_600
"""Tokens of such a run for each 100,000 characters or part of them: about a page of a document."""


class Weight(NamedTuple):
    """Tokens of a message and of each of its items."""

    items: tuple[int, ...]
    total: int
    opaque: int = 0
    """Those of the total that are encrypted text."""

    def nothing(self) -> Weight:
        """Return the weight of the same message if the model does not see it."""
        return Weight((0,) * len(self.items), 0)


def weigh(
    messages: Sequence[Message], count_many: Callable[[Sequence[str]], Sequence[int]], call_tokens: int = CALL_TOKENS
) -> list[Weight]:
    """Count messages.

    Args:
        messages: the messages.
        count_many: counts several texts, and may raise to stop when the caller has cancelled.
        call_tokens: the format's framing of a call, and of a result.
    """
    texts: list[str] = []
    binary: list[int] = []
    image = ItemKind.IMAGE
    for message in messages:
        unseen = message.unseen_items
        texts += ["" if item.kind is image or item.opaque else item.text for item in message.items[unseen:]]
        plain, tokens = without_binary(message.other)
        texts.append(plain)
        binary.append(tokens)
    counts = iter(count_many(texts))
    weights: list[Weight] = []
    for message, tokens in zip(messages, binary, strict=True):
        unseen = message.unseen_items
        seen = message.items[unseen:] if unseen else message.items
        items = tuple(islice(counts, len(seen)))
        if message.media:
            items = tuple(
                IMAGE_TOKENS * (item.kind is image) + counted for item, counted in zip(seen, items, strict=True)
            )
        opaque = message.opaque
        if any(item.opaque for item in seen):
            items = tuple(item.opaque or counted for item, counted in zip(seen, items, strict=True))
            opaque += sum(item.opaque for item in seen)
        framed = len(message.calls) + len(message.answers) - message.unseen_calls
        around = PER_MESSAGE + call_tokens * framed + tokens + next(counts)
        around += message.opaque
        weights.append(Weight((0,) * unseen + items, around + sum(items), opaque))
    return weights


def count_opaque(text: str, count: Callable[[str], int]) -> int:
    """Count text that may hold encoded binary, such as a document or a signature."""
    plain, tokens = without_binary(text)
    return tokens + count(plain)


def without_binary(text: str) -> tuple[str, int]:
    """Return a text without encoded binary, and the tokens that the binary counts for."""
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
