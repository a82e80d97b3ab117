"""Who counts tokens in a bench: the faster counter where it is installed, as a server would, or tiktoken alone."""

from __future__ import annotations

from functools import cache
from typing import Final

import tiktoken

from sidecar.tokens.count import Counter
from sidecar.tokens.fast import load_fast
from sidecar.tokens.vocabulary import load

ENCODING: Final = "o200k_base"
COUNTERS = ("auto", "tiktoken")
"""Values of the setting `tokens.counter`."""

chosen = COUNTERS[0]
"""What this bench runs with; its command line sets it before anything is measured."""


@cache
def encoding() -> tiktoken.Encoding:
    """The one vocabulary of the bench; loading it takes a third of a second."""
    return load(ENCODING)


def counter() -> Counter:
    """A counter with a cold cache."""
    encodings: dict[str, tiktoken.Encoding] = {ENCODING: encoding()}
    return Counter(encodings, fast=load_fast(encodings)[0] if chosen == "auto" else None)


def told() -> str:
    """One sentence on who counts."""
    return load_fast({ENCODING: encoding()})[1] if chosen == "auto" else "tiktoken counts all texts"
