"""The protocol that every door implements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Door(Protocol):
    """A way to call the process: for agents, or pages for people and machines.

    A door is created with the services that all doors share (admission, memory, metrics, callers, readiness), and has
    four steps: bind, start, drain, stop.
    """

    @property
    def early(self) -> bool:
        """Whether it starts before everything that calls need is loaded: its calls wait, and it reports not ready."""
        ...

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses that agents use; none if the door is not for agents."""
        ...

    @property
    def notice(self) -> str:
        """A line about it for the log at the start; empty if its addresses are enough."""
        ...

    def bind(self) -> None:
        """Open its listening sockets. Raises StartError."""
        ...

    def start(self) -> None:
        """Serve; return once calls are accepted."""
        ...

    def drain(self) -> None:
        """Refuse further calls; those in progress continue."""
        ...

    def stop(self, grace: float) -> bool:
        """Wait up to `grace` seconds for calls in progress, then end; return whether all finished.

        Called after `drain`, or after an error of any step; a stopped door cannot start again.
        """
        ...
