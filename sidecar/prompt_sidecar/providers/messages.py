"""How a format's messages are read without decoding everything in them.

A reader of `prompt_sidecar.prompt` handles all of a format, by bytes. These functions on JSON types find a message's
author, the calls that it makes and answers, and the parts that are a user's words or the model's thinking: enough for
an agent's client to shorten a history by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

Format: TypeAlias = Literal[
    "openai_chat",
    "anthropic_messages",
    "openai_responses",
    "gemini_contents",
    "bedrock_converse",
    "ai_sdk",
    "mcp_tool_result",
]
"""Formats of a prompt."""
Message: TypeAlias = Any
"""One message, as JSON types. A value that is not an object is passed on unchanged."""
CACHE_MARKS: Final = ("cache_control", "prompt_cache_breakpoint")
"""Members that mark where a provider caches a prompt, Anthropic's and OpenAI's. Agents move them from call to call, so
they are not part of a message's content. OpenAI's are on parts of messages and of tools' outputs, from GPT-5.6 on;
source: its guide on prompt caching, "Prompt cache breakpoints"."""


class FormatMessages(ABC):
    """The messages of one format."""

    format: ClassVar[Format]
    """The format's name: a key of `prompt_sidecar.prompt.formats.FORMATS`."""
    messages: ClassVar[str] = "messages"
    """The body's member with the messages."""
    system: ClassVar[tuple[str, ...]] = ()
    """The body's members for the system prompt, in all spellings; empty: it is in the messages."""
    tools: ClassVar[str] = "tools"
    """The body's member with the tools."""

    @property
    def before(self) -> tuple[str, ...]:
        """The members that precede the messages, as the provider sees them."""
        return (*self.system, self.tools)

    @abstractmethod
    def from_model(self, message: Message) -> bool:
        """Whether a message is from the model."""

    @abstractmethod
    def calls(self, message: Message) -> Sequence[str]:
        """Return the ids of the calls that a message of the model makes."""

    @abstractmethod
    def answers(self, message: Message) -> Sequence[str]:
        """Return the ids of the calls that a message answers."""

    @abstractmethod
    def words(self, message: Message) -> Message | None:
        """Return a message without tool answers: a user's words, or the system's; None if nothing is left."""

    def loads_tools(self, message: Message) -> bool:
        """Whether a message has loaded deferred tools, which the provider knows only from this message."""
        del message
        return False

    def compaction(self, message: Message) -> str:
        """Return the text of a provider's compaction in a message, which replaces everything before it.

        It is the provider's text; empty if the message has no compaction.
        """
        del message
        return ""

    def thoughts(self, message: Message) -> Sequence[Any]:
        """Return the thinking in a message, block by block, if the provider may bind it to what precedes it."""
        del message
        return ()

    def thoughtless(self, message: Message, picked: Callable[[Any], bool]) -> Message | None:
        """Return a message without the blocks of thinking that a function picks; None if nothing is left."""
        del picked
        return message

    def settled(self, messages: list[Message]) -> list[Message]:
        """Reorder and merge messages as the provider requires after some between them were left out."""
        return messages


def value_of(value: Any, name: str) -> Any:
    """Return a member of an object; None if it has none, or is not an object."""
    return value.get(name) if isinstance(value, Mapping) else None


def role_of(message: Message) -> Any:
    """Return a message's role, or None."""
    return value_of(message, "role")


def parts_of(message: Message, member: str = "content") -> list[Any]:
    """Return the array in a message's member; empty if there is none."""
    parts = value_of(message, member)
    return parts if isinstance(parts, list) else []


def texts_of(values: Sequence[Any], name: str) -> list[str]:
    """Return the strings in a member of objects."""
    return [found for value in values if isinstance(found := value_of(value, name), str)]


def without_parts(message: Message, member: str, picked: Callable[[Any], bool]) -> Message | None:
    """Return a message without the parts that a function picks; None if nothing is left."""
    parts = value_of(message, member)
    if not isinstance(parts, list):
        return message
    kept = [part for part in parts if not picked(part)]
    if len(kept) == len(parts):
        return message
    return {**message, member: kept} if kept else None


def has_type(part: Any, *kinds: str) -> bool:
    """Whether a part is of one of these types."""
    return value_of(part, "type") in kinds


def holds(part: Any, *names: str) -> bool:
    """Whether a part has one of these members."""
    return isinstance(part, Mapping) and any(name in part for name in names)


def leads(message: Message) -> bool:
    """Whether a message at the beginning is part of the system prompt."""
    return role_of(message) in ("system", "developer")


def unmarked(value: Any) -> Any:
    """Return a message, or a member of the body, without cache marks, which are not part of its content."""
    if isinstance(value, Mapping):
        return {name: unmarked(each) for name, each in value.items() if name not in CACHE_MARKS}
    if isinstance(value, list):
        return [unmarked(each) for each in value if not (holds(each, "cachePoint") and len(each) == 1)]
    return value
