"""Server-sent events: bytes in, events out, each with its bytes unchanged.

WHATWG HTML, "Server-sent events", section 9.2.5. A byte order mark before the first event belongs to no line, so it is
returned separately.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Final

from prompt_sidecar.providers.byte_queue import ByteQueue

_END: Final = re.compile(rb"[\r\n](?:(?<=\r)\n)?+(?:\r\n|\n|(?<=\r)\r|\r(?=.))", re.DOTALL)
"""A line's end and an empty line, each with any of the three line ends. A carriage return after a line feed may begin a
CRLF: the next byte decides. The expression takes some ten milliseconds for a megabyte."""
_LONGEST_END: Final = 4


class EventBytes:
    """Splits a stream as it arrives. Each byte is searched once, and copied once, when its event is complete."""

    def __init__(self) -> None:
        self._rest = ByteQueue()
        """Received bytes that are not a whole event yet."""
        self._tail = b""
        """The last of them, in which an event's end may begin."""
        self._begun = False
        """Whether an event has ended."""

    @property
    def waiting(self) -> int:
        """Number of bytes received that are not a whole event yet."""
        return len(self._rest)

    @property
    def ends_at_carriage_return(self) -> bool:
        """Whether they end an event, unless a line feed follows."""
        return self._tail.endswith(b"\n\r")

    def may_end(self, chunk: bytes) -> bool:
        """Whether `chunk` may complete an event."""
        return _may_end(self._tail + chunk)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that `chunk` completes; only `chunk` is searched."""
        if not self._rest:
            return self._begin(chunk)
        searched = self._tail + chunk
        at = len(self._tail) - len(self._rest)
        self._rest.append(chunk)
        events = []
        for end in _ends(searched):
            events += self._marked(self._rest.take(end - at))
            at = end
        kept = min(len(self._rest), _LONGEST_END - 1)
        self._tail = searched[len(searched) - kept :]
        return events

    def _begin(self, chunk: bytes) -> list[bytes]:
        """Return the events of a chunk before which nothing waits, as for most: none of them goes through the queue."""
        events, at = [], 0
        for end in _ends(chunk):
            events += self._marked(chunk[at:end])
            at = end
        rest = chunk[at:]
        self._rest.append(rest)
        self._tail = rest[1 - _LONGEST_END :]
        return events

    def last(self) -> list[bytes]:
        """Return the rest of the stream, though no empty line follows it."""
        rest, self._tail = self._rest.take(len(self._rest)), b""
        return self._marked(rest) if rest else []

    def _marked(self, event: bytes) -> list[bytes]:
        """Return an event; a byte order mark before the first one is separate."""
        first, self._begun = not self._begun, True
        if first and event.startswith(BOM_UTF8):
            return [each for each in (BOM_UTF8, event[len(BOM_UTF8) :]) if each]
        return [event]


def _may_end(searched: bytes) -> bool:
    """Whether bytes contain an event's end, or what may be one with the next byte. Takes a tenth of the time."""
    with_feed, with_return = b"\n" in searched, b"\r" in searched
    return (
        (with_feed and b"\n\n" in searched)
        or (with_feed and with_return and b"\n\r" in searched)
        or (with_return and b"\r\r" in searched)
    )


def _ends(searched: bytes) -> Iterator[int]:
    """Yield where events end."""
    if b"\r" not in searched:  # the only end is found much faster
        end = searched.find(b"\n\n")
        while end >= 0:
            yield end + 2
            end = searched.find(b"\n\n", end + 2)
    elif _may_end(searched):
        yield from (found.end() for found in _END.finditer(searched))
