"""Plain text and pictures for histories, from one source of chance."""

from __future__ import annotations

import base64
import random

_TEXT = """
the build of module client server fails with an error in line 42 value index buffer token
naïve 漢字 🙂 "quoted" back\\slash
"""
_WORDS = _TEXT.split()


def prose(chance: random.Random, words: int) -> str:
    """So many words, in lines."""
    return "".join(chance.choice(_WORDS) + ("\n" if chance.random() < 0.1 else " ") for _ in range(words)).strip()


def picture(chance: random.Random) -> str:
    """A small picture's bytes in base64; nobody looks at it."""
    return base64.b64encode(chance.randbytes(240)).decode()
