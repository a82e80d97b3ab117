"""One item of a run's history, as the record knows it: where it came from, and under which id its original is kept.

The text itself is in the stash, once. History, index and search hold ids, offsets and these facts.
"""

from __future__ import annotations

from typing import NamedTuple

from prompt_sidecar.prompt.items import ItemKind, Role


class HistoryItem(NamedTuple):
    """A text, a tool call's arguments or a tool result, recorded before any stage touched it.

    A tuple: each item of an unseen prompt makes one before the answer, and a frozen dataclass is three times as dear.
    """

    stash_id: str
    role: Role
    """Whose text it is: a tool result is the tool's, whatever message it came in."""
    kind: ItemKind
    tool: str
    """The tool's name as the agent gave it, unchecked; empty for text. Show it through `plain_name` only."""
    call_id: str
    """The id of its call as the provider gave it, unchecked; empty for text."""
    iteration: int
    """From 1; a result belongs to the iteration of its call."""
    message: int
    """Index of its message in the run's history."""
    size: int
    """Bytes of the original."""
    content_type: str
    """`text/plain` or `application/json`."""
