"""OpenAI's chat completions, and the many servers that speak them.

Source: platform.openai.com/docs/api-reference/chat, read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from prompt_sidecar.providers.api import ApiPath, Provider
from prompt_sidecar.providers.call_pieces import CallEvent, CallPiece, CallPlace, NameOf
from prompt_sidecar.providers.messages import Format, Message, parts_of, role_of, texts_of
from prompt_sidecar.providers.sdk import FunctionCall, SdkApi, sdk_member
from prompt_sidecar.providers.untyped import member, object_of, objects, ordinal
from prompt_sidecar.providers.usage import UsageMembers


def openai_error(status: int, message: str, reason: str) -> dict[str, Any]:
    """Return an error in the shape that OpenAI's APIs share."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": reason}}


def _message(response: Any) -> Any:
    choices = sdk_member(response, "choices")
    if not choices:
        raise ValueError("the response has no choices")
    return sdk_member(choices[0], "message")


def _calls(response: Any) -> Sequence[Any]:
    return sdk_member(_message(response), "tool_calls") or ()


class OpenAIChat(SdkApi):
    """See the module."""

    format: ClassVar[Format] = "openai_chat"
    provider: ClassVar[Provider] = Provider.OPENAI
    route: ClassVar[str] = "chat_completions"
    paths: ClassVar[tuple[ApiPath, ...]] = (ApiPath(re.compile(r"/chat/completions/?$")),)
    usage: ClassVar[UsageMembers] = UsageMembers(
        input=("prompt_tokens",),
        cached=("prompt_tokens_details", "cached_tokens"),
        outputs=(("completion_tokens",),),
    )

    asks_usage: ClassVar[Mapping[str, Any]] = MappingProxyType({"stream_options": {"include_usage": True}})

    def from_model(self, message: Message) -> bool:
        """See `Messages`."""
        return bool(role_of(message) == "assistant")

    def calls(self, message: Message) -> list[str]:
        """See `Messages`."""
        return texts_of(parts_of(message, "tool_calls"), "id")

    def answers(self, message: Message) -> list[str]:
        """See `Messages`."""
        return texts_of([message], "tool_call_id") if role_of(message) == "tool" else []

    def words(self, message: Message) -> Message | None:
        """See `Messages`."""
        return None if role_of(message) in ("assistant", "tool", "function") else message

    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del final
        return openai_error(status, message, reason)

    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """See `ProviderApi`."""
        for choice in objects(answer.get("choices")):
            for call in objects(member(choice, "message", "tool_calls")):
                if isinstance(function := call.get("function"), dict):
                    yield function, "arguments", str(function.get("name"))

    def call_event(self, data: dict[str, Any], name_of: NameOf) -> CallEvent:
        """See `ProviderApi`."""
        del name_of
        read = CallEvent()
        for choice in objects(data.get("choices")):
            which = ordinal(choice.get("index"))
            for call in objects(member(choice, "delta", "tool_calls")):
                function, key = object_of(call.get("function")), (which, ordinal(call.get("index")))
                given = choice.get("index"), call.get("index"), call.get("id"), function.get("name")
                read.pieces.append(CallPiece(key, function, "arguments", *given))
            if choice.get("finish_reason"):
                read.ended_choices.append(which)
        return read

    def piece_event(self, choice: Any, index: Any, text: str, like: dict[str, Any]) -> dict[str, Any]:
        """See `ProviderApi`."""
        piece = {"index": index, "function": {"arguments": text}}
        return {**like, "choices": [{"index": choice, "delta": {"tool_calls": [piece]}, "finish_reason": None}]}

    def tool_name(self, definition: Any) -> Any:
        """See `SdkApi`."""
        return sdk_member(definition, "function", "name") or sdk_member(definition, "custom", "name")

    def turn(self, response: Any) -> list[Any]:
        """See `SdkApi`."""
        return [_message(response)]

    def functions(self, response: Any) -> Iterator[FunctionCall]:
        """See `SdkApi`."""
        for call in _calls(response):
            if (function := sdk_member(call, "function")) is not None:
                yield sdk_member(call, "id"), sdk_member(function, "name"), sdk_member(function, "arguments"), call

    def waits_otherwise(self, response: Any) -> bool:
        """See `SdkApi`."""
        return any(sdk_member(call, "function") is None for call in _calls(response))

    def result(self, call_id: str, content: str, *, is_error: bool) -> dict[str, Any]:
        """See `SdkApi`. The format has no flag for an error; the content describes it."""
        del is_error
        return {"role": "tool", "tool_call_id": call_id, "content": content}

    def strict_only(self, function: str) -> bool:
        """See `SdkApi`: it is `chat.completions.parse`."""
        return function == "parse"
