"""Edits: how the sent prompt becomes the returned one, for agents that patch their own objects.

First, from the last message to the first, what is dropped is removed and what is trimmed is replaced; then our own
text is inserted, each piece at its final place. A pointer is therefore good at the moment its edit is applied.
"""

from __future__ import annotations

from prompt_sidecar.prompt.body import Split
from prompt_sidecar.prompt.format import Format
from prompt_sidecar.run.calls import Edit, EditOperation
from prompt_sidecar.run.frame import Framed
from prompt_sidecar.run.memory import Memory
from prompt_sidecar.run.received import SYSTEM


def edits_of(split: Split, framed: Framed, memory: Memory, format_: Format) -> list[Edit]:
    """The edits that make what was sent what is returned."""
    received = memory.received
    if received is None:
        return []
    base = pointer_base(split, format_)
    edits: list[Edit] = []
    for index in range(len(split) - 1, -1, -1):
        place = received.places[index]
        if place == SYSTEM:
            continue
        now = memory.rendered.slices[place] if place >= 0 else None
        if now is None:
            edits.append(Edit(EditOperation.REMOVE, f"{base}{index}", b""))
        elif now != split.message(index):
            edits.append(Edit(EditOperation.REPLACE, f"{base}{index}", now))
    edits.extend(
        Edit(EditOperation.INSERT, f"{base}{own.message_index}", framed.parts[own.message_index])
        for own in framed.own
        if own.message_index >= 0
    )
    for name, value in framed.members.items():
        operation = EditOperation.REPLACE if name in split.fields else EditOperation.INSERT
        edits.append(Edit(operation, f"/{name}", value))
    return edits


def pointer_base(split: Split, format_: Format) -> str:
    """What a JSON pointer to a message begins with."""
    return f"/{format_.messages_field}/" if split.is_object or not format_.is_json else "/"
