"""Server-sent events: bytes in, events out, each with the bytes that it came as.

An event that is not the sidecar's business goes on as those bytes, whatever their line ends, fields and comments. Only
`event` and `data` are read. WHATWG HTML, "Server-sent events", section 9.2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r|\r\n\n|\n\r\n")
_LINES: Final = re.compile(rb"\r\n|\n|\r")
DONE: Final = b"[DONE]"
"""The data of OpenAI's last event, which is no JSON."""


class TooLongEvent(Exception):
    """An event has more bytes than any can need."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    raw: bytes
    """All of its bytes, the empty line at its end included."""
    name: str = ""
    data: bytes | None = None
    """None: there is no data, as in a comment."""

    def json(self) -> Any:
        """Return the data as JSON's types; None: it is not an object."""
        if self.data is None or self.data == DONE:
            return None
        try:
            found = orjson.loads(self.data)
        except orjson.JSONDecodeError:
            return None
        return found if isinstance(found, dict) else None


class Splitter:
    """Takes a stream's bytes as they arrive and gives its events when they are whole."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` of one event."""
        self._most = most_bytes
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that `chunk` completes. Raises TooLongEvent."""
        buffer = self._rest + chunk if self._rest else chunk
        at = 0
        for end in _END.finditer(buffer):
            yield _event(buffer[at : end.end()])
            at = end.end()
        self._rest = buffer[at:]
        if len(self._rest) > self._most:
            raise TooLongEvent

    def last(self) -> Iterator[Event]:
        """Yield what the stream ended with, though no empty line follows it."""
        if self._rest:
            yield _event(self._rest)
            self._rest = b""


def _event(raw: bytes) -> Event:
    name, data = "", None
    for line in _LINES.split(raw):
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            data = value if data is None else data + b"\n" + value
        elif line.startswith(b"event:"):
            name = line[6:].strip().decode("utf-8", "replace")
    return Event(raw, name, data)


def written(data: Any, name: str = "") -> bytes:
    """Write an event with JSON data."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + orjson.dumps(data) + b"\n\n"
