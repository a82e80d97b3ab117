"""Edits of the prompt that a body requests from the provider.

Anthropic's `context_management` has `edits`: old tool uses or old thinking are cleared, or earlier messages are
replaced by a summary. Bedrock's Converse has it in `additionalModelRequestFields`. OpenAI's responses have
`context_management` too, a list of compactions, and `truncation`. Together with the sidecar's own trimming the prompt
is trimmed twice, by independent rules.

Source: the providers' API references, and platform.claude.com, "Context editing" and "Compaction" (read in November
2026).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from prompt_sidecar.prompt.ambiguous import load_any
from prompt_sidecar.prompt.body import FIELD, Split


class ProviderEdit(StrEnum):
    """Kind of edit that is requested from the provider."""

    CLEAR_TOOL_USES = "clear_tool_uses"
    CLEAR_THINKING = "clear_thinking"
    COMPACT = "compact"
    TRUNCATE = "truncate"
    OTHER = "other"


_MEMBER: Final = "context_management"
_PLACES: Final = (_MEMBER, f"additionalModelRequestFields.{_MEMBER}")
_KINDS: Final = (ProviderEdit.CLEAR_TOOL_USES, ProviderEdit.CLEAR_THINKING, ProviderEdit.COMPACT)
"""Prefixes of edit types; a date follows, and OpenAI's is `compaction`."""


def edits_of_provider(body: Split) -> Sequence[ProviderEdit]:
    """Return the kinds of edits that a body requests, each once, in their order."""
    found: dict[ProviderEdit, None] = {}
    for place in _PLACES:
        value = body.field(place)
        decoded = load_any(value, f"{FIELD}.{place}") if value is not None else None
        edits = decoded.get("edits") if type(decoded) is dict else decoded
        for edit in edits if type(edits) is list else ():
            found[_kind(edit.get("type") if type(edit) is dict else None)] = None
    if body.field("truncation") == b'"auto"':
        found[ProviderEdit.TRUNCATE] = None
    return tuple(found)


def _kind(name: Any) -> ProviderEdit:
    begins = name if type(name) is str else ""
    return next((kind for kind in _KINDS if begins.startswith(kind)), ProviderEdit.OTHER)
