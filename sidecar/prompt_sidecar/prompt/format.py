"""Formats: how messages are read and written, and where the sidecar's own text may be placed.

A format is one file with one `Format` value, and one row in `formats.py`. It only describes the shape of messages and
bodies: no stage, no run and no server asks which format it is dealing with.

Our own text is placed in the history as messages where the format allows system messages anywhere and the provider does
not store them (`system_message`), else in the body's system member (`system`), else it is returned to the caller. A
format with both places the constant text in the member and the rest in the history.

Calls and results are paired by id: a result answers the newest block of assistant messages with an open call of its id,
in order within the block. Where the format's calls may have no id, its reader uses `pairing_id(call_id, tool)` of
`items.py` as the id: in `Message.calls` and `Message.answers`, and in the `call_id` of arguments, results and their
images. Calls without an id are then paired by name and order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from prompt_sidecar.prompt.body import FIELD, MESSAGES, Split
from prompt_sidecar.prompt.items import Item, Message

CALL_TOKENS: Final = 8
"""Default tokens for the framing and id of a tool call or result, as the provider shows them to the model."""

Replacement = str | None
"""New text for an item; None: the empty value that its kind allows, such as `{}` for arguments."""


class Reader(Protocol):
    """Decodes a message."""

    def __call__(self, raw: bytes, field: str, identify: bool = True) -> Message:
        """Decode `raw`; `field` is the request field to name in an error.

        Without `identify` the identity is empty. Only for messages that were read before, as it skips the checks.
        """
        ...


class Variant(Protocol):
    """Selects the variant of a format for a body."""

    def __call__(self, body: Split, model: str = "", /) -> Format:
        """The variant for a body and model; `model` is empty if it is not known."""
        ...


class ReasoningRule(Enum):
    """When a provider accepts that reasoning is no longer in a prompt."""

    KEPT = "kept"
    """Only where its whole message is dropped."""
    CLOSED_TURNS = "closed_turns"
    """Before the user's last text: the current turn needs all of its reasoning."""
    BOUND = "bound"
    """A block is valid only after exactly the prompt that it was produced under, and must be removed if that
    changes."""


@dataclass(frozen=True, slots=True)
class SystemMember:
    """The body's member for the system prompt, in formats where it is not the leading system messages."""

    names: tuple[str, ...]
    """Its accepted names; the first is used where a body has none of them."""
    add: Callable[[bytes | None, str], bytes]
    """Add our own text to its value (None: the body has none). Raises InvalidJson for an unsupported shape."""
    without: Callable[[bytes, Callable[[str], bool]], bytes]
    """Its value without our own texts that were sent back; the same bytes if there are none. Raises InvalidJson."""
    texts: Callable[[bytes], list[str]]
    """The texts in its value whose tokens count; other values as compact JSON. Raises InvalidJson."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format's reader and writer."""

    name: str
    read: Reader
    """Decode a message. Raises InvalidJson."""
    write: Callable[[bytes, Mapping[Item, Replacement]], bytes]
    """Return the message's bytes with the items replaced; all other bytes are kept."""
    original: Callable[[bytes, Item], bytes]
    """The original of an item of that message: UTF-8 of a text, raw JSON of other values."""
    system_message: Callable[[str], bytes] | None
    """Write a system message that may be anywhere in the history; None if the format does not allow one."""
    tool: Callable[[str, str, bytes], bytes]
    """Define a tool in the body's own schema, as JSON, from name, description and parameters (a JSON Schema)."""
    system_after_user: bool = False
    """Whether a system message in the history must be between a user message and an assistant message. Our constant
    text is then placed in the body's system member."""
    only_leading: bool = False
    """Whether system messages must precede all others; all our own text is then placed there."""
    leading_system: bool = False
    """Whether leading system messages are the system prompt: not part of the history, so agents may rewrite them."""
    system: SystemMember | None = None
    """The body's member for the system prompt. Our text is placed there only if there is no `system_message`."""
    messages_field: str = MESSAGES
    """The body's member for the messages."""
    text_message: bool = False
    """Whether the messages may be a plain string; `read` then gets the string, quotes included. Such a prompt is one
    user message, and the `variant` for it must have no `system_message`."""
    tool_fields: tuple[str, ...] = ()
    """The body's members for tool schemas, whose tokens count; `outer.inner` for a nested one."""
    reserve_fields: tuple[str, ...] = ()
    """The body's members for the output limit in tokens, the most common first; dotted as `tool_fields`."""
    is_json: bool = True
    """Whether a body is JSON; otherwise messages come as slices."""
    single: bool = False
    """Whether a body is a single message that is not part of the run's history."""
    variant: Variant | None = None
    """Selects a variant of the format, with the same name, by the body's other members and the model."""
    bound: Format | None = None
    """The variant for models that bind reasoning to the prompt before it; None if there are no such models."""
    reasoning: ReasoningRule = ReasoningRule.CLOSED_TURNS
    """When reasoning may be absent."""
    call_tokens: int = CALL_TOKENS
    """Framing tokens of a call, and of a result."""
    reasoning_messages: bool = False
    """Whether reasoning is a message of its own, which is dropped to remove it."""

    @property
    def directives_in_history(self) -> bool:
        """Whether our directives are placed in a message."""
        return self.system_message is not None and not self.system_after_user

    @property
    def in_history(self) -> bool:
        """Whether a message of ours may be placed inside the history."""
        return self.system_message is not None and not self.only_leading

    @property
    def messages_path(self) -> str:
        """Path of the request field with the messages."""
        return f"{FIELD}.{self.messages_field}" if self.is_json else "conversation.messages"

    def member(self, body: Split) -> tuple[str, bytes | None]:
        """Name of the system member as it is in the body, else its first name, and its value (None: absent)."""
        if self.system is None:
            return "", None
        for name in self.system.names:
            value = body.field(name)
            if value is not None:
                return name, value
        return self.system.names[0], None
