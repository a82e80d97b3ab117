"""Gemini's generateContent and streamGenerateContent, at Google's AI API and at Vertex AI. The path names the model.

Source: ai.google.dev/api/generate-content and cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference,
read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.api import ApiPath, BaseUrl, Provider, ProviderApi
from prompt_sidecar.providers.call_pieces import CallPlace
from prompt_sidecar.providers.messages import Format, Message, holds, role_of, without_parts
from prompt_sidecar.providers.untyped import member, objects
from prompt_sidecar.providers.usage import UsageMembers

GEMINI: Final = Provider(
    "gemini",
    "https://generativelanguage.googleapis.com",
    (BaseUrl("GOOGLE_GEMINI_BASE_URL"),),
    ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "gcp.gemini",
)
"""The variable of google-genai and of Gemini CLI (github.com/google-gemini/gemini-cli, pull request 25357)."""
ERROR_STATUS: Final[Mapping[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    413: "INVALID_ARGUMENT",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""Names of errors by HTTP status."""
_CLAIMED: Final = re.compile(r"/(?:v1|v1beta|v1alpha)/(?:models|tunedModels)/")
_MODEL: Final = r"/(?:models|tunedModels|endpoints|dynamic)/(?P<model>[^/:]+)(?::|%3[Aa])"


def parts(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a content, also if one part replaces an array."""
    found = member(content, "parts")
    return objects([found] if isinstance(found, dict) else found)


def call_of(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the call in a part, or None if it has none."""
    found = part.get("functionCall") or part.get("function_call")
    return found if isinstance(found, dict) else None


class GeminiContents(ProviderApi):
    """See the module."""

    format: ClassVar[Format] = "gemini_contents"
    provider: ClassVar[Provider] = GEMINI
    route: ClassVar[str] = "generate_content"
    messages: ClassVar[str] = "contents"
    system: ClassVar[tuple[str, ...]] = ("systemInstruction", "system_instruction")
    paths: ClassVar[tuple[ApiPath, ...]] = (
        ApiPath(re.compile(_MODEL + r"(?P<method>generateContent|streamGenerateContent)$")),
        ApiPath(re.compile(_MODEL + r"countTokens$"), counts=True),
    )
    # ai.google.dev/api, "Embeddings" and "Files", and Imagen's predict.
    without_prompt: ClassVar[re.Pattern[str] | None] = re.compile(
        r":(embedContent|batchEmbedContents|predict|predictLongRunning)$|/upload/v1"
    )
    finish_reasons: ClassVar[frozenset[str]] = frozenset(
        {
            "BLOCKLIST",
            "FINISH_REASON_UNSPECIFIED",
            "IMAGE_OTHER",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_SAFETY",
            "LANGUAGE",
            "MALFORMED_FUNCTION_CALL",
            "MAX_TOKENS",
            "MISSING_THOUGHT_SIGNATURE",
            "NO_IMAGE",
            "OTHER",
            "PROHIBITED_CONTENT",
            "RECITATION",
            "SAFETY",
            "SPII",
            "STOP",
            "TOO_MANY_TOOL_CALLS",
            "UNEXPECTED_TOOL_CALL",
        }
    )
    """`finishReason` (ai.google.dev/api/generate-content, "FinishReason", 2026-11)."""
    usage: ClassVar[UsageMembers] = UsageMembers(
        usage="usageMetadata",
        model="modelVersion",
        input=("promptTokenCount",),
        cached=("cachedContentTokenCount",),
        outputs=(("candidatesTokenCount",), ("thoughtsTokenCount",)),
    )

    may_stream_array: ClassVar[bool] = True

    def claims(self, path: str, headers: Mapping[str, str]) -> bool:
        """See `ProviderApi`."""
        return path.startswith("/v1beta/") or "x-goog-api-key" in headers or _CLAIMED.match(path) is not None

    def streams_array(self, query: Mapping[str, str]) -> bool:
        """See `ProviderApi`."""
        return "sse" not in (query.get("alt"), query.get("$alt"))

    def from_model(self, message: Message) -> bool:
        """See `Messages`."""
        return bool(role_of(message) == "model")

    def calls(self, message: Message) -> list[str]:
        """Return none: calls may have no ids. A result is in the turn after its call."""
        del message
        return []

    def answers(self, message: Message) -> list[str]:
        """Return none: see `calls`."""
        del message
        return []

    def words(self, message: Message) -> Message | None:
        """See `Messages`."""
        if role_of(message) in ("model", "function"):
            return None
        return without_parts(message, "parts", lambda part: holds(part, "functionResponse", "function_response"))

    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        name = ERROR_STATUS.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
        named = "FAILED_PRECONDITION" if final else name
        return {"error": {"code": status, "message": f"{reason}: {message}", "status": named}}

    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        named = {"id": call_id, "name": name} if call_id else {"name": name}
        return {"functionResponse": {**named, "response": {"error" if is_error else "output": text}}}

    def joined(self, results: Sequence[Any]) -> list[Any]:
        """Return one content of the user: the provider requires all responses of a turn in one."""
        return [{"role": "user", "parts": list(results)}] if results else []

    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """See `ProviderApi`."""
        for candidate in objects(answer.get("candidates")):
            for part in parts(candidate.get("content")):
                if (call := call_of(part)) is not None:
                    yield call, "args", str(call.get("name"))
