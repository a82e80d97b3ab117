"""Whether the process can answer calls: what probes over HTTP and gRPC's health service say."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto


class State(Enum):
    """Of a process."""

    STARTING = auto()
    """What calls need is loaded."""
    SERVING = auto()
    DRAINING = auto()
    """It stops, and takes no further calls."""


class Readiness:
    """The state of a process, and who is called when it changes."""

    def __init__(self) -> None:
        self.state = State.STARTING
        self.changed: list[Callable[[State], None]] = []
        """Called with each new state."""

    def become(self, state: State) -> None:
        """Change the state."""
        self.state = state
        for changed in self.changed:
            changed(state)
