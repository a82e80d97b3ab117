"""What a content type says about a body that the guard has to search."""

from __future__ import annotations

from email.message import Message
from typing import Final

from prompt_sidecar.facts.guard_calls import Unread

_LIKE_ASCII: Final = frozenset({"", "utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252"})
"""Character sets in which a secret is the same bytes as in UTF-8."""
_CHARACTERS: Final = 1_024
"""Characters of a content type that are read; real ones have some tens."""


def unread_kind(content_type: str) -> Unread | None:
    """Return why a body with this content type cannot be read; None if it may be JSON, whatever else its type says."""
    kind = Message()
    kind["content-type"] = content_type[:_CHARACTERS].replace("\r", " ").replace("\n", " ")
    if kind.get_content_maintype() == "multipart":
        return Unread.NOT_JSON
    return None if (kind.get_content_charset() or "") in _LIKE_ASCII else Unread.ENCODED
