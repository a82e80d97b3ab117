"""Which Claude models bind their thinking to the prompt before it.

From Claude Fable 5.1 and Opus, Sonnet and Haiku 5.5 on, a thinking block that is sent back is checked against the
prompt that it was produced under: "The checked prefix has three parts: the top-level `system` prompt; the set of
`tools`; every `message` before the block." If one of them has changed, "that block and every later thinking block are
invalid", and the request is refused with 400 or the blocks are dropped, as the request specifies; refused by default
for accounts created since 2026-08-31. "A change invalidates only the thinking already after it. Thinking before it, and
thinking Claude produces after it, stay valid." Each block also records the block before it: those that are kept must be
an unbroken run, and one that was removed must not come back. Clients that trim older turns should "remove the thinking
from the turns you keep".

Source: platform.claude.com, "Preserved thinking" (copy of 2026-09-26) and "Prefix checks on thinking blocks" (read on
2026-11-22), which names the models: claude-fable-5-1 and -5-2, claude-mythos-5-2, claude-opus-5-5, claude-sonnet-5-5,
claude-haiku-5-5 (and claude-mythos-5-1, which the first page says is not checked). The same holds for these
models on Amazon Bedrock and at other resellers. A later version is treated as checked until it is known not to be.

Older Claude models accept a prompt without the thinking of earlier turns, but require that of the newest turn,
including its tool calls and results: "Required: within a tool-use turn, pass thinking blocks back. … Allowed: outside
tool use, leave out earlier turns' thinking." Source: platform.claude.com, "Thinking" (read on 2026-11-22).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

NAME_CHARACTERS: Final = 256
"""Characters of a model's name that are examined; the longest in use, Bedrock's resource names, have about 150."""
_NAME: Final = re.compile(r"claude[-_ ]?(?:(?P<family>[a-z]+)[-_ ]?)?(?P<version>\d{1,2}(?:[-.]\d{1,2})?(?!\d))?")
_NOT_BOUND: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        ("", "2"),
        ("", "2-0"),
        ("", "2-1"),
        *(("v", version) for version in ("1", "2", "2-1")),  # Bedrock's names of the oldest
        ("", "3"),
        ("", "3-5"),
        ("", "3-7"),
        ("instant", ""),
        ("instant", "1"),
        ("instant", "1-2"),
        *((family, version) for family in ("opus", "sonnet", "haiku") for version in ("3", "3-5", "3-7")),
        *(("opus", version) for version in ("4", "4-0", "4-1", "4-5", "4-6", "4-7", "4-8", "5", "5-0")),
        *(("sonnet", version) for version in ("4", "4-0", "4-5", "4-6", "5", "5-0")),
        *(("haiku", version) for version in ("4", "4-5", "5", "5-0")),
        *((family, version) for family in ("fable", "mythos") for version in ("5", "5-0")),
    }
)
"""Claude models that do not bind their thinking, by family and version; before version 4 the family was last in the
name."""


def claude_version(model: str) -> tuple[str, str] | None:
    """Return family and version in the name of a Claude model, each empty if absent; None for another model."""
    found = _NAME.search(model[:NAME_CHARACTERS].lower())
    return None if found is None else (found["family"] or "", (found["version"] or "").replace(".", "-"))


@lru_cache(1_024)
def binds_thinking(model: str) -> bool:
    """Whether a model checks its thinking blocks against the prompt before them; false for an empty name."""
    version = claude_version(model)
    return version is not None and version not in _NOT_BOUND


def is_bound(model: Any, body: Any) -> bool:
    """Whether the thinking of a prompt is bound, by its model's name.

    Without a name it is assumed to be, except for thinking with a budget (`"type": "enabled"`), which no model that
    binds its thinking accepts.
    """
    named = model or (body.get("model") or body.get("modelId") if isinstance(body, Mapping) else None)
    if isinstance(named, str) and named:
        return binds_thinking(named)
    thinking = body.get("thinking") if isinstance(body, Mapping) else None
    return not (isinstance(thinking, Mapping) and thinking.get("type") == "enabled")
