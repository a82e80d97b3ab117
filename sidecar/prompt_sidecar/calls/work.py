"""The worker threads, as one request uses them: everything that takes processor time runs there.

Each piece of work says how many bytes it works on: those of the request, unless it names others, as an answer may have
many more. A large one has the place of large calls (`prompt_sidecar.calls.call_pool`), of which one runs at a time,
and what may take long runs at a pace (`run_paced`).

It runs in the request's own context (`contextvars`), so that spans and lines of the log are the request's.

A request counts as in flight from when its body is there until the prompt has been sent on, and where an answer is
made. Background work waits meanwhile, as it would keep the event loop from sending. While the model works it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from prompt_sidecar import slots
from prompt_sidecar.calls.shared import DoorServices
from prompt_sidecar.calls.turns import Owner
from prompt_sidecar.errors import CallCancelled

T = TypeVar("T")


@dataclass(slots=True)
class CallWorkers:
    """Runs functions in the worker threads, for one request."""

    shared: DoorServices
    owner: Owner
    """Whose turn among the threads it needs."""
    size: int
    """Bytes of the request's body."""
    cancelled: bool = False
    _counts: bool = False

    def begin(self) -> None:
        """Count as in flight from now on."""
        if not self._counts:
            self._counts = True
            self.shared.in_flight.add()

    def rest(self) -> None:
        """Count as in flight no more."""
        if self._counts:
            self._counts = False
            self.shared.in_flight.remove()

    def check(self) -> None:
        """End a call whose agent has gone. Raises CallCancelled."""
        if self.cancelled:
            raise CallCancelled("the agent has gone")

    def go_on(self) -> None:
        """Let short calls go first, between two steps of what may take long. Raises CallCancelled as `check`."""
        self.check()
        slots.give_way()

    async def run(self, function: Callable[..., T], *args: Any, size: int | None = None, **more: Any) -> T:
        """Run a function in a worker thread; it works on `size` bytes, those of the request by default."""

        def counted() -> T:
            self.shared.in_flight.add()
            try:
                return function(*args, **more)
            finally:
                self.shared.in_flight.remove()

        size = self.size if size is None else size
        try:
            submitted = self.shared.workers.submit_for(self.owner, size, copy_context().run, counted)
            return await asyncio.wrap_future(submitted)
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    async def run_paced(self, size: int, function: Callable[[Callable[[], None]], T]) -> T:
        """Run a function that works on `size` bytes, and calls what it is given between two of its steps.

        There it lets short calls go first and takes turns with other long ones. It may call no use case: that would
        wait for the turn which it has itself.
        """

        def paced() -> T:
            with self.shared.use_cases.runs.pace(self.check) as pace:
                return function(pace)

        return await self.run(paced, size=size)

    async def run_whole(self, function: Callable[[], T], size: int) -> T:
        """Run a function in a worker thread, and wait for its end also where the agent has gone meanwhile."""
        running = asyncio.ensure_future(self.run(function, size=size))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.gather(running, return_exceptions=True)
            raise

    def soon(self, function: Callable[..., object], *args: Any, size: int | None = None) -> None:
        """Run a function whose result nobody waits for, unless the threads have ended with the server."""
        size = self.size if size is None else size
        with contextlib.suppress(RuntimeError):
            self.shared.workers.submit_for(self.owner, size, copy_context().run, function, *args)
