"""The worker threads, as one request uses them: everything that takes processor time runs there.

A request counts as in flight from when its body is there until the prompt has been sent on, and where an answer is
made. Background work waits meanwhile, as it would keep the event loop from sending. While the model works it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from prompt_sidecar.errors import CallCancelled
from prompt_sidecar.serving.pool import InFlight, Pool
from prompt_sidecar.serving.turns import Owner

T = TypeVar("T")


@dataclass(slots=True)
class Work:
    """Runs functions in the worker threads, for one request."""

    pool: Pool
    in_flight: InFlight
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
            self.in_flight.add()

    def rest(self) -> None:
        """Count as in flight no more."""
        if self._counts:
            self._counts = False
            self.in_flight.remove()

    def check(self) -> None:
        """End a call whose agent has gone. Raises CallCancelled."""
        if self.cancelled:
            raise CallCancelled("the agent has gone")

    async def run(self, function: Callable[..., T], *args: Any, **more: Any) -> T:
        """Run a function in a worker thread."""

        def counted() -> T:
            self.in_flight.add()
            try:
                return function(*args, **more)
            finally:
                self.in_flight.remove()

        try:
            return await asyncio.wrap_future(self.pool.submit_for(self.owner, self.size, counted))
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    async def run_whole(self, function: Callable[[], T]) -> T:
        """Run a function in a worker thread, and wait for its end also where the agent has gone meanwhile."""
        running = asyncio.ensure_future(self.run(function))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.gather(running, return_exceptions=True)
            raise

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """Run a function whose result nobody waits for, unless the threads have ended with the server."""
        with contextlib.suppress(RuntimeError):
            self.pool.submit_for(self.owner, self.size, function, *args)


def connection(request: web.Request) -> str:
    """The connection that a request came on."""
    return "" if request.transport is None else str(request.transport.get_extra_info("peername"))
