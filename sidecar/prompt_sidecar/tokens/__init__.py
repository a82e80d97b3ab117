"""Tokens: counting them, vocabularies, calibration, and providers' errors about too long prompts."""

from __future__ import annotations

from prompt_sidecar.tokens.count import Counter, warm
from prompt_sidecar.tokens.encodings import encoding_for
from prompt_sidecar.tokens.loading import lazy_counter, load_counting
from prompt_sidecar.tokens.vocabulary import ENCODINGS, EncodingName, VocabularyError, load

__all__ = [
    "ENCODINGS",
    "Counter",
    "EncodingName",
    "VocabularyError",
    "encoding_for",
    "lazy_counter",
    "load",
    "load_counting",
    "warm",
]
