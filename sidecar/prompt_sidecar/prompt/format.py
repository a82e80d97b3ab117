"""Formats: how messages are read and written, and where the sidecar's own text may be placed.

A format is one file with one `Format` value, and one row in `formats.py`. It only describes the shape of messages and
bodies: no stage, no run and no server depends on a particular format.

Our own text is placed in the history as messages where the format allows system messages anywhere and the provider does
not store them, else in the body's system member (`system`), else it is returned to the caller. Each format says so
once, in its `Placement`.

Calls and results are paired by id: a result answers the newest block of assistant messages with an open call of its id,
in order within the block. Where the format's calls may have no id, its reader uses `pairing_id(call_id, tool)` of
`items.py` as the id: in `Message.calls` and `Message.answers`, and in the `call_id` of arguments, results and their
images. Calls without an id are then paired by name and order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from prompt_sidecar.prompt.body import FIELD, MESSAGES, Split
from prompt_sidecar.prompt.cache_marks import CacheMarks
from prompt_sidecar.prompt.items import Item, Message
from prompt_sidecar.prompt.strings import JSON, Strings

CALL_TOKENS: Final = 8
"""Default tokens for the framing and id of a tool call or result, as the provider shows them to the model."""

Replacement = str | None
"""New text for an item; None: the empty value that its kind allows, such as `{}` for arguments."""


class MessageReader(Protocol):
    """Decodes a message."""

    def __call__(self, raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
        """Decode `raw`, which is a view only if it is long; `field` is the request field to name in an error.

        Without `identify` the identity is empty. Only for messages that were read before, as it skips the checks.
        """
        ...


class Variant(Protocol):
    """Selects the variant of a format for a body."""

    def __call__(self, body: Split, model: str = "", /) -> Format:
        """Return the variant for a body and model; `model` is empty if unknown."""
        ...


class ReasoningRule(Enum):
    """When a provider accepts a prompt from which reasoning was removed."""

    KEPT = "kept"
    """Only where its whole message is dropped."""
    CLOSED_TURNS = "closed_turns"
    """Before the user's last text: the current turn needs all of its reasoning."""
    BOUND = "bound"
    """A block is valid only after exactly the prompt that it was produced under, and must be removed if that
    changes."""


class Compaction(Enum):
    """How a provider treats messages before its newest compaction in a prompt. They are never trimmed."""

    DROPS = "drops"
    """The provider drops them, so they take no tokens."""
    READS = "reads"
    """The model reads them, and they take tokens like all others."""


class Stands(Enum):
    """Where a piece of our own text is placed in a prompt."""

    LEADING = "leading"
    """In a system message before the history, after the agent's own."""
    INSIDE = "inside"
    """In a system message inside the history, where a cut was made."""
    OUTSIDE = "outside"
    """In the body's system member; returned to the caller if a body has none."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where our own text is placed in the prompts of a format."""

    directives: Stands = Stands.OUTSIDE
    """The place of the text that never changes in a run."""
    lists: Stands = Stands.OUTSIDE
    """The place of the registry, and of the placeholder of dropped iterations."""
    message: Callable[[str], bytes] | None = None
    """Write a system message; None if all our text is placed outside."""
    after_user: bool = False
    """Whether a message inside the history must be between a user message and an assistant message."""

    @classmethod
    def inside(cls, message: Callable[[str], bytes]) -> Placement:
        """Return the placement of a format that allows system messages anywhere."""
        return cls(Stands.LEADING, Stands.INSIDE, message)

    @classmethod
    def leading(cls, message: Callable[[str], bytes]) -> Placement:
        """Return the placement of a format whose system messages must precede all others."""
        return cls(Stands.LEADING, Stands.LEADING, message)

    @classmethod
    def divided(cls, message: Callable[[str], bytes]) -> Placement:
        """Return the placement for a system member, and system messages only between user and assistant messages."""
        return cls(Stands.OUTSIDE, Stands.INSIDE, message, after_user=True)

    @property
    def takes_note(self) -> bool:
        """Whether a note may be placed at the end of the prompt."""
        return self.directives is Stands.LEADING and self.lists is Stands.INSIDE


OUTSIDE: Final = Placement()
"""All our text is placed in the body's system member, or returned to the caller."""


@dataclass(frozen=True, slots=True)
class SystemMember:
    """The body's member for the system prompt, in formats where it is not the leading system messages."""

    names: tuple[str, ...]
    """Its accepted names; the first is used if a body has none of them."""
    add: Callable[[bytes | None, str], bytes]
    """Adds our own text to its value (None: the body has none). Raises InvalidJson for an unsupported shape."""
    without: Callable[[bytes, Callable[[str], bool]], bytes]
    """Returns its value without our own texts that were sent back; the same bytes if there are none. Raises
    InvalidJson."""
    texts: Callable[[bytes], list[str]]
    """Returns the texts in its value whose tokens count; other values as compact JSON. Raises InvalidJson."""
    one_text: bool = False
    """Whether its value is one text, which a provider reads again as a whole, with tools and messages behind it, when
    ours at its end changes. In an array of blocks, those before ours stay cached, and so do the tools, which are first.
    """


@dataclass(frozen=True, slots=True)
class DeferredTools:
    """How an agent offers tools whose definitions the model does not see until a message loads them."""

    seen: Callable[[Any], Any]
    """Returns what the model sees from the first message on of a decoded member with tools."""
    definitions: Callable[[Any], Mapping[str, Any]]
    """Returns what it sees in addition once a message has the name of a tool in `Message.loads`; empty if a message
    that loads a tool has its definition."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format's reader and writer."""

    name: str
    read: MessageReader
    """Decode a message. Raises InvalidJson."""
    write: Callable[[bytes, Mapping[Item, Replacement]], bytes]
    """Return the message's bytes with the items replaced; all other bytes are kept."""
    originals: Callable[[bytes, Sequence[Item]], list[bytes]]
    """The originals of items of that message: UTF-8 of texts, raw JSON of other values. Takes linear time."""
    tool: Callable[[str, str, bytes], bytes]
    """Define a tool in the body's own schema, as JSON, from name, description and parameters (a JSON Schema)."""
    placement: Placement = OUTSIDE
    """Where our own text is placed."""
    leading_system: bool = False
    """Whether leading system messages are the system prompt: not part of the history, so agents may rewrite them."""
    system: SystemMember | None = None
    """The body's member for the system prompt. Our text that is placed outside the messages goes there."""
    messages_field: str = MESSAGES
    """The body's member for the messages."""
    text_message: bool = False
    """Whether the messages may be a plain string; `read` then receives the string, quotes included. Such a prompt is
    one user message, and the `variant` for it must have the placement `OUTSIDE`."""
    tool_fields: tuple[str, ...] = ()
    """The body's members for tool schemas, whose tokens count; `outer.inner` for a nested one."""
    deferred: DeferredTools | None = None
    """How tools in these members are deferred; None: all are visible from the first message on."""
    reserve_fields: tuple[str, ...] = ()
    """The body's members for the output limit in tokens, the most common first; dotted as `tool_fields`."""
    is_json: bool = True
    """Whether a body is JSON; otherwise messages are given as slices."""
    strings: Strings = JSON
    """How the strings of its messages are found and changed."""
    single: bool = False
    """Whether a body is a single message that is not part of the run's history."""
    variant: Variant | None = None
    """Selects a variant of the format, with the same name, by the body's other members and the model."""
    bound: Format | None = None
    """The variant for models that bind reasoning to the prompt before it; None if there are no such models."""
    as_sent: Format | None = None
    """The variant that numbers the texts of one result in the order in which they were sent, for runs that began that
    way; None if the format numbers no texts by name (`structured.py`)."""
    numbers_as_sent: bool = False
    """Whether this is such a variant."""
    reasoning: ReasoningRule = ReasoningRule.CLOSED_TURNS
    """When reasoning may be absent."""
    drop_invalid: Callable[[Split], Mapping[str, bytes]] | None = None
    """Returns the members that ask the provider to drop thinking that is invalid after the prompt; None if there are
    none."""
    call_tokens: int = CALL_TOKENS
    """Framing tokens of a call, and of a result."""
    alternating: bool = False
    """Whether messages of the user and of the model must alternate."""
    reasoning_messages: bool = False
    """Whether reasoning is a message of its own, which is dropped to remove it."""
    compaction: Compaction | None = None
    """How messages before a provider's compaction are treated; None if its messages have none."""
    cache_marks: CacheMarks | None = None
    """How a prompt is marked for the provider's cache; None if it is not."""
    cache_key: str = ""
    """The body's member that groups requests with the same beginning; empty if there is none."""
    takes_cache_key: Callable[[str], bool] = bool
    """Whether a model accepts it, by its name."""

    def original(self, raw: bytes, item: Item) -> bytes:
        """Return the original of one item of a message; see `originals`."""
        return self.originals(raw, [item])[0]

    @property
    def messages_path(self) -> str:
        """Path of the request field with the messages."""
        return f"{FIELD}.{self.messages_field}" if self.is_json else "conversation.messages"

    def member(self, body: Split) -> tuple[str, bytes | None]:
        """Return the system member's name in the body, else its first name, and its value (None if absent)."""
        if self.system is None:
            return "", None
        for name in self.system.names:
            value = body.field(name)
            if value is not None:
                return name, value
        return self.system.names[0], None
