"""One item of a run's history as recorded: its origin, and the id of its original.

The text itself is in the stash, once. History, index and search only hold ids, offsets and these facts.
"""

from __future__ import annotations

from typing import NamedTuple

from prompt_sidecar.prompt.items import ItemKind, Role


class HistoryItem(NamedTuple):
    """A text, a tool call's arguments or a tool result, recorded before any stage touched it.

    A tuple: one is created for each item of an unseen prompt before the answer, and a frozen dataclass takes three
    times as long.
    """

    stash_id: str
    role: Role
    """The author: TOOL for a tool result, whatever message contains it."""
    kind: ItemKind
    tool: str
    """The tool's name as the agent sent it, unchecked; empty for text. Display it through `plain_name` only."""
    call_id: str
    """The id of its call from the provider, unchecked; empty for text."""
    iteration: int
    """From 1; a result belongs to the iteration of its call."""
    message: int
    """Index of its message in the run's history."""
    size: int
    """Bytes of the original."""
    content_type: str
    """`text/plain` or `application/json`."""
