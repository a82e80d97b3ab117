"""What the bodies of requests and answers take: bounded in all, and shared among callers.

A body is held until its request is answered, as it may be sent again; an answer that is read whole, as it may have to
be changed, or followed by another one. Where a further one has no room its request is refused, and its agent sends it
again a little later. A message of a WebSocket counts as a body until it has gone on, those of both sides together. Used
on the event loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.errors import TooLarge
from prompt_sidecar.serving.turns import Counts, Owner

SMALL: Final = 65_536
"""Bytes of a body that always has room: all places of `http.max_requests` with such bodies take less than one of the
largest ones."""
USUAL: Final = 4_194_304
"""Bytes of an answer that always has room, as its provider is paid: twenty thousand tokens in events of two hundred
bytes each, of which most is not kept."""


class Bodies:
    """Bytes of the bodies that are held, by owner."""

    def __init__(self, most: int, room: Callable[[], int], reached: Callable[[str], None]) -> None:
        """`most` is the bound; `room` tells the bytes that the process may still take."""
        self._most = most
        self._room = room
        self._reached = reached
        self._held = Counts()

    @property
    def held(self) -> int:
        """Bytes of all."""
        return self._held.total

    @contextmanager
    def of(self, owner: Owner, always: int = SMALL) -> Iterator[Body]:
        """Make what counts the body of one request, or of its answer, until that is sent; `always` has room."""
        body = Body(self, owner, always)
        try:
            yield body
        finally:
            self.give(owner, body.size)

    def take(self, owner: Owner, size: int, more: int, always: int) -> None:
        """Count `more` bytes of a body that has `size`; `always` has room. Raises TooLarge: they have none."""
        if not more:
            return
        if size + more > always:
            left = self._most - self._held.total - more
            alone = self._held.total == size
            if not alone and (left < 0 or not self._held.share_may(owner.share, left)):
                self._reached("http.body_bytes")
                raise TooLarge(
                    f"requests and their answers take as much as all may ({self._most:,} bytes, http.body_bytes); "
                    "retry a little later",
                    bound="http.body_bytes",
                )
            if self._room() < size + more:  # its parts are joined
                self._reached("limits.process_bytes")
                raise TooLarge(
                    "there is no memory for the body; retry a little later, or give the sidecar more "
                    "(limits.process_bytes, the container's limit)",
                    bound="limits.process_bytes",
                )
        self._held.add(owner, more)

    def give(self, owner: Owner, less: int) -> None:
        """Count `less` bytes no more."""
        if less:
            self._held.add(owner, -less)


@dataclass(slots=True)
class Body:
    """What the body of one request takes."""

    bodies: Bodies
    owner: Owner
    always: int = SMALL
    """Bytes for which there is always room."""
    size: int = 0

    def take(self, more: int) -> None:
        """Count so many bytes more. Raises TooLarge: there is no room for them."""
        self.bodies.take(self.owner, self.size, more, self.always)
        self.size += more

    def give(self, less: int) -> None:
        """Count so many bytes no more."""
        self.bodies.give(self.owner, less)
        self.size -= less
