"""Tokens: counting them, vocabularies, known windows, calibration, and providers' errors about too long prompts."""

from __future__ import annotations

from prompt_sidecar.tokens.count import Counter, warm
from prompt_sidecar.tokens.loading import lazy_counter, load_counting
from prompt_sidecar.tokens.models import encoding_for, known_window
from prompt_sidecar.tokens.vocabulary import ENCODINGS, EncodingName, VocabularyError, load

__all__ = [
    "ENCODINGS",
    "Counter",
    "EncodingName",
    "VocabularyError",
    "encoding_for",
    "known_window",
    "lazy_counter",
    "load",
    "load_counting",
    "warm",
]
