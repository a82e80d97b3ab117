"""Anthropic's messages.

Source: platform.claude.com/docs/en/api/messages, read in November 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.api import ApiPath, BaseUrl, PassedPrompts, Provider
from prompt_sidecar.providers.call_pieces import CallEvent, CallPiece, CallPlace, NameOf
from prompt_sidecar.providers.messages import (
    Format,
    Message,
    has_type,
    parts_of,
    role_of,
    texts_of,
    value_of,
    without_parts,
)
from prompt_sidecar.providers.sdk import (
    FunctionCall,
    PartPiece,
    SdkApi,
    StreamedEvent,
    StreamedTurn,
    TurnPart,
    sdk_members,
)
from prompt_sidecar.providers.surrogates import sound
from prompt_sidecar.providers.untyped import (
    member,
    object_of,
    objects,
    ordinal,
    read_json,
    sdk_member,
    string,
)
from prompt_sidecar.providers.usage import UsageMembers

ANTHROPIC: Final = Provider(
    "anthropic",
    "https://api.anthropic.com",
    (BaseUrl("ANTHROPIC_BASE_URL"), BaseUrl("ANTHROPIC_API_BASE")),
    ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
)
"""The SDK's variable, which Claude Code reads, too (code.claude.com/docs/en/env-vars), and LiteLLM's
(docs.litellm.ai/docs/providers/anthropic)."""
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
INPUTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Members with counts of a prompt's tokens."""


def thinks(block: Any) -> bool:
    """Whether a block is thinking."""
    return has_type(block, "thinking", "redacted_thinking")


def _blocks(response: Any) -> Sequence[Any]:
    return sdk_member(response, "content") or ()


def arguments_event(index: Any, text: str) -> dict[str, Any]:
    """Return an event with a piece of a call's arguments."""
    delta = {"type": "input_json_delta", "partial_json": text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


@dataclass(slots=True, eq=False)
class Pieces:
    """A content block, built from a stream's events."""

    content: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Pieces of its text members."""
    input: list[str] | None = None
    """Pieces of a call's arguments; None if there were none."""

    def gather(self, delta: Any) -> None:
        """Add a piece, as JSON types."""
        kind = member(delta, "type")
        if kind == "input_json_delta":
            self.input = self.input or []
            self.input.append(string(delta.get("partial_json")))
        elif kind == "citations_delta":
            cited = self.content.get("citations")
            self.content["citations"] = cited if isinstance(cited, list) else []
            self.content["citations"].append(delta.get("citation"))
        else:
            for name, value in object_of(delta).items():
                if name != "type" and isinstance(value, str):
                    self.texts.setdefault(name, []).append(value)

    def joined(self, whole: Callable[[str], str], read: Callable[[str], Any]) -> dict[str, Any]:
        """Return the block made from its pieces.

        Args:
            whole: replaces halves of split characters.
            read: returns the value of a JSON text, or None if it is not JSON.
        """
        for name, pieces in self.texts.items():
            self.content[name] = whole(string(self.content.get(name)) + "".join(pieces))
        self.texts.clear()
        if self.input is not None:
            text = whole("".join(self.input))
            self.content["input"] = (read(text) if text.strip() else {}) or {}
        return self.content


@dataclass(slots=True, eq=False)
class _Block(TurnPart):
    pieces: Pieces = field(default_factory=Pieces)


class _MessageEvents(StreamedTurn):
    """Events of a stream of messages."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._current: dict[int, _Block] = {}
        """By the provider's index."""
        self._usage: dict[str, Any] = {}
        self._stop: Any = None

    def take(self, event: Any) -> StreamedEvent:
        """See `StreamedTurn`."""
        kind, given = sdk_member(event, "type"), sdk_member(event, "index")
        if kind == "message_start":
            self._count(sdk_member(event, "message", "usage"))
            return StreamedEvent(begins=True)
        if kind == "message_delta":
            self._count(sdk_member(event, "usage"))
            self._stop = sdk_member(event, "delta", "stop_reason") or self._stop
        index = ordinal(given)
        if index is None or kind in ("message_delta", "message_stop"):
            return StreamedEvent(ends=kind in ("message_delta", "message_stop"))
        if kind == "content_block_start":
            content = sdk_members(sdk_member(event, "content_block"))
            name = string(content.get("name")) if content.get("type") == "tool_use" else ""
            self._blocks.append(_Block(name, pieces=Pieces(content)))
            self._current[index] = self._blocks[-1]
        block = self._current.setdefault(index, _Block())
        if kind == "content_block_delta":
            block.pieces.gather(sdk_members(sdk_member(event, "delta")))
        return StreamedEvent([PartPiece(block, event, given)])

    def _count(self, usage: Any) -> None:
        found = {name: sdk_member(usage, name) for name in (*INPUTS, "output_tokens")}
        self._usage |= {name: count for name, count in found.items() if count is not None}

    def response(self) -> Any:
        """See `StreamedTurn`."""
        content = [block.pieces.joined(sound, read_json) for block in self._blocks]
        return {"role": "assistant", "content": content, "stop_reason": self._stop, "usage": self._usage}


class AnthropicMessages(SdkApi):
    """See the module."""

    format: ClassVar[Format] = "anthropic_messages"
    provider: ClassVar[Provider] = ANTHROPIC
    route: ClassVar[str] = "messages"
    system: ClassVar[tuple[str, ...]] = ("system",)
    # Not OpenAI's `/threads/{id}/messages`, which adds one message to a thread.
    paths: ClassVar[tuple[ApiPath, ...]] = (
        ApiPath(re.compile(r"/v\d+/messages/?$")),
        ApiPath(re.compile(r"/v\d+/messages/count_tokens/?$"), counts=True),
    )
    # Files are in the API's reference; Claude Code 2 posts its own telemetry to the base URL.
    without_prompt: ClassVar[re.Pattern[str] | None] = re.compile(r"/api/event_logging/|/v\d+/files(/|$)")
    passed: ClassVar[tuple[tuple[re.Pattern[str], PassedPrompts], ...]] = (
        (re.compile(r"/v\d+/messages/batches/?$"), PassedPrompts.BATCH),
    )
    # The first event of a stream has the message; the last ones have the changes since.
    finish_reasons: ClassVar[frozenset[str]] = frozenset(
        {
            "end_turn",
            "max_tokens",
            "model_context_window_exceeded",
            "pause_turn",
            "refusal",
            "stop_sequence",
            "tool_use",
        }
    )
    """`stop_reason` (platform.claude.com, "Handling stop reasons", 2026-11)."""
    usage: ClassVar[UsageMembers] = UsageMembers(
        input=("input_tokens",),
        cached=("cache_read_input_tokens",),
        cache_write=("cache_creation_input_tokens",),
        cache_write_hour=("cache_creation", "ephemeral_1h_input_tokens"),
        tiers=(("service_tier",), ("speed",)),
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

    def loads_tools(self, message: Message) -> bool:
        """See `Messages`. References are in the result of the agent's search, or of the provider's."""
        return any(
            has_type(each, "tool_reference")
            for part in parts_of(message)
            for each in (*parts_of(part), *parts_of(value_of(part, "content"), "tool_references"))
        )

    def compaction(self, message: Message) -> str:
        """See `Messages`. A compaction without content has failed."""
        return "".join(texts_of([part for part in parts_of(message) if has_type(part, "compaction")], "content"))

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
        """Move a system entry behind the following user's turns if the model's turn between them was left out.

        It is allowed only after a user's turn, as the last message or before one of the model's: platform.claude.com,
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
        key, block, more = (None, ordinal(index)), object_of(data.get("content_block")), partial(arguments_event, index)
        if kind == "content_block_start" and block.get("type") == "tool_use":
            read.pieces.append(CallPiece(key, {}, "", more, name=block.get("name"), begins=True))
            read.whole.append((block, "input", str(block.get("name"))))
        elif kind == "content_block_delta" and name_of(key) is not None:
            read.pieces.append(CallPiece(key, object_of(data.get("delta")), "partial_json", more))
        elif kind == "content_block_stop":
            read.ended.append(key)
        elif kind in ("message_delta", "message_stop"):
            read.ended_choices.append(None)
        return read

    def streamed(self) -> StreamedTurn:
        """See `SdkApi`."""
        return _MessageEvents()

    def turn(self, response: Any) -> list[Any]:
        """See `SdkApi`. A turn without content is refused when it is sent back."""
        blocks = _blocks(response)
        return [{"role": "assistant", "content": blocks}] if blocks else []

    def functions(self, response: Any) -> Iterator[FunctionCall]:
        """See `SdkApi`."""
        for block in _blocks(response):
            if sdk_member(block, "type") == "tool_use":
                arguments = json.dumps(sdk_member(block, "input"))
                yield sdk_member(block, "id"), sdk_member(block, "name"), arguments, block

    def waits_otherwise(self, response: Any) -> bool:
        """Whether the turn pauses for the provider's own tools: the caller must send it on."""
        return bool(sdk_member(response, "stop_reason") == "pause_turn")

    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del name
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return block | {"is_error": True} if is_error else block

    def joined(self, results: Sequence[Any]) -> list[Any]:
        """Return one user message: the provider requires all results of a turn in one."""
        return [{"role": "user", "content": list(results)}] if results else []
