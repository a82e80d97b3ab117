"""Which models bind their thinking to what precedes it, so that it is refused after a change there.

From Claude Fable 5.1 and Opus, Sonnet and Haiku 5.5 on, a block of thinking is checked against the system prompt, the
tools and all messages that it was produced under. "A change invalidates only the thinking already after it. Thinking
before it, and thinking Claude produces after it, stay valid." A block that was removed must not come back, and those
that are kept must be an unbroken run. Models before take their thinking after any change, and some want the newest
turn's back, so that there none is removed. Source: platform.claude.com, "Preserved thinking" and "Prefix checks on
thinking blocks" (read on 2026-11-22).

The server has the same table (`sidecar/prompt_sidecar/prompt/thinking.py`); a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_NAME: Final = re.compile(r"claude[-_ ]?(?:(?P<family>[a-z]+)[-_ ]?)?(?P<version>\d{1,2}(?:[-.]\d{1,2})?(?!\d))?")
_NAME_CHARACTERS: Final = 256
"""Characters of a name that are looked at; the longest in use, Bedrock's resource names, take about 150."""
_NOT_CHECKED: Final[Mapping[str, str]] = {
    "": "2 2-0 2-1 3 3-5 3-7",  # before version 4 the family stood last
    "v": "1 2 2-1",  # how Bedrock names the oldest
    "instant": " 1 1-2",
    "opus": "3 3-5 3-7 4 4-0 4-1 4-5 4-6 4-7 4-8 5 5-0",
    "sonnet": "3 3-5 3-7 4 4-0 4-5 4-6 5 5-0",
    "haiku": "3 3-5 3-7 4 4-5 5 5-0",
    "fable": "5 5-0",
    "mythos": "5 5-0",
}
"""Versions of Claude that do not check their thinking, by family. All later ones are assumed to."""


def binds_thinking(model: str) -> bool:
    """Whether a model checks its thinking against what precedes it; false for a name that is no Claude's."""
    found = _NAME.search(model[:_NAME_CHARACTERS].lower())
    if found is None:
        return False
    family, version = found["family"] or "", (found["version"] or "").replace(".", "-")
    return version not in _NOT_CHECKED.get(family, "-").split(" ")


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
