"""The label of an agent's tool. Bounded: the first tools that were seen have one each, all others are `other`."""

from __future__ import annotations

import threading
from typing import Final

from prompt_sidecar.telemetry.catalog import OTHER
from prompt_sidecar.trim.own_text import plain_name

MOST_TOOLS: Final = 32
"""Tools with a label of their own: as many as models. Few tools are given values."""


class ToolNames:
    """Turns a tool's name into a label. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()

    def label(self, tool: str) -> str:
        """The label of a tool's name."""
        if tool in self._names:
            return tool
        if plain_name(tool) != tool:
            return OTHER
        with self._lock:
            if len(self._names) < MOST_TOOLS:
                self._names.add(tool)
            return tool if tool in self._names else OTHER
