"""Worker threads for one request: everything that takes processor time runs there.

Each piece of work states how many bytes it processes: by default those of the request, but an answer may have many
more. A large one occupies the slot for large calls (`prompt_sidecar.calls.call_pool`), of which one runs at a time, and
what may take long runs at a pace (`run_paced`).

It runs in the request's own context (`contextvars`), so that spans and lines of the log are the request's.

A request counts as in flight from the arrival of its body until the prompt has been forwarded, and while an answer is
made. Background work waits meanwhile, as it would keep the event loop from sending. It continues while the model
generates.
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
    """The owner for whom the thread pool schedules the work."""
    size: int
    """Bytes of the request's body."""
    waits: Callable[[], None] | None = None
    """Called in a worker thread when a function begins to wait there: for the store, a lock, or its turn."""
    cancelled: bool = False
    _counts: bool = False

    def begin(self) -> None:
        """Count the request as in flight from now on."""
        if not self._counts:
            self._counts = True
            self.shared.in_flight.add()

    def rest(self) -> None:
        """Stop counting the request as in flight."""
        if self._counts:
            self._counts = False
            self.shared.in_flight.remove()

    def check(self) -> None:
        """Raise CallCancelled if the agent has disconnected."""
        if self.cancelled:
            raise CallCancelled("the agent has gone")

    def go_on(self) -> None:
        """Let short calls run first, between two steps of long work. Raises CallCancelled as `check`."""
        self.check()
        slots.give_way()

    async def run(self, function: Callable[..., T], *args: Any, size: int | None = None, **more: Any) -> T:
        """Run a function in a worker thread; it processes `size` bytes, by default those of the request."""

        def counted() -> T:
            self.shared.in_flight.add()
            try:
                if self.waits is None:
                    return function(*args, **more)
                with slots.reporting(self.waits):
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
        """Run a function that processes `size` bytes; it calls its argument between two of its steps.

        That call lets short calls run first and takes turns with other long ones. The function must not call a use
        case, which would wait for the turn that the function has.
        """

        def paced() -> T:
            with self.shared.use_cases.runs.pace(self.check) as pace:
                return function(pace)

        return await self.run(paced, size=size)

    async def run_whole(self, function: Callable[[], T], size: int) -> T:
        """Run a function in a worker thread, and wait for its end even if the agent has disconnected."""
        running = asyncio.ensure_future(self.run(function, size=size))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.gather(running, return_exceptions=True)
            raise

    def soon(self, function: Callable[..., object], *args: Any, size: int | None = None) -> None:
        """Run a function without waiting for its result, unless the threads have ended with the server."""
        size = self.size if size is None else size
        with contextlib.suppress(RuntimeError):
            self.shared.workers.submit_for(self.owner, size, copy_context().run, function, *args)
