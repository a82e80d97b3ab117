"""Which of OpenAI's models cache a prompt at breakpoints.

"GPT-5.6 and later model families cache exact prompt prefixes at cache breakpoints. By default, the service places an
implicit breakpoint at the latest user or tool message. Unlike earlier models, it does not automatically fall back to
the longest matching unmarked prefix before that breakpoint." Source: developers.openai.com, "Prompt caching" (copies of
autumn 2026, read in November 2026). Other copies of the page put the breakpoint at "the latest message". Then a note
that changes at each call would be part of every prefix that is written, and no prefix would ever be read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_NAME: Final = re.compile(r"(?:^|[/:.])gpt-(?P<major>1?\d)(?!\d)(?:\.(?P<minor>\d{1,2})(?!\d))?")
"""Not `gpt-35-turbo`, as Azure calls GPT-3.5, nor `gpt-oss`."""
_FIRST: Final = (5, 6)
"""The first version that caches at breakpoints."""
_CHARACTERS: Final = 256
"""Characters of a model's name that are examined."""


@lru_cache(1_024)
def caches_at_breakpoints(model: str) -> bool:
    """Whether a model caches prefixes at breakpoints only; false for an empty name."""
    found = _NAME.search(model[:_CHARACTERS].lower())
    return found is not None and (int(found["major"]), int(found["minor"] or 0)) >= _FIRST
