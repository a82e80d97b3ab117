"""Runs the doors of one process and the services that they share, from binding to stopping.

All addresses are bound first, so that one in use is reported before anything is loaded. At a stop all doors refuse
further calls at once; the grace period for calls in progress is shared by all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from prompt_sidecar.calls.readiness import State
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.doors.door import Door
from prompt_sidecar.engine.runs.service import Runs

_ASKED_AGAIN_SECONDS: Final = 1.0
"""Seconds between two checks whether everything that the process needs is available."""


def _nothing() -> None:
    pass


class Doors:
    """Doors, in the order in which they start and stop. If a step fails, all are closed."""

    def __init__(self, shared: DoorServices, doors: Sequence[Door]) -> None:
        self.shared = shared
        self.doors = doors
        self._stopping = threading.Event()
        self._changing = threading.Lock()

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses that agents use."""
        return tuple(address for door in self.doors for address in door.addresses)

    def bind(self) -> None:
        """Bind all addresses. Raises StartError."""
        try:
            for door in self.doors:
                door.bind()
        except BaseException:
            self.stop(0)
            raise

    def start(
        self,
        runs: Runs,
        load: Callable[[], None] = _nothing,
        warm: Callable[[], None] = _nothing,
        *,
        until: Callable[[], bool] | None = None,
    ) -> None:
        """Serve `runs`; return once calls are answered.

        Args:
            runs: the core.
            load: see `DoorServices.load`.
            warm: see `DoorServices.load`.
            until: returns whether everything else that the process needs is available; the process is not ready
                before. Called in a thread of its own. None: it needs nothing else.
        """
        try:
            self.shared.start(runs)
            for door in self.doors:
                if door.early:
                    door.start()
            self.shared.load(load, warm)
            for door in self.doors:
                if not door.early:
                    door.start()
            if until is None:
                self.shared.readiness.become(State.SERVING)
            else:
                threading.Thread(target=self._become_ready, args=(until,), name="ready", daemon=True).start()
        except BaseException:
            self.stop(0)
            raise

    def _become_ready(self, until: Callable[[], bool]) -> None:
        while not until():
            if self._stopping.wait(_ASKED_AGAIN_SECONDS):
                return
        with self._changing:
            if not self._stopping.is_set():
                self.shared.readiness.become(State.SERVING)

    def stop(self, grace: float | None = None) -> bool:
        """Drain for `grace` seconds, by default the configured ones, then end; return whether all calls finished."""
        ends = monotonic() + (self.shared.options.grace if grace is None else grace)
        with self._changing:
            self._stopping.set()
        self.shared.drain()
        for door in self.doors:
            door.drain()
        finished = [door.stop(max(ends - monotonic(), 0.0)) for door in self.doors]
        self.shared.stop(max(ends - monotonic(), 0.0))
        return all(finished)
