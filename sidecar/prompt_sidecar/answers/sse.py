"""Server-sent events: bytes in, events out, each with its original bytes.

An event that the sidecar does not change is forwarded as those bytes, with any line ends, fields and comments. Only
`event` and `data` are read. WHATWG HTML, "Server-sent events", section 9.2.6.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from prompt_sidecar.answers.answer_json import read, write
from prompt_sidecar.answers.rewriting import rewritten
from prompt_sidecar.providers.server_sent_events import EventBytes

_LINE: Final = re.compile(rb"[^\r\n]*+(?:\r\n|\n|\r|\Z)")
_ENDED: Final = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r)\Z")
MOST_LINES: Final = 65_536
"""Lines of an event that is parsed: providers' events have one or two, and indented JSON some thousands. Each takes
some forty bytes in addition to its content."""
DONE: Final = b"[DONE]"
"""The data of OpenAI's last event, which is not JSON."""


EVENTS: Final = "text/event-stream"
"""The content type of server-sent events."""


class BrokenStream(Exception):
    """A stream cannot be split into events, or an event has more bytes than any needs."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    raw: bytes
    """All of its bytes, the empty line at its end included."""
    name: str = ""
    data: bytes | None = None
    """The event's data; None if there is none, as in a comment."""

    def json(self) -> Any:
        """Return the data as JSON types; None if it is not an object."""
        if self.data is None or self.data == DONE:
            return None
        found = read(self.data)
        return found if isinstance(found, dict) else None

    def changed(self, data: Any) -> Event:
        """Return the event with other data, derived from the result of `json`; its other bytes stay."""
        if self.data is None:
            return Event(written(data, self.name), self.name, write(data))
        made = rewritten(self.data, data)
        out = bytearray()
        is_written = False
        for line in _LINE.findall(self.raw):
            if not line.startswith(b"data:"):
                out += line
            elif not is_written:
                is_written = True
                end = line[len(line.rstrip(b"\r\n")) :] or b"\n"
                out += b"".join([b"data: " + each + end for each in made.split(b"\n")])
        if not is_written:
            return Event(written(data, self.name), self.name, made)
        if _ENDED.search(out) is None:
            out += b"\n\n"
        return Event(bytes(out), self.name, made)


class Splitter:
    """Splits a stream's bytes into events."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: limit on one event."""
        self._most = most_bytes
        self._events = EventBytes()

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes; only it is searched.

        Raises:
            BrokenStream: no event is complete, and the buffered one is too long.
        """
        events = [*map(_event, self._events.feed(chunk))]
        if self._events.waiting > self._most and not events:
            raise BrokenStream
        return events

    def may_end(self, chunk: bytes) -> bool:
        """Whether `chunk` may complete an event, or make the buffered one too long."""
        return self._events.waiting + len(chunk) > self._most or self._events.may_end(chunk)

    def last(self) -> list[Event]:
        """Return the event at the stream's end, though no empty line follows it."""
        return [*map(_event, self._events.last())]


def _event(raw: bytes) -> Event:
    """Parse an event; one with too many lines gets neither name nor data, so that it is forwarded unchanged."""
    name = ""
    data: list[bytes] = []
    lines = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in raw else raw
    if lines.count(b"\n") > MOST_LINES:
        return Event(raw)
    at, last = 0, len(lines)
    while at < last:
        end = lines.find(b"\n", at)
        if end < 0:
            end = last
        if lines.startswith(b"data:", at, end):  # its content may have many megabytes: it is copied once
            begin = at + 6 if lines.startswith(b" ", at + 5, end) else at + 5
            data.append(lines[begin:end])
        elif lines.startswith(b"event:", at, end):
            name = lines[at + 6 : end].strip().decode("utf-8", "replace")
        at = end + 1
    return Event(raw, name, b"\n".join(data) if data else None)


def written(data: Any, name: str = "") -> bytes:
    """Write an event with JSON data."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + write(data) + b"\n\n"
