"""Gemini's generateContent and streamGenerateContent: trimmed on the way, answers as they come.

The model is in the path. A history is `contents`, each with a role and parts; a call is a part and may have no id. A
stream is server-sent events with `alt=sse`, else one array that arrives piece by piece.
ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.http.dialects.base import gist_of, member, objects
from prompt_sidecar.http.dialects.trimmed_only import TrimmedOnly
from prompt_sidecar.serving.provider_errors import FINAL_REASONS

_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    413: "INVALID_ARGUMENT",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiContents(TrimmedOnly):
    """See the module."""

    format: ClassVar[str] = "gemini_contents"
    messages: ClassVar[str] = "contents"
    system: ClassVar[tuple[str, ...]] = ("systemInstruction", "system_instruction")

    def speaker(self, entry: Any) -> str:
        """Who a content is from; one without a role is the user's."""
        role = member(entry, "role")
        return "model" if role == "model" else "user" if role in (None, "user") else "other"

    def gist(self, entry: Any) -> str | None:
        """What a content is known by."""
        parts = _parts(entry)
        said = [each["text"] for each in parts if isinstance(each.get("text"), str) and not each.get("thought")]
        calls = [call for each in parts if (call := _call(each)) is not None]
        return gist_of("".join(said), [(call.get("id"), call.get("name")) for call in calls])

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield what holds each call's arguments."""
        for candidate in objects(answer.get("candidates")):
            for part in _parts(candidate.get("content")):
                if (call := _call(part)) is not None:
                    yield call, "args", str(call.get("name"))

    def error(self, status: int, message: str, kind: str) -> bytes:
        """Write an error as Google does, with the sidecar's reason in front of the message."""
        of = _STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
        of = "FAILED_PRECONDITION" if kind in FINAL_REASONS else of
        return orjson.dumps({"error": {"code": status, "message": f"{kind}: {message}", "status": of}})


def _parts(content: Any) -> list[dict[str, Any]]:
    """The parts of a content, also where one stands in place of an array."""
    parts = member(content, "parts")
    return objects([parts] if isinstance(parts, dict) else parts)


def _call(part: Mapping[str, Any]) -> dict[str, Any] | None:
    found = part.get("functionCall") or part.get("function_call")
    return found if isinstance(found, dict) else None
