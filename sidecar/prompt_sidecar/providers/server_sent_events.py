"""Server-sent events: bytes in, events out, each with its bytes unchanged.

WHATWG HTML, "Server-sent events", section 9.2.5. A byte order mark before the first event belongs to no line, so it is
returned separately.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import Final

_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|(?<=\r)\r|\r(?=.))", re.DOTALL)
"""A line's end and an empty line, each with any of the three line ends. A carriage return after a line feed may begin a
CRLF: the next byte decides."""
_LONGEST_END: Final = 4


class EventBytes:
    """Splits a stream as it arrives."""

    def __init__(self) -> None:
        self.rest = bytearray()
        """Received bytes that are not a whole event yet."""
        self._begun = False
        """Whether an event has ended."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that `chunk` completes; only `chunk` is searched."""
        searched = max(0, len(self.rest) - _LONGEST_END + 1)
        self.rest += chunk
        events, at = [], 0
        for found in _END.finditer(bytes(self.rest[searched:])):
            end = searched + found.end()
            events += self._marked(bytes(self.rest[at:end]))
            at = end
        del self.rest[:at]
        return events

    def last(self) -> list[bytes]:
        """Return the rest of the stream, though no empty line follows it."""
        rest, self.rest = bytes(self.rest), bytearray()
        return self._marked(rest) if rest else []

    def _marked(self, event: bytes) -> list[bytes]:
        """Return an event; a byte order mark before the first one is separate."""
        first, self._begun = not self._begun, True
        if first and event.startswith(BOM_UTF8):
            return [each for each in (BOM_UTF8, event[len(BOM_UTF8) :]) if each]
        return [event]
