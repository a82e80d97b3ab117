"""OpenAI's chat completions, and the many servers that implement them.

Source: platform.openai.com/docs/api-reference/chat, read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final

from prompt_sidecar.providers.api import ApiPath, BaseUrl, PassedPrompts, Provider
from prompt_sidecar.providers.call_pieces import LONGEST_NAME, CallEvent, CallPiece, CallPlace, NameOf, another
from prompt_sidecar.providers.messages import Format, Message, parts_of, role_of, texts_of
from prompt_sidecar.providers.sdk import (
    FunctionCall,
    PartPiece,
    SdkApi,
    StreamedEvent,
    StreamedTurn,
    TurnPart,
    is_object,
    sdk_changed,
    sdk_members,
    several,
)
from prompt_sidecar.providers.surrogates import paired, sound
from prompt_sidecar.providers.untyped import member, object_of, objects, ordinal, sdk_member, string
from prompt_sidecar.providers.usage import UsageMembers

OPENAI: Final = Provider(
    "openai",
    "https://api.openai.com",
    (BaseUrl("OPENAI_BASE_URL", "/v1"), BaseUrl("OPENAI_API_BASE", "/v1")),
    ("OPENAI_API_KEY",),
)
"""The SDK's variable (github.com/openai/openai-python, README), and LiteLLM's, which aider reads
(aider.chat/docs/llms/openai-compat.html)."""


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


def _more(like: dict[str, Any], choice: Any, index: Any, text: str) -> dict[str, Any]:
    """Return a chunk with a further piece of a call's arguments, like one before it."""
    piece = {"index": index, "function": {"arguments": text}}
    made = {**like, "choices": [{"index": choice, "delta": {"tool_calls": [piece]}, "finish_reason": None}]}
    made.pop("usage", None)
    return made


@dataclass(slots=True, eq=False)
class PiecedCall(TurnPart):
    """A call that is built from pieces: see `prompt_sidecar.providers.call_pieces`."""

    id: str = ""
    arguments: list[str] = field(default_factory=list)
    inner: dict[str, Any] = field(default_factory=dict)
    """Other members of its function."""
    more: dict[str, Any] = field(default_factory=dict)
    """Other members of the call."""

    def ends_with(self, piece: Mapping[str, Any]) -> bool:
        """Whether a piece with the same index begins another call."""
        name = member(piece, "function", "name")
        return another(piece.get("id"), name, self.id, self.name, begun=bool(self.arguments))

    def take(self, piece: Mapping[str, Any]) -> None:
        """Add a piece."""
        for name, value in piece.items():
            if name == "function":
                self._function(value)
            elif name == "id":
                self.id = self.id or string(value)
            elif name != "index" and value is not None:
                self.more[name] = value

    def _function(self, function: Any) -> None:
        for name, value in object_of(function).items():
            if name == "arguments":
                if isinstance(value, str) and value:
                    self.arguments.append(value)
            elif name == "name":
                if isinstance(value, str) and value != self.name and len(self.name) < LONGEST_NAME:
                    self.name += value
            elif value is not None:
                self.inner[name] = value

    def entry(self, whole: Callable[[str], str] = paired) -> dict[str, Any]:
        """Return it as an entry of a message; `whole` replaces halves of split characters."""
        function = {"name": self.name, "arguments": whole("".join(self.arguments)), **self.inner}
        named = {"id": self.id} if self.id else {}
        return {**named, "type": "function", **self.more, "function": function}


class _ChatChunks(StreamedTurn):
    """Chunks of a chat completion's stream."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"content": []}
        """Pieces of the message's texts: its content, a refusal, and reasoning of OpenAI-like servers."""
        self._calls: list[PiecedCall] = []
        self._current: dict[int | None, PiecedCall] = {}
        """By the provider's index, which several calls may have."""
        self._usage: Any = None
        self._finish: Any = None

    def take(self, event: Any) -> StreamedEvent:
        """See `StreamedTurn`."""
        usage, choices = sdk_member(event, "usage"), several(sdk_member(event, "choices"))
        self._usage = self._usage if usage is None else usage
        if not choices:
            return StreamedEvent(ends=True, says_more=True, is_usage=usage is not None)
        delta, finish = sdk_member(choices[0], "delta"), sdk_member(choices[0], "finish_reason")
        self._finish = finish or self._finish
        texts = {name: text for name in _TEXTS if isinstance(text := sdk_member(delta, name), str)}
        for name, text in texts.items():
            self._texts.setdefault(name, []).append(text)
        pieces = [self._piece(call) for call in several(sdk_member(delta, "tool_calls"))]
        says = bool(texts.get("content") or texts.keys() - {"content"})
        begins = not (pieces or says or finish) and bool(sdk_member(delta, "role"))
        return StreamedEvent(pieces, begins=begins, ends=bool(finish), says_more=bool(texts.get("content") or finish))

    def _piece(self, call: Any) -> PartPiece:
        if not is_object(call):
            return PartPiece(None, call)
        given, read = sdk_member(call, "index"), sdk_members(call)
        known = self._current.get(ordinal(given))
        if known is None or known.ends_with(read):
            known = self._current[ordinal(given)] = PiecedCall()
            self._calls.append(known)
        known.take(read)
        return PartPiece(known, call, given)

    def only(self, event: Any, kept: Sequence[Any]) -> Any:
        """See `StreamedTurn`."""
        first, *others = sdk_member(event, "choices")
        delta = sdk_changed(sdk_member(first, "delta"), tool_calls=[*kept] or None)
        return sdk_changed(event, choices=[sdk_changed(first, delta=delta), *others])

    def response(self) -> Any:
        """See `StreamedTurn`."""
        message: dict[str, Any] = {"role": "assistant"}
        message |= {name: sound("".join(pieces)) for name, pieces in self._texts.items()}
        message["content"] = message["content"] or None
        if self._calls:
            message["tool_calls"] = [call.entry(sound) for call in self._calls]
        return {"choices": [{"index": 0, "message": message, "finish_reason": self._finish}], "usage": self._usage}


_TEXTS: Final = ("content", "refusal", "reasoning_content", "reasoning")
"""Members of a message that a stream gives in pieces; the last two are those of OpenAI-like servers."""


class OpenAIChat(SdkApi):
    """See the module."""

    format: ClassVar[Format] = "openai_chat"
    provider: ClassVar[Provider] = OPENAI
    route: ClassVar[str] = "chat_completions"
    paths: ClassVar[tuple[ApiPath, ...]] = (ApiPath(re.compile(r"/chat/completions/?$")),)
    # platform.openai.com/docs/api-reference, its chapters that are not about text models; servers with OpenAI's APIs
    # have rerank and tokenize (docs.vllm.ai, "OpenAI-Compatible Server"). Read in November 2026.
    without_prompt: ClassVar[re.Pattern[str] | None] = re.compile(
        r"/(embeddings|moderations|files|uploads|vector_stores|fine_tuning|images|videos|audio|rerank|tokenize|"
        r"detokenize)(/|$)"
    )
    passed: ClassVar[tuple[tuple[re.Pattern[str], PassedPrompts], ...]] = (
        (re.compile(r"(?<!/chat)/completions/?$"), PassedPrompts.TEXT_PROMPT),
        (re.compile(r"/v\d+/batches/?$"), PassedPrompts.BATCH),
    )
    finish_reasons: ClassVar[frozenset[str]] = frozenset(
        {
            "content_filter",
            "function_call",
            "length",
            "stop",
            "tool_calls",
        }
    )
    """`finish_reason` (platform.openai.com, API reference of chat completions, 2026-11)."""
    usage: ClassVar[UsageMembers] = UsageMembers(
        input=("prompt_tokens",),
        cached=("prompt_tokens_details", "cached_tokens"),
        cache_write=("prompt_tokens_details", "cache_write_tokens"),  # from GPT-5.6 on
        tier_beside="service_tier",
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
                more = partial(_more, {**data}, choice.get("index"), call.get("index"))
                read.pieces.append(CallPiece(key, function, "arguments", more, call.get("id"), function.get("name")))
            if choice.get("finish_reason"):
                read.ended_choices.append(which)
        return read

    def tool_name(self, definition: Any) -> Any:
        """See `ProviderApi`."""
        return sdk_member(definition, "function", "name") or sdk_member(definition, "custom", "name")

    def streamed(self) -> StreamedTurn:
        """See `SdkApi`."""
        return _ChatChunks()

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

    def tool_result(self, call_id: str, name: str, text: str, *, is_error: bool) -> dict[str, Any]:
        """See `ProviderApi`. The format has no flag for an error; the text describes it."""
        del name, is_error
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    def strict_only(self, function: str) -> bool:
        """See `SdkApi`: true for `chat.completions.parse`."""
        return function == "parse"
