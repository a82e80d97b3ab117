"""Bytes of a stream that have been received and not consumed: kept in the pieces in which they arrived.

Appending copies nothing of what waits, and removing copies only what is returned, once. A copy of an event of 30 MB
takes some ten milliseconds, in which no other thread can run.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_SMALL: Final = 1_024
"""Bytes of a piece up to which it is joined with others: kept apart, each piece takes some forty bytes more."""
_JOINED: Final = 4_096
"""Bytes up to which small pieces are joined."""


class ByteQueue:
    """A first-in, first-out queue of bytes. Not thread-safe."""

    __slots__ = ("_begin", "_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: deque[bytes | bytearray] = deque()
        self._begin = 0
        """Bytes of the first piece that were removed."""
        self._size = 0

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self._size

    def append(self, piece: bytes) -> None:
        """Add bytes at the end."""
        if not piece:
            return
        self._size += len(piece)
        last = self._pieces[-1] if self._pieces else b""
        if type(last) is bytearray and len(last) + len(piece) <= _JOINED:
            last += piece
        else:
            self._pieces.append(bytearray(piece) if len(piece) <= _SMALL else piece)

    def take(self, count: int) -> bytes:
        """Remove the first `count` bytes, or all if there are fewer, and return them."""
        taken: list[bytes | bytearray | memoryview] = []
        left = min(count, self._size)
        self._size -= left
        while left:
            piece, begin = self._pieces[0], self._begin
            if begin or len(piece) > left:
                taken.append(memoryview(piece)[begin : begin + left])
            else:
                taken.append(piece)
            left -= len(taken[-1])
            self._removed(len(taken[-1]))
        return b"".join(taken)

    def drop(self, count: int) -> None:
        """Remove the first `count` bytes, or all if there are fewer."""
        if count >= self._size:
            self._pieces.clear()
            self._begin = self._size = 0
            return
        left = count
        self._size -= left
        while left:
            removed = min(left, len(self._pieces[0]) - self._begin)
            left -= removed
            self._removed(removed)

    def _removed(self, count: int) -> None:
        """Note that `count` further bytes of the first piece were removed."""
        self._begin += count
        if self._begin == len(self._pieces[0]):
            self._pieces.popleft()
            self._begin = 0
