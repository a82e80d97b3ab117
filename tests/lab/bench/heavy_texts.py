"""Texts that are heavy to take in, and the expression that is the costliest to look for: the same at every door."""

from __future__ import annotations

import random
from typing import Final

EXPRESSION: Final = "((?:[a-p ]{1,60}[b-p]){3}[a-o]{0,100}Q)"
SEARCHED: Final = 1_400_000
"""Characters of the text that it is looked for in."""


def mega(size: float) -> int:
    """So many millions."""
    return int(size * 1_000_000)


def words(number: int, seed: int = 7) -> str:
    """So many words."""
    chance = random.Random(seed)
    return " ".join(chance.choices(["alpha", "beta", "prompt", "cache", "line", "of", "text", "12"], k=number))


def quoting(size: float) -> str:
    """So many megabytes that look like quoted JSON."""
    return '\\":' + "a b c\n" * (mega(size) // 6)


def with_emoji(size: float) -> str:
    """So many megabytes of words behind an emoji, which makes Python keep four bytes a character."""
    return "🙂" + words(mega(size) // 5)


def searched(size: float) -> str:
    """Text in which the expression is costly, `size` times its usual length."""
    return "".join(random.Random(7).choices("abcdefghijklmnop ", k=int(SEARCHED * size)))
