"""Memory of request bodies and answers: limited in total, shared among callers, and within the process's memory limit.

A body is kept until its request is answered, as it may be sent again; so is an answer that is read whole, as it may
have to be changed, or followed by another call. If there is no memory for a further body, its request is refused, and
the agent sends it again a little later; an answer, which is paid for, is forwarded unread. A message of a WebSocket
counts as a body until it has been forwarded, the messages of both sides together.

Processing a body takes several times its bytes (`REQUEST_COPIES`, `ANSWER_COPIES`). This memory is reserved before the
next piece of the body is kept, as for prompts, until processing has ended. On the event loop only.
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
"""Bytes of a request's body that are always admitted: all slots of `http.max_requests` with such bodies take less than
one of the largest bodies."""
USUAL: Final = 4_194_304
"""Bytes of an answer that are always admitted within `http.body_bytes`, as the provider is paid for it: twenty thousand
tokens in events of two hundred bytes each, most of which are not kept."""


class Bodies:
    """Bytes of the bodies that are kept, by owner."""

    def __init__(self, most: int, memory: MemoryGate, reached: Callable[[str], None]) -> None:
        """`most` is the limit in bytes; `memory` is the process's."""
        self._most = most
        self._memory = memory
        self._reached = reached
        self._held = OwnerCounts()

    @property
    def held(self) -> int:
        """Bytes of all bodies."""
        return self._held.total

    @contextmanager
    def of(self, owner: Owner, always: int = SMALL, copies: int = REQUEST_COPIES) -> Iterator[BodyBudget]:
        """Return what counts the body of one request, or of its answer, until it is sent.

        Args:
            owner: of the request.
            always: bytes that are admitted within the limit, whatever other owners use.
            copies: how many times the body is in memory.
        """
        with self._memory.growing() as reserved:
            body = BodyBudget(self, owner, always, copies, reserved)
            try:
                yield body
            finally:
                self._held.add(owner, -body.size)

    def take(self, body: BodyBudget, more: int) -> None:
        """Count `more` bytes of a body. Raises TooLarge if there is no memory for them."""
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
        """Return an error marked as counted here, since not every such error ends its request."""
        self._reached(bound)
        error = TooLarge(message, bound=bound)
        error.counted = True
        return error

    def give(self, body: BodyBudget, less: int) -> None:
        """Release `less` counted bytes of a body."""
        self._held.add(body.owner, -less)
        size = body.size - less
        body.reserved.resize(min(body.reserved.size, body.copies * size if size > SMALL else 0))


@dataclass(slots=True)
class BodyBudget:
    """Memory of one body."""

    bodies: Bodies
    owner: Owner
    always: int
    """Bytes that are always admitted."""
    copies: int
    """How many times the body is in memory."""
    reserved: Reservation
    """Memory reserved for processing the body."""
    size: int = 0

    def take(self, more: int) -> None:
        """Count so many further bytes. Raises TooLarge if there is no memory for them."""
        if more:
            self.bodies.take(self, more)
            self.size += more

    def give(self, less: int) -> None:
        """Release so many counted bytes."""
        if less:
            self.bodies.give(self, less)
            self.size -= less

    def settle(self) -> None:
        """Note that the bytes received so far are processed: results of that are in the process's memory already."""
        self.reserved.resize(0)
