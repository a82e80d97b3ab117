"""Which encoding a model's tokens are counted in, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from tiktoken.model import encoding_name_for_model

from prompt_sidecar.providers.catalogue import MAX_NAME_CHARS, NAMES_REMEMBERED, forms
from prompt_sidecar.tokens.vocabulary import EncodingName

ESTIMATE: Final[EncodingName] = "o200k_base"
"""Used for models without a public vocabulary: it is closest to theirs, as it was made for many languages too."""

_COUNTED_AS: Final[Mapping[str, tuple[EncodingName, bool]]] = MappingProxyType(
    {
        "o200k_base": ("o200k_base", True),
        # Adds special tokens only, and special tokens' text is ordinary text here.
        "o200k_harmony": ("o200k_base", True),
        "cl100k_base": ("cl100k_base", True),
        # Retired, and their vocabularies are not included; cl100k_base is their successor.
        "p50k_base": ("cl100k_base", False),
        "p50k_edit": ("cl100k_base", False),
        "r50k_base": ("cl100k_base", False),
        "gpt2": ("cl100k_base", False),
    }
)
"""tiktoken's encodings: the included encoding that counts them, and whether its counts are exact for the model."""


@lru_cache(NAMES_REMEMBERED)
def encoding_for(model: str) -> tuple[EncodingName, bool]:
    """Return the encoding to count `model` in, and whether it is the model's own.

    The map is tiktoken's (`tiktoken.model`), so that a newer tiktoken covers newer models. Any text is accepted; an
    unknown name gets `ESTIMATE` and False.
    """
    if len(model) > MAX_NAME_CHARS:
        return ESTIMATE, False
    for name in forms(model.lower()):
        try:
            theirs = encoding_name_for_model(name)
        except KeyError:
            continue
        return _COUNTED_AS.get(theirs, (ESTIMATE, False))
    return ESTIMATE, False
