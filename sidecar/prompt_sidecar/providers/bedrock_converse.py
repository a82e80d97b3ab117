"""Amazon Bedrock's Converse and ConverseStream. The path names the model; a part's only member gives its kind.

Source: docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.api import ApiPath, Provider, ProviderApi
from prompt_sidecar.providers.call_pieces import CallPlace
from prompt_sidecar.providers.messages import Format, Message, holds, parts_of, role_of, texts_of, without_parts
from prompt_sidecar.providers.untyped import member, objects, sdk_member
from prompt_sidecar.providers.usage import UsageMembers

BEDROCK: Final = Provider("bedrock", "https://bedrock-runtime.us-east-1.amazonaws.com", telemetry_name="aws.bedrock")
ERROR_TYPE_HEADER: Final = "x-amzn-errortype"
"""The header by which Amazon's SDKs recognise an error."""
_ERROR_TYPES: Final[Mapping[int, str]] = {
    401: "AccessDeniedException",
    403: "AccessDeniedException",
    499: "ModelTimeoutException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
}


def reasons(part: Any) -> bool:
    """Whether a part is reasoning."""
    return holds(part, "reasoningContent")


def _inner(message: Message, name: str) -> list[str]:
    return texts_of([part[name] for part in parts_of(message) if holds(part, name)], "toolUseId")


class BedrockConverse(ProviderApi):
    """See the module."""

    format: ClassVar[Format] = "bedrock_converse"
    provider: ClassVar[Provider] = BEDROCK
    route: ClassVar[str] = "converse"
    streams_events: ClassVar[bool] = False
    system: ClassVar[tuple[str, ...]] = ("system",)
    tools: ClassVar[str] = "toolConfig"
    paths: ClassVar[tuple[ApiPath, ...]] = (
        ApiPath(re.compile(r"/model/(?P<model>[^/]+)/(?P<method>converse|converse-stream)$")),
    )
    # "ApplyGuardrail" of Amazon Bedrock's API reference.
    without_prompt: ClassVar[re.Pattern[str] | None] = re.compile(r"^/guardrail/")
    finish_reasons: ClassVar[frozenset[str]] = frozenset(
        {
            "content_filtered",
            "end_turn",
            "guardrail_intervened",
            "malformed_model_output",
            "malformed_tool_use",
            "max_tokens",
            "model_context_window_exceeded",
            "stop_sequence",
            "tool_use",
        }
    )
    """`stopReason` (docs.aws.amazon.com, API reference of Bedrock Runtime, "Converse", 2026-11)."""
    usage: ClassVar[UsageMembers] = UsageMembers(
        input=("inputTokens",),
        cached=("cacheReadInputTokens",),
        cache_write=("cacheWriteInputTokens",),
        outputs=(("outputTokens",),),
        model="",
        cached_apart=True,
    )

    def claims(self, path: str, headers: Mapping[str, str]) -> bool:
        """See `ProviderApi`."""
        del headers
        return path.startswith("/model/")

    def from_model(self, message: Message) -> bool:
        """See `Messages`."""
        return bool(role_of(message) == "assistant")

    def calls(self, message: Message) -> list[str]:
        """See `Messages`."""
        return _inner(message, "toolUse")

    def answers(self, message: Message) -> list[str]:
        """See `Messages`."""
        return _inner(message, "toolResult")

    def words(self, message: Message) -> Message | None:
        """See `Messages`."""
        if self.from_model(message):
            return None
        return without_parts(message, "content", lambda part: holds(part, "toolResult"))

    def thoughts(self, message: Message) -> list[Any]:
        """See `Messages`."""
        return [part for part in parts_of(message) if reasons(part)]

    def thoughtless(self, message: Message, picked: Callable[[Any], bool]) -> Message | None:
        """See `Messages`."""
        return without_parts(message, "content", lambda part: reasons(part) and picked(part))

    def settled(self, messages: list[Message]) -> list[Message]:
        """Merge neighbours of the same role, as roles must alternate."""
        made: list[Message] = []
        for message in messages:
            if made and role_of(made[-1]) == role_of(message):
                made[-1] = {**made[-1], "content": [*parts_of(made[-1]), *parts_of(message)]}
            else:
                made.append(message)
        return made

    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del status, final
        return {"message": f"{reason}: {message}"}

    def error_headers(self, status: int) -> dict[str, str]:
        """See `ProviderApi`."""
        otherwise = "ValidationException" if status < 500 else "InternalServerException"
        return {ERROR_TYPE_HEADER: _ERROR_TYPES.get(status, otherwise)}

    def tool_name(self, definition: Any) -> Any:
        """See `ProviderApi`."""
        return sdk_member(definition, "toolSpec", "name")

    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """See `ProviderApi`. Not all models accept a result's status; the text describes the error."""
        del name, is_error
        return {"toolResult": {"toolUseId": call_id, "content": [{"text": text}]}}

    def joined(self, results: Sequence[Any]) -> list[Any]:
        """Return one message of the user: the provider requires all results of a turn in one."""
        return [{"role": "user", "content": list(results)}] if results else []

    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """See `ProviderApi`."""
        for block in objects(member(answer.get("output"), "message", "content")):
            if isinstance(use := block.get("toolUse"), dict):
                yield use, "input", str(use.get("name"))
