"""What the bodies of requests and answers take: bounded in all, shared among callers, and within the process's memory.

A body is held until its request is answered, as it may be sent again; an answer that is read whole, as it may have to
be changed, or followed by another one. Where a further one has no room its request is refused, and its agent sends it
again a little later; an answer, which is paid for, passes unread. A message of a WebSocket counts as a body until it
has gone on, those of both sides together.

What is made of a body takes several times its bytes (`REQUEST_COPIES`, `ANSWER_COPIES`). So many are reserved in the
process's memory before the next piece of it is kept, as prompts reserve theirs, until nothing more is made of it. Used
on the event loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.calls.memory import REQUEST_COPIES, MemoryGate, Reservation
from prompt_sidecar.calls.turns import Owner, OwnerCounts
from prompt_sidecar.errors import TooLarge

SMALL: Final = 65_536
"""Bytes of a body that always has room: all places of `http.max_requests` with such bodies take less than one of the
largest ones."""
USUAL: Final = 4_194_304
"""Bytes of an answer that always has room within `http.body_bytes`, as its provider is paid: twenty thousand tokens in
events of two hundred bytes each, of which most is not kept."""


class Bodies:
    """Bytes of the bodies that are held, by owner."""

    def __init__(self, most: int, memory: MemoryGate, reached: Callable[[str], None]) -> None:
        """`most` is the bound; `memory` is the process's."""
        self._most = most
        self._memory = memory
        self._reached = reached
        self._held = OwnerCounts()

    @property
    def held(self) -> int:
        """Bytes of all."""
        return self._held.total

    @contextmanager
    def of(self, owner: Owner, always: int = SMALL, copies: int = REQUEST_COPIES) -> Iterator[BodyBudget]:
        """Make what counts the body of one request, or of its answer, until that is sent.

        Args:
            owner: whose it is.
            always: bytes that have room within the bound, whatever others have.
            copies: times that its bytes are in memory.
        """
        with self._memory.growing() as reserved:
            body = BodyBudget(self, owner, always, copies, reserved)
            try:
                yield body
            finally:
                self._held.add(owner, -body.size)

    def take(self, body: BodyBudget, more: int) -> None:
        """Count `more` bytes of a body. Raises TooLarge: they have no room."""
        size = body.size + more
        if size > body.always:
            left = self._most - self._held.total - more
            alone = self._held.total == body.size
            if not alone and (left < 0 or not self._held.share_may(body.owner.share, left)):
                raise self._counted(
                    f"requests and their answers take as much as all may ({self._most:,} bytes, http.body_bytes); "
                    "retry a little later",
                    bound="http.body_bytes",
                )
        if size > SMALL:
            self._reserve(body, size)
        self._held.add(body.owner, more)

    def _reserve(self, body: BodyBudget, size: int) -> None:
        try:
            body.reserved.resize(body.copies * size)
        except TooLarge:
            raise self._counted(
                "there is no memory for the body; retry a little later, or give the sidecar more "
                "(limits.process_bytes, the container's limit)",
                bound="limits.process_bytes",
            ) from None

    def _counted(self, message: str, bound: str) -> TooLarge:
        """Return an error that was counted here, as it does not end every request."""
        self._reached(bound)
        error = TooLarge(message, bound=bound)
        error.counted = True
        return error

    def give(self, body: BodyBudget, less: int) -> None:
        """Count `less` bytes of a body no more."""
        self._held.add(body.owner, -less)
        size = body.size - less
        body.reserved.resize(min(body.reserved.size, body.copies * size if size > SMALL else 0))


@dataclass(slots=True)
class BodyBudget:
    """What the body of one request takes."""

    bodies: Bodies
    owner: Owner
    always: int
    """Bytes for which there is always room."""
    copies: int
    """Times that its bytes are in memory."""
    reserved: Reservation
    """Memory for what is still made of it."""
    size: int = 0

    def take(self, more: int) -> None:
        """Count so many bytes more. Raises TooLarge: there is no room for them."""
        if more:
            self.bodies.take(self, more)
            self.size += more

    def give(self, less: int) -> None:
        """Count so many bytes no more."""
        if less:
            self.bodies.give(self, less)
            self.size -= less

    def settle(self) -> None:
        """Note that nothing more is made of what came so far: what there is of it is in the process's memory."""
        self.reserved.resize(0)
