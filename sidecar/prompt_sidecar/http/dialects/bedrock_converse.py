"""Bedrock's Converse and ConverseStream: trimmed on the way, answers as they come.

The model is in the path. A stream is Amazon's event stream, binary frames with a checksum each.
docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import orjson

from prompt_sidecar.http.dialects.base import gist_of, member, objects
from prompt_sidecar.http.dialects.trimmed_only import TrimmedOnly
from prompt_sidecar.http.members import Members
from prompt_sidecar.serving.provider_errors import ERROR_TYPE_HEADER

_KINDS: Final = {
    401: "AccessDeniedException",
    499: "ModelTimeoutException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
}


class BedrockConverse(TrimmedOnly):
    """See the module."""

    format: ClassVar[str] = "bedrock_converse"
    messages: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ("system",)

    def agent_tools(self, members: Members) -> list[bytes]:
        """The definitions of the agent's tools."""
        return [orjson.dumps(each) for each in objects(member(members.get("toolConfig"), "tools"))]

    def speaker(self, entry: Any) -> str:
        """Who a message is from."""
        role = member(entry, "role")
        return "model" if role == "assistant" else "user" if role == "user" else "other"

    def gist(self, entry: Any) -> str | None:
        """What a message is known by."""
        blocks = objects(member(entry, "content"))
        said = [each["text"] for each in blocks if isinstance(each.get("text"), str)]
        calls = [each["toolUse"] for each in blocks if isinstance(each.get("toolUse"), dict)]
        return gist_of("".join(said), [(call.get("toolUseId"), call.get("name")) for call in calls])

    def arguments(self, answer: Mapping[str, Any]) -> Iterable[tuple[dict[str, Any], str, str]]:
        """Yield what holds each call's arguments."""
        for block in objects(member(answer.get("output"), "message", "content")):
            if isinstance(use := block.get("toolUse"), dict):
                yield use, "input", str(use.get("name"))

    def error(self, _: int, message: str, kind: str) -> bytes:
        """Write an error as Amazon does, with the sidecar's reason in front of the message."""
        return orjson.dumps({"message": f"{kind}: {message}"})

    def error_headers(self, status: int) -> Mapping[str, str]:
        """The header by which Amazon's SDKs know an error."""
        of = "ValidationException" if status < 500 else "InternalServerException"
        return {ERROR_TYPE_HEADER: _KINDS.get(status, of)}
