"""OpenAI's responses: the model's output is items of many types, and answers are items of their own.

Source: platform.openai.com/docs/api-reference/responses, read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.api import ApiPath, Provider
from prompt_sidecar.providers.call_pieces import CallEvent, CallPiece, CallPlace, NameOf
from prompt_sidecar.providers.messages import Format, Message, role_of, texts_of, value_of
from prompt_sidecar.providers.openai_chat import OPENAI, openai_error
from prompt_sidecar.providers.sdk import FunctionCall, PartPiece, SdkApi, StreamedEvent, StreamedTurn, TurnPart
from prompt_sidecar.providers.untyped import object_of, objects, ordinal, sdk_member, string, within
from prompt_sidecar.providers.usage import UsageMembers

ADDITIONAL_TOOLS: Final = "additional_tools"
"""Type of an input item that offers tools, as the body's member `tools` does. Seen in Codex 0.171."""


COMPACTIONS: Final = frozenset({"compaction", "compaction_summary", "context_compaction"})
"""Types of items with a provider's compaction; the second is an earlier name, the third Codex's own."""


def is_output(item: Message) -> bool:
    """Whether an item answers one of the model's items."""
    kind = value_of(item, "type")
    return isinstance(kind, str) and (kind.endswith("_output") or kind == "mcp_approval_response")


AGENT_ANSWERS: Final = frozenset(
    {
        "computer_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
        "tool_search_call",
    }
)
"""Items of a response, other than function calls, that wait for the agent's answer."""


def _output(response: Any) -> Sequence[Any]:
    return sdk_member(response, "output") or ()


_ARGUMENTS_DELTA: Final = "response.function_call_arguments.delta"
"""The event with a piece of a call's arguments."""


def _more(like: dict[str, Any], text: str) -> dict[str, Any]:
    """Return an event with a further piece of a call's arguments, like one before it."""
    return {**like, "delta": text}


class _ResponseEvents(StreamedTurn):
    """Events of a response's stream."""

    index: ClassVar[str] = "output_index"

    def __init__(self) -> None:
        self._whole: Any = None
        self._items: dict[int, TurnPart] = {}
        """By the provider's index."""

    def take(self, event: Any) -> StreamedEvent:
        """See `StreamedTurn`."""
        given, item = sdk_member(event, "output_index"), sdk_member(event, "item")
        if sdk_member(event, "type") in ("response.completed", "response.incomplete", "response.failed"):
            self._whole = sdk_member(event, "response")
            return StreamedEvent(ends=True)
        index = ordinal(given)
        if index is None:
            return StreamedEvent(begins=True)
        part = self._items.setdefault(index, TurnPart())
        if sdk_member(item, "type") == "function_call":
            part.name = part.name or string(sdk_member(item, "name"))
        return StreamedEvent([PartPiece(part, event, given)])

    def response(self) -> Any:
        """See `StreamedTurn`."""
        if self._whole is None:
            raise ValueError("the stream ended before the response did")
        return self._whole


class OpenAIResponses(SdkApi):
    """See the module."""

    format: ClassVar[Format] = "openai_responses"
    provider: ClassVar[Provider] = OPENAI
    route: ClassVar[str] = "responses"
    messages: ClassVar[str] = "input"
    system: ClassVar[tuple[str, ...]] = ("instructions",)
    # "The window you send to `/responses/compact` must still fit within your model's context window"
    # (developers.openai.com/api/docs/guides/compaction), so an agent whose history was trimmed before needs trimming
    # here too.
    paths: ClassVar[tuple[ApiPath, ...]] = (
        ApiPath(re.compile(r"/responses/?$")),
        ApiPath(re.compile(r"/responses/input_tokens/?$"), counts=True),
        ApiPath(re.compile(r"/responses/compact/?$"), compacts=True),
    )
    # The last event of a stream has the whole response.
    finish_reasons: ClassVar[frozenset[str]] = frozenset(
        {
            "cancelled",
            "completed",
            "content_filter",
            "failed",
            "incomplete",
            "max_output_tokens",
        }
    )
    """`status`, and for an incomplete response its reason (platform.openai.com, API reference of responses, 2026-11).
    """
    usage: ClassVar[UsageMembers] = UsageMembers(
        input=("input_tokens",),
        cached=("input_tokens_details", "cached_tokens"),
        cache_write=("input_tokens_details", "cache_write_tokens"),  # from GPT-5.6 on
        tier_beside="service_tier",
        outputs=(("output_tokens",),),
        within="response",
    )
    websocket: ClassVar[str] = "/responses"
    stored: ClassVar[tuple[str, ...]] = ("previous_response_id", "conversation")

    def from_model(self, message: Message) -> bool:
        """See `Messages`."""
        role = role_of(message)
        if role is None:
            return not is_output(message) and value_of(message, "type") != ADDITIONAL_TOOLS
        return bool(role == "assistant")

    def calls(self, message: Message) -> list[str]:
        """See `Messages`."""
        if not self.from_model(message):
            return []
        return texts_of([message], "id" if value_of(message, "type") == "mcp_approval_request" else "call_id")

    def answers(self, message: Message) -> list[str]:
        """See `Messages`."""
        if not is_output(message):
            return []
        return [*texts_of([message], "call_id"), *texts_of([message], "approval_request_id")]

    def loads_tools(self, message: Message) -> bool:
        """See `Messages`."""
        return value_of(message, "type") == "tool_search_output" and bool(value_of(message, "tools"))

    def compaction(self, message: Message) -> str:
        """See `Messages`."""
        return (
            "".join(texts_of([message], "encrypted_content")) if within(value_of(message, "type"), COMPACTIONS) else ""
        )

    def words(self, message: Message) -> Message | None:
        """See `Messages`."""
        return None if is_output(message) or self.from_model(message) else message

    def error(self, status: int, message: str, reason: str, *, final: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del final
        return openai_error(status, message, reason)

    def call_places(self, answer: Mapping[str, Any]) -> Iterator[CallPlace]:
        """See `ProviderApi`."""
        for item in objects(answer.get("output")):
            if item.get("type") == "function_call":
                yield item, "arguments", str(item.get("name"))

    def call_event(self, data: dict[str, Any], name_of: NameOf) -> CallEvent:
        """See `ProviderApi`."""
        index, read, kind = data.get("output_index"), CallEvent(), data.get("type")
        key, item = (None, ordinal(index)), object_of(data.get("item"))
        if kind == "response.output_item.added" and item.get("type") == "function_call":
            first = {"type": _ARGUMENTS_DELTA, "item_id": item.get("id"), "output_index": index}
            read.pieces.append(CallPiece(key, {}, "", partial(_more, first), name=item.get("name"), begins=True))
        elif kind == _ARGUMENTS_DELTA:
            read.pieces.append(CallPiece(key, data, "delta", partial(_more, {**data})))
        elif kind in ("response.function_call_arguments.done", "response.output_item.done"):
            read.ended.append(key)
            name = name_of(key)
            read.whole.append((data, "arguments", str(data.get("name")) if name is None else name))
            read.whole.extend(self.call_places({"output": [item]}))
        else:
            read.whole.extend(self.call_places(object_of(data.get("response"))))
        return read

    def history(self, given: Any) -> list[Any]:
        """See `SdkApi`."""
        return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)

    def streamed(self) -> StreamedTurn:
        """See `SdkApi`."""
        return _ResponseEvents()

    def turn(self, response: Any) -> list[Any]:
        """See `SdkApi`."""
        return list(_output(response))

    def functions(self, response: Any) -> Iterator[FunctionCall]:
        """See `SdkApi`."""
        for item in _output(response):
            if sdk_member(item, "type") == "function_call":
                yield sdk_member(item, "call_id"), sdk_member(item, "name"), sdk_member(item, "arguments"), item

    def waits_otherwise(self, response: Any) -> bool:
        """See `SdkApi`."""
        return any(sdk_member(item, "type") in AGENT_ANSWERS for item in _output(response))

    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """See `ProviderApi`."""
        del name, is_error
        return {"type": "function_call_output", "call_id": call_id, "output": text}
