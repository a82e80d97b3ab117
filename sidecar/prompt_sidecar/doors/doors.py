"""The doors of one process and what they share, from the first address to the last call.

Addresses are taken first, so that one in use is reported before anything is loaded. At a stop all doors refuse further
calls at once; those in progress have the grace period together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from prompt_sidecar.calls.readiness import State
from prompt_sidecar.calls.shared import Shared
from prompt_sidecar.doors.door import Door
from prompt_sidecar.engine.runs.service import Runs


def _nothing() -> None:
    pass


class Doors:
    """Doors, in the order in which they start and stop. Where a step fails, all are closed."""

    def __init__(self, shared: Shared, doors: Sequence[Door]) -> None:
        self.shared = shared
        self.doors = doors

    @property
    def addresses(self) -> Sequence[str]:
        """What agents set to reach the doors."""
        return tuple(address for door in self.doors for address in door.addresses)

    def bind(self) -> None:
        """Take all addresses. Raises StartError."""
        try:
            for door in self.doors:
                door.bind()
        except BaseException:
            self.stop(0)
            raise

    def start(self, runs: Runs, load: Callable[[], None] = _nothing, warm: Callable[[], None] = _nothing) -> None:
        """Serve `runs`; return once the process is ready. `load` and `warm`: see `Shared.load`."""
        try:
            self.shared.start(runs)
            for door in self.doors:
                if door.early:
                    door.start()
            self.shared.load(load, warm)
            for door in self.doors:
                if not door.early:
                    door.start()
            self.shared.readiness.become(State.SERVING)
        except BaseException:
            self.stop(0)
            raise

    def stop(self, grace: float | None = None) -> bool:
        """Drain for `grace` seconds, by default the configured ones, then end; return whether all calls finished."""
        ends = monotonic() + (self.shared.options.grace if grace is None else grace)
        self.shared.drain()
        for door in self.doors:
            door.drain()
        finished = [door.stop(max(ends - monotonic(), 0.0)) for door in self.doors]
        self.shared.stop()
        return all(finished)
