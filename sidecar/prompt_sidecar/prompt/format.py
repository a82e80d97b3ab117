"""What a format is: how its messages are read and written, and where the sidecar's own text may stand.

A format is one file with one `Format` value, and one row in `formats.py`. It knows the shape of a message and nothing
else: no stage, no run and no server asks which format it is dealing with.

Our own text goes into the history as messages where the format has a system message that may stand anywhere and is not
stored (`system_message`), else into the body's system member (`system`), else to the caller. A format that has both
puts what never changes into the member and the rest into the history.

Calls and results are paired by id: of the results with one id each answers the newest block of assistant messages with
an open call of that id, within the block in order. Where the format's calls may have no id, its reader puts
`pairing_id(call_id, tool)` of `items.py` wherever an id belongs: in `Message.calls` and `Message.answers`, and in the
`call_id` of arguments, results and their images. Calls without an id are then paired by name and order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from prompt_sidecar.prompt.body import FIELD, MESSAGES, Split
from prompt_sidecar.prompt.items import Item, Message

CALL_TOKENS: Final = 8
"""A tool call's or result's own framing and its id as a provider shows it to the model, where nothing is known of
it."""

Replacement = str | None
"""New text for an item; None: the empty value that its kind allows, such as `{}` for arguments."""


class Reader(Protocol):
    """Decodes a message."""

    def __call__(self, raw: bytes, field: str, identify: bool = True) -> Message:
        """Decode `raw`; `field` is the request field to name in an error.

        Without `identify` the identity is empty, and the message is one that was read before: it is not checked again.
        """
        ...


class Variant(Protocol):
    """Tells what a body is in."""

    def __call__(self, body: Split, model: str = "", /) -> Format:
        """The variant of a body that is for `model`; empty: nobody said."""
        ...


class ReasoningRule(Enum):
    """When a provider accepts that reasoning is no longer in a prompt."""

    KEPT = "kept"
    """Only where its whole message is dropped."""
    CLOSED_TURNS = "closed_turns"
    """Before the last words of the user: the turn that is going on needs all of its reasoning."""
    BOUND = "bound"
    """Each block is valid only after the very prompt that it was produced under, and must go if that changes."""


@dataclass(frozen=True, slots=True)
class SystemMember:
    """The body's member that holds the system prompt, in formats where it is not the leading system messages."""

    names: tuple[str, ...]
    """Its accepted spellings; where a body has none of them, the first is written."""
    add: Callable[[bytes | None, str], bytes]
    """Add a text of ours to its value (None: the body has none). Raises InvalidJson for a shape that takes none."""
    without: Callable[[bytes, Callable[[str], bool]], bytes]
    """Its value without the pieces that are ours, sent back; the same bytes if there are none. Raises InvalidJson."""
    texts: Callable[[bytes], list[str]]
    """The texts in its value whose tokens count, anything that is no text as compact JSON. Raises InvalidJson."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format's reader and writer."""

    name: str
    read: Reader
    """Decode a message. Raises InvalidJson."""
    write: Callable[[bytes, Mapping[Item, Replacement]], bytes]
    """Return the message's bytes with the items replaced; everything else keeps its bytes."""
    original: Callable[[bytes, Item], bytes]
    """The original of an item of that message: UTF-8 of a text, raw JSON of anything else."""
    system_message: Callable[[str], bytes] | None
    """Write a system message that may stand anywhere in the history; None where the format has none."""
    tool: Callable[[str, str, bytes], bytes]
    """Define a tool in the body's own schema: of name, description and parameters (a JSON Schema) make JSON."""
    system_after_user: bool = False
    """Whether a system message inside the history may stand only between a user's message and the model's; what never
    changes of ours then stands in the body's system member."""
    only_leading: bool = False
    """Whether system messages may stand only before all others: what of ours would stand further down stands there."""
    leading_system: bool = False
    """Whether system messages at the start are the system prompt: no part of the history, rewritten as agents like."""
    system: SystemMember | None = None
    """The body's member that holds the system prompt. Our text goes there only if there is no `system_message`."""
    messages_field: str = MESSAGES
    """The body's member that holds the messages."""
    text_message: bool = False
    """Whether a plain string may stand in place of the messages; `read` then takes the string, quotes included. Such a
    prompt is one message of the user, and the `variant` for it must have no `system_message`."""
    tool_fields: tuple[str, ...] = ()
    """The body's members that hold tool schemas, whose tokens count; `outer.inner` for one inside another."""
    reserve_fields: tuple[str, ...] = ()
    """The body's members that ask for tokens of answer, the best known first; dotted as `tool_fields`."""
    is_json: bool = True
    """Whether a body is JSON; otherwise messages come as slices."""
    single: bool = False
    """Whether a body is one message that stands on its own, beside the run's history."""
    variant: Variant | None = None
    """The format that a body really is in, where what else it says decides that; it has the same name."""
    bound: Format | None = None
    """The format where the model binds reasoning to what stands before it; None: no model of the format's does."""
    reasoning: ReasoningRule = ReasoningRule.CLOSED_TURNS
    """When reasoning may be absent."""
    call_tokens: int = CALL_TOKENS
    """Tokens that stand around a call, and around a result."""
    reasoning_messages: bool = False
    """Whether reasoning is a message of its own, which is dropped where another format's would lose its reasoning."""

    @property
    def directives_in_history(self) -> bool:
        """Whether our directives are a message."""
        return self.system_message is not None and not self.system_after_user

    @property
    def in_history(self) -> bool:
        """Whether a message of ours may stand inside the history."""
        return self.system_message is not None and not self.only_leading

    @property
    def messages_path(self) -> str:
        """The request field that holds the messages."""
        return f"{FIELD}.{self.messages_field}" if self.is_json else "conversation.messages"

    def member(self, body: Split) -> tuple[str, bytes | None]:
        """The system member's name in a body, in the spelling that is there, and its value; None: it has none."""
        if self.system is None:
            return "", None
        for name in self.system.names:
            value = body.field(name)
            if value is not None:
                return name, value
        return self.system.names[0], None
