"""How providers refuse a prompt: as too long, or for thinking that is bound to another prompt.

The wordings are those quoted in public issue threads from 2023 to 2026. `prompt_sidecar.tokens.refusals` reads the
numbers in them.
"""

from __future__ import annotations

from typing import Final

TOO_LONG_STATUS: Final = frozenset({400, 413, 422})
"""HTTP statuses of such an answer."""
MOST_CHARACTERS: Final = 4_096
"""Characters of a refusal that are read: the longest known has 300, and wrappers add some hundred."""
_TOO_LONG: Final = (
    "context_length_exceeded",
    "context length",
    "context window",
    "context limit",
    "context size",
    "maximum prompt length",
    "prompt is too long",
    "input is too long",
    "input tokens exceed",
    "input token count",
    "request too large",
    "request_too_large",
    "too many tokens",
    "token limit",
)
_BOUND_THINKING: Final = "bound to a different conversation"
"""platform.claude.com, "Prefix checks on thinking blocks", read on 2026-11-22."""


def says_too_long(text: str) -> bool:
    """Whether an error's text means that the prompt is too long. Accepts any text; the caller limits its length."""
    lower = text.lower()
    return any(words in lower for words in _TOO_LONG)


def says_bound_thinking(text: str) -> bool:
    """Whether an error's text means that thinking is bound to another prompt."""
    return _BOUND_THINKING in text.lower()
