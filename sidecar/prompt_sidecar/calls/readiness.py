"""Whether the process can answer calls, as reported by HTTP probes and gRPC's health service."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto


class State(Enum):
    """State of a process."""

    STARTING = auto()
    """What calls need is being loaded."""
    SERVING = auto()
    DRAINING = auto()
    """The process is stopping, and accepts no further calls."""


class Readiness:
    """The state of a process, and callbacks for its changes."""

    def __init__(self) -> None:
        self.state = State.STARTING
        self.changed: list[Callable[[State], None]] = []
        """Called with each new state."""

    def become(self, state: State) -> None:
        """Change the state."""
        self.state = state
        for changed in self.changed:
            changed(state)
