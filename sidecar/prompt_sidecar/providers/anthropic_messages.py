"""Anthropic's messages.

Source: platform.claude.com/docs/en/api/messages, read in November 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.api import ApiPath, Provider
from prompt_sidecar.providers.call_pieces import CallEvent, CallPiece, CallPlace, NameOf
from prompt_sidecar.providers.messages import Format, Message, has_type, parts_of, role_of, texts_of, without_parts
from prompt_sidecar.providers.sdk import FunctionCall, SdkApi, sdk_member
from prompt_sidecar.providers.untyped import object_of, objects, ordinal
from prompt_sidecar.providers.usage import UsageMembers

ERROR_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
"""Types of errors by status."""


def thinks(block: Any) -> bool:
    """Whether a block is thinking."""
    return has_type(block, "thinking", "redacted_thinking")


def _blocks(response: Any) -> Sequence[Any]:
    return sdk_member(response, "content") or ()


class AnthropicMessages(SdkApi):
    """See the module."""

    format: ClassVar[Format] = "anthropic_messages"
    provider: ClassVar[Provider] = Provider.ANTHROPIC
    route: ClassVar[str] = "messages"
    before: ClassVar[tuple[str, ...]] = ("system", "tools")
    # Not OpenAI's `/threads/{id}/messages`, which adds one message to a thread.
    paths: ClassVar[tuple[ApiPath, ...]] = (
        ApiPath(re.compile(r"/v\d+/messages/?$")),
        ApiPath(re.compile(r"/v\d+/messages/count_tokens/?$"), counts=True),
    )
    # The first event of a stream holds the message; the last ones what has changed since.
    usage: ClassVar[UsageMembers] = UsageMembers(
        input=("input_tokens",),
        cached=("cache_read_input_tokens",),
        cache_write=("cache_creation_input_tokens",),
        outputs=(("output_tokens",),),
        within="message",
        cached_apart=True,
    )

    def claims(self, path: str, headers: Mapping[str, str]) -> bool:
        """See `ProviderApi`."""
        return "anthropic-version" in headers or path.startswith("/v1/messages")

    def from_model(self, message: Message) -> bool:
        """See `Messages`."""
        return bool(role_of(message) == "assistant")

    def calls(self, message: Message) -> list[str]:
        """See `Messages`."""
        return texts_of([block for block in parts_of(message) if has_type(block, "tool_use")], "id")

    def answers(self, message: Message) -> list[str]:
        """See `Messages`."""
        return texts_of([block for block in parts_of(message) if has_type(block, "tool_result")], "tool_use_id")

    def words(self, message: Message) -> Message | None:
        """See `Messages`."""
        if self.from_model(message):
            return None
        return without_parts(message, "content", lambda block: has_type(block, "tool_result"))

    def thoughts(self, message: Message) -> list[Any]:
        """See `Messages`."""
        return [block for block in parts_of(message) if thinks(block)]

    def thoughtless(self, message: Message, picked: Callable[[Any], bool]) -> Message | None:
        """See `Messages`."""
        return without_parts(message, "content", lambda block: thinks(block) and picked(block))

    def settled(self, messages: list[Message]) -> list[Message]:
        """Move a system entry behind the user's turns that follow it, where the model's turn between was left out.

        It may stand only after a user's turn, and last or before one of the model's: platform.claude.com,
        "Mid-conversation system messages", read on 2026-11-22.
        """
        made: list[Message] = []
        held: list[Message] = []
        for message in messages:
            if role_of(message) == "system" and made:
                held.append(message)
                continue
            if held and role_of(message) != "user":
                made += held
                held = []
            made.append(message)
        return [*made, *held]

    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del final
        kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": f"{reason}: {message}"}}

    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """See `ProviderApi`."""
        for block in objects(answer.get("content")):
            if block.get("type") == "tool_use":
                yield block, "input", str(block.get("name"))

    def call_event(self, data: dict[str, Any], name_of: NameOf) -> CallEvent:
        """See `ProviderApi`."""
        index, read, kind = data.get("index"), CallEvent(), data.get("type")
        key, block = (None, ordinal(index)), object_of(data.get("content_block"))
        if kind == "content_block_start" and block.get("type") == "tool_use":
            read.pieces.append(CallPiece(key, {}, "", index=index, name=block.get("name"), begins=True))
            read.whole.append((block, "input", str(block.get("name"))))
        elif kind == "content_block_delta" and name_of(key) is not None:
            read.pieces.append(CallPiece(key, object_of(data.get("delta")), "partial_json", index=index))
        elif kind == "content_block_stop":
            read.ended.append(key)
        elif kind in ("message_delta", "message_stop"):
            read.ended_choices.append(None)
        return read

    def piece_event(self, choice: Any, index: Any, text: str, like: dict[str, Any]) -> dict[str, Any]:
        """See `ProviderApi`."""
        del choice, like
        delta = {"type": "input_json_delta", "partial_json": text}
        return {"type": "content_block_delta", "index": index, "delta": delta}

    def turn(self, response: Any) -> list[Any]:
        """See `SdkApi`. A turn without content is refused when it comes back."""
        blocks = _blocks(response)
        return [{"role": "assistant", "content": blocks}] if blocks else []

    def functions(self, response: Any) -> Iterator[FunctionCall]:
        """See `SdkApi`."""
        for block in _blocks(response):
            if sdk_member(block, "type") == "tool_use":
                arguments = json.dumps(sdk_member(block, "input"))
                yield sdk_member(block, "id"), sdk_member(block, "name"), arguments, block

    def waits_otherwise(self, response: Any) -> bool:
        """Whether the turn pauses for the provider's own tools: the caller has to send it on."""
        return bool(sdk_member(response, "stop_reason") == "pause_turn")

    def result(self, call_id: str, content: str, *, is_error: bool) -> dict[str, Any]:
        """See `SdkApi`."""
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        return block | {"is_error": True} if is_error else block

    def joined(self, results: Sequence[Any]) -> list[Any]:
        """Return one user message: the provider wants all results of a turn in one."""
        return [{"role": "user", "content": list(results)}] if results else []
