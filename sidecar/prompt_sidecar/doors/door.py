"""A way into the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Door(Protocol):
    """A way into the process: agents call it, or people and machines look at pages.

    A door is made with what all doors share, and its life has four steps. Admission, memory, counting, callers and
    readiness are none of its: it asks `Shared` for them.
    """

    @property
    def early(self) -> bool:
        """Whether it starts before what calls need is loaded: its calls wait, and it says that it is not ready."""
        ...

    @property
    def addresses(self) -> Sequence[str]:
        """What agents set to reach it; none: it is not for them."""
        ...

    @property
    def notice(self) -> str:
        """What the log says of it at the start; empty: its addresses are enough."""
        ...

    def bind(self) -> None:
        """Take its addresses. Raises StartError."""
        ...

    def start(self) -> None:
        """Serve; return once calls are accepted."""
        ...

    def drain(self) -> None:
        """Take no further calls; those at work go on."""
        ...

    def stop(self, grace: float) -> bool:
        """Wait for the calls at work, for `grace` seconds, and end; return whether all finished.

        It follows `drain`, or an error of any step; a door that has ended stays so.
        """
        ...
