"""Reading a message that a test wrote as a Python value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prompt_sidecar.errors import SidecarError
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.items import Item, Message

OPENAI: Format = FORMATS["openai_chat"]
ANTHROPIC: Format = FORMATS["anthropic_messages"]


def read(format: Format, message: Any) -> Message:
    """Read a message as the third of a body."""
    return format.read(json.dumps(message, ensure_ascii=False).encode(), "json.body.messages[2]")


def identity(format: Format, message: Any) -> bytes:
    """What a message is recognised by."""
    return read(format, message).identity


def fault(work: Callable[[], object]) -> str | None:
    """The field that is refused, None if nothing is; any error that is not of the tree passes on."""
    try:
        work()
    except SidecarError as error:
        return error.field
    return None


def shown(items: tuple[Item, ...]) -> list[tuple[str, tuple[str | int, ...], str]]:
    """Items as kind, path and text."""
    return [(item.kind.value, item.path, item.text) for item in items]
