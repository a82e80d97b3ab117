"""Loading the counter of an encoding: toktok where it is installed and verified, else tiktoken; never both."""

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


def load_counting(name: EncodingName, *, fast: bool, report: Callable[[str], None]) -> CountSlice:
    """Load the counter of an encoding.

    Args:
        name: the encoding.
        fast: whether toktok may be used.
        report: is called with a sentence on which counter is used.

    Raises:
        VocabularyError: tiktoken is used, and its vocabulary is missing or damaged.
    """
    counter, found = load_fast(name, partial(load_slow, name)) if fast else (None, f"{name}: tiktoken counts")
    if counter is None:
        counter = load_slow(name)
    report(found)
    return counter


def lazy_counter(*, fast: bool, report: Callable[[str], None]) -> Counter:
    """A counter of every encoding, each loaded when it is first needed; as for `load_counting`."""
    return Counter({name: partial(load_counting, name, fast=fast, report=report) for name in ENCODINGS})
