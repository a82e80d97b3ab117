"""A scripted provider that counts a prompt as Claude models were measured to, and tells the agent so.

What a turn added to the input of recorded runs, by least squares on the provider's own counts: their text by o200k_base
times a factor (1.05 to 1.18 for opus-4-6, 1.5 to 1.9 for fable-5), 0.21 to 0.30 token for each character of a thinking
block's signature and nothing for the readable text beside it, and 95 to 215 tokens for the frames of a call and its
result. Each item is off by some per cent of its own, always the same for the same item. Which coefficients a provider
has is drawn from a seed: those that something is tuned on are not those that it is reported on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from tests.oracle.tokens import count

TEXT = (1.05, 1.9)
"""Tokens for one of o200k_base."""
SIGNATURE = (0.21, 0.30)
"""Tokens for a character."""
FRAMES = (95.0, 215.0)
"""Tokens for the frames of a call and its result together."""
NOISE = 0.03
"""Standard deviation of an item's own error, as a share."""
MESSAGE = 4
"""Tokens around a message."""


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    system: msgspec.Raw = msgspec.Raw(b"null")
    tools: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Coefficients:
    """How one model counts."""

    text: float
    signature: float
    frames: float
    noise: float = NOISE

    @classmethod
    def drawn(cls, seed: str) -> Coefficients:
        """Coefficients within what was measured; the same seed gives the same."""
        chance = random.Random(seed)
        return cls(chance.uniform(*TEXT), chance.uniform(*SIGNATURE), chance.uniform(*FRAMES))


@dataclass(slots=True)
class CountingProvider:
    """Counts Anthropic bodies by one model's coefficients."""

    coefficients: Coefficients
    seed: str
    _known: dict[bytes, float] = field(default_factory=dict, repr=False)

    def count(self, body: bytes) -> int:
        """Tokens of a request body."""
        return round(sum(self.pieces(body)))

    def pieces(self, body: bytes) -> list[float]:
        """Tokens of tools and system prompt, then of each message."""
        request = msgspec.json.decode(body, type=_Body)
        head = [bytes(request.tools), bytes(request.system)]
        return [self._piece(raw) for raw in (*head, *(bytes(raw) for raw in request.messages))]

    def _piece(self, raw: bytes) -> float:
        tokens = self._known.get(raw)
        if tokens is None:
            tokens = self._known[raw] = sum(self._items(json.loads(raw)))
        return tokens

    def _items(self, value: Any) -> Iterator[float]:
        if isinstance(value, Mapping) and "role" in value:
            yield MESSAGE
            yield from self._blocks(value.get("content"))
        elif isinstance(value, list):
            yield from self._blocks(value)
        elif isinstance(value, str):
            yield self._text(value)

    def _blocks(self, content: Any) -> Iterator[float]:
        if isinstance(content, str):
            yield self._text(content)
            return
        for block in content or ():
            kind = block.get("type")
            if kind == "text":
                yield self._text(block["text"])
            elif kind in {"thinking", "redacted_thinking"}:
                sealed = block.get("signature") or block.get("data") or ""
                yield len(sealed) * self.coefficients.signature * self._off(sealed)
            elif kind == "tool_use":
                yield self.coefficients.frames / 2 + self._text(_compact(block["input"]))
            elif kind == "tool_result":
                yield self.coefficients.frames / 2
                yield from self._blocks(block.get("content"))
            else:
                yield self._text(_compact(block))

    def _text(self, text: str) -> float:
        return count(text) * self.coefficients.text * self._off(text)

    def _off(self, item: str) -> float:
        """The item's own error: normal, and always the same."""
        digest = blake2b(item.encode(errors="replace"), key=self.seed.encode()[:64], digest_size=8).digest()
        return max(0.5, random.Random(digest).gauss(1, self.coefficients.noise))


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cost(prompts: Sequence[Sequence[tuple[bytes, float]]]) -> float:
    """What a run's prompts cost, in prices of one plain token: 0.1 for what the cache keeps, 1.25 for the rest.

    A prompt is its pieces in order, each with its tokens; kept is what it shares from the start with the one before it.
    """
    total = 0.0
    before: Sequence[tuple[bytes, float]] = ()
    for prompt in prompts:
        kept = 0
        while kept < min(len(before), len(prompt)) and before[kept][0] == prompt[kept][0]:
            kept += 1
        total += 0.1 * sum(tokens for _, tokens in prompt[:kept]) + 1.25 * sum(tokens for _, tokens in prompt[kept:])
        before = prompt
    return total
