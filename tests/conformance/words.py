"""Plain text and pictures for histories, from one source of chance."""

from __future__ import annotations

import base64
import random

_TEXT = """
the build of module client server fails with an error in line 42 value index buffer token
naïve 漢字 🙂 "quoted" back\\slash
"""
_WORDS = _TEXT.split()
LONG = 200
"""Words of a text that a result may be condensed from."""


def prose(chance: random.Random, words: int) -> str:
    """So many words, in lines; long ones may be coloured, as programs colour what a terminal shows."""
    text = "".join(chance.choice(_WORDS) + ("\n" if chance.random() < 0.1 else " ") for _ in range(words)).strip()
    if words < LONG or chance.random() < 0.5:
        return text
    return "\n".join(f"\x1b[32m{line}\x1b[0m" for line in text.split("\n"))


def picture(chance: random.Random) -> str:
    """A small picture's bytes in base64; nobody looks at it."""
    return base64.b64encode(chance.randbytes(240)).decode()
