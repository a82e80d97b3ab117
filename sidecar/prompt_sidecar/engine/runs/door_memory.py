"""What doors keep of runs in memory of their own, such as turns of the model that an agent was not shown.

A run's part of it is the run's: it counts in the run's budget, and goes when the run does, however that comes: ended by
its agent, idle for too long, one run too many.
"""

from __future__ import annotations

from typing import Protocol

from prompt_sidecar.engine.runs.budget import Name


class DoorMemory(Protocol):
    """One such memory. Thread-safe; its methods are called with the table of runs locked, so they call no other part.

    Each but `sweep` takes constant time on average for what one run keeps.
    """

    def kept_bytes(self, run: Name) -> int:
        """What is kept of a run; bytes, estimated."""
        ...

    def forget(self, run: Name) -> None:
        """The run is over."""
        ...

    def forget_all(self, caller: str) -> None:
        """All runs of a caller are over, those too of which the core knows nothing."""
        ...

    def sweep(self, idle_since: float) -> None:
        """A bounded slice of housekeeping: runs that were not used since then, by the clock of runs."""
        ...
