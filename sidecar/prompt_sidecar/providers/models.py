"""What is known of a model by the name that an agent gives: its family, and how its counts differ from ours."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from prompt_sidecar.providers import catalogue
from prompt_sidecar.providers.claude import claude_version

DENSE_FROM: Final = [4, 7]
DENSE_FACTOR: Final = 1.5
"""Claude models from 4.7 on count more tokens: 1.5 to 1.9 for each of o200k_base on recorded runs with the provider's
own counts (claude-fable-5, claude-opus-4-7), compared to 1.05 to 1.18 of earlier ones (claude-opus-4-6)."""


@lru_cache(catalogue.NAMES_REMEMBERED)
def first_factor(model: str) -> float:
    """Return the factor for our count of a model's text before the first report of its usage."""
    version = claude_version(model)
    numbers = [int(part) for part in version[1].split("-")] if version is not None and version[1] else []
    return DENSE_FACTOR if numbers >= DENSE_FROM else 1.0


def known_family(model: str) -> str | None:
    """Return the model's name without prefixes and dates, as in the catalogue; None for an unknown model."""
    known = catalogue.find(model)
    return None if known is None else known.name
