"""What counts in an encoding: toktok where it is installed and trusted, else tiktoken. Either is loaded alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prompt_sidecar.tokens.count import Counter
from prompt_sidecar.tokens.fast import CountSlice, load_fast
from prompt_sidecar.tokens.vocabulary import ENCODINGS, EncodingName, load


def load_slow(name: EncodingName) -> CountSlice:
    """Load tiktoken's counter of an encoding.

    Raises:
        VocabularyError: the vocabulary is missing or damaged.
    """
    encode = load(name).encode_ordinary
    return lambda text: len(encode(text))


def load_counting(name: EncodingName, *, fast: bool, told: Callable[[str], None]) -> CountSlice:
    """Load what counts in an encoding.

    Args:
        name: the encoding.
        fast: whether toktok may count.
        told: takes one sentence on who counts.

    Raises:
        VocabularyError: tiktoken counts, and its vocabulary is missing or damaged.
    """
    counter, found = load_fast(name, partial(load_slow, name)) if fast else (None, f"{name}: tiktoken counts")
    if counter is None:
        counter = load_slow(name)
    told(found)
    return counter


def lazy_counter(*, fast: bool, told: Callable[[str], None]) -> Counter:
    """A counter of every encoding, each loaded when it is first needed; as for `load_counting`."""
    return Counter({name: partial(load_counting, name, fast=fast, told=told) for name in ENCODINGS})
