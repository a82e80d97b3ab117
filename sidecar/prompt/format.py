"""What a format is: how its messages are read and written, and where the sidecar's own text may stand.

A format is one file with one `Format` value, and one row in `formats.py`. It knows the shape of a message and nothing
else: no stage, no run and no server asks which format it is dealing with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sidecar.prompt.items import Item, Message

Replacement = str | None
"""New text for an item; None: the empty value that its kind allows, such as `{}` for arguments."""


class Reader(Protocol):
    """Decodes a message."""

    def __call__(self, raw: bytes, field: str, identify: bool = True) -> Message:
        """Decode `raw`; `field` is the request field to name in an error.

        Without `identify` the identity is empty, and the message is one that was read before: it is not checked again.
        """
        ...


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
    add_system: Callable[[bytes | None, str], bytes] | None = None
    """Add a text to the value of `system_field` (None: the body has none yet)."""
    system_field: str = ""
    """The body's member that holds the system prompt; empty: it is the leading system messages."""
    tool_fields: tuple[str, ...] = ()
    """The body's members that hold tool schemas, whose tokens count."""
    reserve_fields: tuple[str, ...] = ()
    """The body's members that ask for tokens of answer, the best known first."""
    is_json: bool = True
    """Whether a body is JSON; otherwise messages come as slices."""
