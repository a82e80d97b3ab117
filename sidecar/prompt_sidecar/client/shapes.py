"""How a fallback reads a prompt's messages in each format: one row of functions for each format.

Messages are JSON here, as they are sent. A *shape* finds out who a message is from, which calls it makes and answers,
which parts come from a user or the program, and which parts are thinking that the provider may bind to what precedes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Message: TypeAlias = Any
"""One message, as JSON's types. A value that is not an object is passed on unchanged."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One format."""

    messages: str
    """The body's member that holds the messages."""
    before: tuple[str, ...]
    """The members that precede the messages, as the provider sees them: system prompt and tools."""
    from_model: Callable[[Message], bool]
    """Whether a message is from the model."""
    calls: Callable[[Message], Sequence[str]]
    """The ids of the calls that a message of the model makes."""
    answers: Callable[[Message], Sequence[str]]
    """The ids of the calls that a message answers."""
    words: Callable[[Message], Message | None]
    """A message without answers of tools: a user's words, or the system's. None: nothing is left."""
    thoughts: Callable[[Message], Sequence[Any]] = lambda _: ()
    """The thinking in a message, block by block, where the provider may bind it to what precedes it."""
    thoughtless: Callable[[Message, Callable[[Any], bool]], Message | None] = lambda message, _: message
    """A message without the blocks of thinking that a function picks; None: nothing is left."""
    settled: Callable[[list[Message]], list[Message]] = lambda messages: messages
    """Messages in the order, and merged, as the provider requires where some between them were left out."""


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _role(message: Message) -> Any:
    return _of(message, "role")


def _parts(message: Message, member: str = "content") -> list[Any]:
    parts = _of(message, member)
    return parts if isinstance(parts, list) else []


def _ids(values: Sequence[Any], name: str) -> list[str]:
    return [found for value in values if isinstance(found := _of(value, name), str)]


def _said(*roles: str) -> Callable[[Message], bool]:
    return lambda message: _role(message) in roles


def _rest(message: Message, member: str, picked: Callable[[Any], bool]) -> Message | None:
    """A message without some of its parts."""
    parts = _of(message, member)
    if not isinstance(parts, list):
        return message
    kept = [part for part in parts if not picked(part)]
    if len(kept) == len(parts):
        return message
    return {**message, member: kept} if kept else None


# OpenAI's chat completions, and its kin


def _chat_answers(message: Message) -> list[str]:
    return _ids([message], "tool_call_id") if _role(message) == "tool" else []


def _chat_words(message: Message) -> Message | None:
    return None if _role(message) in ("assistant", "tool", "function") else message


# OpenAI's responses: the model's output is items of many types, and answers are items of their own


def _response_from_model(item: Message) -> bool:
    if _role(item) is not None:
        return bool(_role(item) == "assistant")
    return not _is_output(item)


def _is_output(item: Message) -> bool:
    kind = _of(item, "type")
    return isinstance(kind, str) and (kind.endswith("_output") or kind == "mcp_approval_response")


def _response_answers(item: Message) -> list[str]:
    return [*_ids([item], "call_id"), *_ids([item], "approval_request_id")] if _is_output(item) else []


def _response_calls(item: Message) -> list[str]:
    if not _response_from_model(item):
        return []
    return _ids([item], "id") if _of(item, "type") == "mcp_approval_request" else _ids([item], "call_id")


def _response_words(item: Message) -> Message | None:
    return None if _is_output(item) or _response_from_model(item) else item


# Anthropic's messages


def _block(*kinds: str) -> Callable[[Any], bool]:
    return lambda block: _of(block, "type") in kinds


_THINKING: Final = _block("thinking", "redacted_thinking")
_RESULT: Final = _block("tool_result")


def _without_thoughts(thinks: Callable[[Any], bool]) -> Callable[[Message, Callable[[Any], bool]], Message | None]:
    def without(message: Message, picked: Callable[[Any], bool]) -> Message | None:
        return _rest(message, "content", lambda block: thinks(block) and picked(block))

    return without


def _settled_system(messages: list[Message]) -> list[Message]:
    """Move a system entry behind the user's turns that follow it, where the model's turn between them was left out.

    It may stand only after a user's turn, and last or before one of the model's: platform.claude.com, "Mid-conversation
    system messages", read on 2026-11-22.
    """
    made: list[Message] = []
    held: list[Message] = []
    for message in messages:
        if _role(message) == "system" and made:
            held.append(message)
            continue
        if held and _role(message) != "user":
            made += held
            held = []
        made.append(message)
    return [*made, *held]


# Amazon Bedrock's Converse: a part is identified by the name of its only member


def _holds(name: str) -> Callable[[Any], bool]:
    return lambda part: isinstance(part, Mapping) and name in part


def _inner(message: Message, member: str, name: str, of: str) -> list[str]:
    return _ids([part[name] for part in _parts(message, member) if _holds(name)(part)], of)


_REASONS: Final = _holds("reasoningContent")


def _taking_turns(messages: list[Message]) -> list[Message]:
    """Roles have to take turns in Converse: neighbours of the same become one message."""
    made: list[Message] = []
    for message in messages:
        if made and _role(made[-1]) == _role(message):
            made[-1] = {**made[-1], "content": [*_parts(made[-1]), *_parts(message)]}
        else:
            made.append(message)
    return made


SHAPES: Final[Mapping[str, Shape]] = {
    "openai_chat": Shape(
        messages="messages",
        before=("tools",),
        from_model=_said("assistant"),
        calls=lambda message: _ids(_parts(message, "tool_calls"), "id"),
        answers=_chat_answers,
        words=_chat_words,
    ),
    "openai_responses": Shape(
        messages="input",
        before=("instructions", "tools"),
        from_model=_response_from_model,
        calls=_response_calls,
        answers=_response_answers,
        words=_response_words,
    ),
    "anthropic_messages": Shape(
        messages="messages",
        before=("system", "tools"),
        from_model=_said("assistant"),
        calls=lambda message: _ids([block for block in _parts(message) if _of(block, "type") == "tool_use"], "id"),
        answers=lambda message: _ids([block for block in _parts(message) if _RESULT(block)], "tool_use_id"),
        words=lambda message: None if _role(message) == "assistant" else _rest(message, "content", _RESULT),
        thoughts=lambda message: [block for block in _parts(message) if _THINKING(block)],
        thoughtless=_without_thoughts(_THINKING),
        settled=_settled_system,
    ),
    "bedrock_converse": Shape(
        messages="messages",
        before=("system", "toolConfig"),
        from_model=_said("assistant"),
        calls=lambda message: _inner(message, "content", "toolUse", "toolUseId"),
        answers=lambda message: _inner(message, "content", "toolResult", "toolUseId"),
        words=lambda message: (
            None if _role(message) == "assistant" else _rest(message, "content", _holds("toolResult"))
        ),
        thoughts=lambda message: [part for part in _parts(message) if _REASONS(part)],
        thoughtless=_without_thoughts(_REASONS),
        settled=_taking_turns,
    ),
    "gemini_contents": Shape(
        messages="contents",
        before=("systemInstruction", "system_instruction", "tools"),
        from_model=_said("model"),
        # Calls may have no ids; a result is in the turn after its call.
        calls=lambda _: (),
        answers=lambda _: (),
        words=lambda message: (
            None
            if _role(message) in ("model", "function")
            else _rest(
                message, "parts", lambda part: _holds("functionResponse")(part) or _holds("function_response")(part)
            )
        ),
    ),
    "ai_sdk": Shape(
        messages="messages",
        before=("system", "tools"),
        from_model=_said("assistant"),
        calls=lambda message: _ids([part for part in _parts(message) if _block("tool-call")(part)], "toolCallId"),
        answers=lambda message: _ids(_parts(message), "toolCallId") if _role(message) == "tool" else [],
        words=lambda message: None if _role(message) in ("assistant", "tool") else message,
    ),
}
"""By format. A format that is not here has no history, such as a single tool result."""


def leads(message: Message) -> bool:
    """Whether a message at the beginning is a part of the system prompt."""
    return _role(message) in ("system", "developer")


def unmarked(value: Any) -> Any:
    """Return a message, or a member of the body, without cache marks, which are no part of its content."""
    if isinstance(value, Mapping):
        return {name: unmarked(each) for name, each in value.items() if name != "cache_control"}
    if isinstance(value, list):
        return [unmarked(each) for each in value if not (_holds("cachePoint")(each) and len(each) == 1)]
    return value
