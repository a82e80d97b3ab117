"""Gemini's generateContent and streamGenerateContent: trimmed on the way, answers as they come.

The model is in the path. A history is `contents`, each with a role and parts; a call is a part and may have no id. A
stream is server-sent events with `alt=sse`, else one array that arrives piece by piece.
ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prompt_sidecar.http.dialects.base import Dialect
from prompt_sidecar.serving.histories import GeminiHistory, call_of, parts_of
from prompt_sidecar.serving.untyped import objects


class GeminiContents(GeminiHistory, Dialect):
    """See the module."""

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield what holds each call's arguments."""
        for candidate in objects(answer.get("candidates")):
            for part in parts_of(candidate.get("content")):
                if (call := call_of(part)) is not None:
                    yield call, "args", str(call.get("name"))
