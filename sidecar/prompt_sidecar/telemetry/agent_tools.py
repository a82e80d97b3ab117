"""The label of an agent's tool in the figures by tool. Bounded, and never a text that a model wrote.

The operator's list, where there is one, is all that is distinguished. Else tools that the agents' own definitions name
have labels: the first ones, then those that have brought in more than the smallest of these, until all labels are
given. A label stays for the life of the process, as a counter that moved from one label to another would seem to jump.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from typing import Final

from prompt_sidecar.telemetry.catalog import OTHER

FIRST_TOOLS: Final = 20
"""Tools that have a label from their first result on: as many as most agents have."""
MOST_TOOLS: Final = 32
"""Labels in all; the rest are for large tools that come late."""
WATCHED_TOOLS: Final = 256
"""Tools without a label whose tokens are added up; of more, the smallest is forgotten."""


class AgentTools:
    """Turns names of agents' tools into labels. Thread-safe."""

    def __init__(self, listed: Collection[str] = ()) -> None:
        """`listed`: the operator's tools; empty: the largest are distinguished."""
        self._listed = frozenset(listed)
        self._lock = threading.Lock()
        self._labels: Counter[str] = Counter()
        self._watched: Counter[str] = Counter()

    def label(self, tool: str, tokens: int, *, declared: bool) -> str:
        """The label of a tool that brought in so many tokens; `declared`: the agent's own definitions name it."""
        if self._listed:
            return tool if tool in self._listed else OTHER
        with self._lock:
            if tool not in self._labels and not (declared and self._enters(tool, tokens)):
                return OTHER
            self._labels[tool] += tokens
            return tool

    def known(self, tool: str) -> str:
        """The label of a tool that has one already, else that of all others."""
        return tool if tool in (self._listed or self._labels) else OTHER

    def _enters(self, tool: str, tokens: int) -> bool:
        """Whether a tool gets a label now; if not, its tokens are added up."""
        if len(self._labels) < FIRST_TOOLS:
            return True
        self._watched[tool] += tokens
        if len(self._labels) < MOST_TOOLS and self._watched[tool] > min(self._labels.values()):
            del self._watched[tool]
            return True
        if len(self._watched) > WATCHED_TOOLS:
            del self._watched[min(self._watched, key=self._watched.__getitem__)]
        return False
