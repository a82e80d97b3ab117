"""What is known of models by their names: the documented window, and how their counts differ from ours.

The same model has many names: with a date, a provider's prefix, a deployment's region, a variant tag. Each name is
reduced to a few plain forms, of which the first in the table is used. An unknown name is not an error: the caller has
to state its window. Names come from outside: none is put into a message, and one of any length takes microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from prompt_sidecar.providers.claude import claude_version

MAX_NAME_CHARS: Final = 256
"""Longest accepted name; the longest in use, Bedrock's resource names, have about 150."""

WINDOWS: Final[Mapping[str, int]] = MappingProxyType(
    {
        # OpenAI, "Context window" on each model's page: https://platform.openai.com/docs/models
        "gpt-3.5-turbo": 16_385,
        "gpt-35-turbo": 16_385,  # Azure's spelling
        "gpt-3.5-turbo-instruct": 4_096,
        "gpt-4": 8_192,
        "gpt-4-32k": 32_768,
        "gpt-4-1106": 128_000,  # the previews of gpt-4-turbo
        "gpt-4-0125": 128_000,
        "gpt-4-vision": 128_000,
        "gpt-4-turbo": 128_000,
        "gpt-4o": 128_000,
        "chatgpt-4o": 128_000,
        "gpt-4.5": 128_000,
        "gpt-4.1": 1_047_576,
        "gpt-5": 400_000,
        "gpt-5-chat": 128_000,
        "gpt-5.1": 400_000,
        "gpt-5.1-chat": 128_000,
        "gpt-5.2": 400_000,
        "gpt-5.2-chat": 128_000,
        "gpt-5.4": 1_050_000,
        "gpt-5.4-mini": 400_000,
        "gpt-5.4-nano": 400_000,
        "gpt-oss": 131_072,
        "o1": 200_000,
        "o1-mini": 128_000,
        "o1-preview": 128_000,
        "o3": 200_000,
        "o4-mini": 200_000,
        "codex-mini": 200_000,
        # Anthropic, the models' overview pages: https://platform.claude.com/docs/en/about-claude/models/overview
        # and https://platform.claude.com/docs/en/build-with-claude/context-windows; earlier ones had a beta header
        # for 1M, which a name does not show.
        "claude-instant-1": 100_000,
        "claude-2": 100_000,
        "claude-2-1": 200_000,
        "claude-3": 200_000,
        "claude-3-5": 200_000,
        "claude-3-7": 200_000,
        "claude-opus-4": 200_000,
        "claude-opus-4-0": 200_000,
        "claude-opus-4-1": 200_000,
        "claude-opus-4-5": 200_000,
        "claude-opus-4-6": 1_000_000,
        "claude-opus-4-7": 1_000_000,
        "claude-opus-4-8": 1_000_000,
        "claude-opus-5": 1_000_000,
        "claude-opus-5-5": 1_000_000,
        "claude-sonnet-4": 200_000,
        "claude-sonnet-4-0": 200_000,
        "claude-sonnet-4-5": 200_000,
        "claude-sonnet-4-6": 1_000_000,
        "claude-sonnet-5": 1_000_000,
        "claude-haiku-4-5": 200_000,
        # Google, "Input token limit" on each model's page: https://ai.google.dev/gemini-api/docs/models
        "gemini-1.5-pro": 2_097_152,
        "gemini-1.5-flash": 1_048_576,
        "gemini-2.0-flash": 1_048_576,
        "gemini-2.0-flash-preview-image-generation": 32_000,
        "gemini-2.5-pro": 1_048_576,
        "gemini-2.5-flash": 1_048_576,
        "gemini-2.5-flash-image": 32_768,
        "gemini-3-pro-preview": 1_048_576,
        "gemini-3.1-pro-preview": 1_048_576,
    }
)
"""Window of each family in tokens. A name belongs to the longest key that it begins with; see `_covers`."""

DENSE_FROM: Final = [4, 7]
DENSE_FACTOR: Final = 1.5
"""Claude models from 4.7 on count more tokens: 1.5 to 1.9 for each of o200k_base on recorded runs with the provider's
own counts (claude-fable-5, claude-opus-4-7), compared to 1.05 to 1.18 of earlier ones (claude-opus-4-6)."""

NAMES_REMEMBERED: Final = 1_024
"""Model names whose look-up is cached; callers use a handful, and the server bounds their length."""

_LONG_CONTEXT_TAG: Final = "[1m]"
"""Suffix with which Claude Code selects the window of a million tokens."""


@lru_cache(NAMES_REMEMBERED)
def first_factor(model: str) -> float:
    """The factor for our count of a model's text before the first report of its usage."""
    version = claude_version(model)
    numbers = [int(part) for part in version[1].split("-")] if version is not None and version[1] else []
    return DENSE_FACTOR if numbers >= DENSE_FROM else 1.0


@lru_cache(NAMES_REMEMBERED)
def known_window(model: str) -> int | None:
    """The window in tokens that `model`'s provider documents; None for an unknown model.

    The window covers prompt and output, except that Google documents the prompt's alone. An unknown version of a known
    family is unknown: a guess would restrict callers that have better information.
    """
    found = _found(model)
    if found is None:
        return None
    family, name = found
    return 1_000_000 if family.startswith("claude-") and name.endswith(_LONG_CONTEXT_TAG) else WINDOWS[family]


@lru_cache(NAMES_REMEMBERED)
def known_family(model: str) -> str | None:
    """The model's family as named in the table; None for an unknown model."""
    found = _found(model)
    return None if found is None else found[0]


def _found(model: str) -> tuple[str, str] | None:
    """A model's family, and the form of its name that matched."""
    for name in spellings(model):
        family = max((key for key in WINDOWS if _covers(key, name)), key=len, default=None)
        if family is not None:
            return family, name
    return None


def spellings(model: str) -> Iterator[str]:
    """Yield plain forms of a name, the likeliest first; none if the name is empty or too long."""
    if not model or len(model) > MAX_NAME_CHARS:
        return
    name = model.lower().rpartition("/")[2]  # openai/gpt-4o, azure/eu/gpt-4o, models/gemini-2.5-pro
    yield name
    for owner in ("anthropic.", "openai."):  # us.anthropic.claude-sonnet-4-5-20250929-v1:0
        before, found, rest = name.partition(owner)
        if found and (not before or before.endswith(".")):
            name = rest
            yield name
    if name.startswith("claude-") and "." in name:  # claude-3.5-sonnet
        yield name.replace(".", "-")
    owner, colon, rest = name.partition(":")
    if colon and owner != "ft":
        yield rest  # openai:gpt-4o
        yield f"{owner}-{rest}"  # gpt-oss:20b, gpt-4o:free
    elif owner == "ft":
        yield rest.partition(":")[0]  # ft:gpt-4o-mini-2024-07-18:team::id; tiktoken accepts it unchanged


def _covers(family: str, name: str) -> bool:
    """Whether `name` is `family`, or that followed by a part that is not a version (one or two digits)."""
    if not name.startswith(family):
        return False
    rest = name[len(family) :]
    if not rest:
        return True
    version = rest[1:].partition("-")[0]
    return rest[0] in "-:@[" and not (len(version) <= 2 and version.isdecimal())
