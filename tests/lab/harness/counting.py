"""Who counts tokens in a bench: the faster counter where it is installed, as a server would, or tiktoken alone."""

from __future__ import annotations

from functools import cache
from typing import Final

import tiktoken

from prompt_sidecar.tokens import Counter, load, load_counting
from prompt_sidecar.tokens.fast import CountSlice

ENCODING: Final = "o200k_base"
COUNTERS = ("auto", "tiktoken")
"""Values of the setting `tokens.counter`."""

chosen = COUNTERS[0]
"""What this bench runs with; its command line sets it before anything is measured."""


@cache
def _loaded() -> tuple[CountSlice, str]:
    """What counts in the one encoding of the bench, loaded once, and the sentence that tells."""
    names: list[str] = []
    return load_counting(ENCODING, fast=chosen == "auto", report=names.append), names[0]


@cache
def encoding() -> tiktoken.Encoding:
    """The encoding of tiktoken, for what is measured beside it."""
    return load(ENCODING)


def counter() -> Counter:
    """A counter with a cold cache."""
    return Counter({ENCODING: lambda: _loaded()[0]})


def description() -> str:
    """One sentence on who counts."""
    return _loaded()[1]
