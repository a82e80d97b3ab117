"""Which models accept marks for caching a prompt, and which accept a cache key, by their names.

Amazon Bedrock, "Prompt caching" (read in November 2026), lists Claude from 3.5 Haiku and 3.7 Sonnet on, and Nova; other
models refuse a `cachePoint`. An opaque name, such as that of an own inference profile, is treated as one that does not
accept it. `prompt_cache_key` is known to OpenAI's own models; other servers of its APIs may refuse it.
"""

from __future__ import annotations

from typing import Final

from prompt_sidecar.providers.claude import claude_version
from prompt_sidecar.providers.gpt import caches_at_breakpoints
from prompt_sidecar.providers.openai_choice import is_of_openai

_OLDEST_CLAUDE: Final = frozenset(
    {
        *(("", version) for version in ("", "2", "2-0", "2-1", "3")),
        *(("v", version) for version in ("1", "2", "2-1")),
        *(("instant", version) for version in ("", "1", "1-2")),
        *((family, "3") for family in ("opus", "sonnet", "haiku")),
        ("", "3-5"),
        ("sonnet", "3-5"),
    }
)
"""Claude models without caching on Bedrock, by family and version; before version 4 the family was last in the name."""
_CLAUDE_3_5_HAIKU: Final = "claude-3-5-haiku"
_CHARACTERS: Final = 256
"""Characters of a model's name that are examined."""

__all__ = ["caches_at_breakpoints", "is_of_openai", "takes_cache_points"]


def takes_cache_points(model: str) -> bool:
    """Whether a model on Bedrock accepts cache points."""
    name = model[:_CHARACTERS].lower()
    if "amazon.nova" in name or _CLAUDE_3_5_HAIKU in name:
        return True
    version = claude_version(name)
    return version is not None and version not in _OLDEST_CLAUDE
