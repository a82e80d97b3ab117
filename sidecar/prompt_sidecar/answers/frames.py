"""Amazon's event stream: bytes in, events out, each with its original bytes; and frames of the sidecar's own.

A frame has a prelude (its length, that of its headers, and a checksum of both), headers, a payload and a checksum of
all. A header is a name, a type and a value. smithy.io, "Amazon Event Stream Specification". `prompt_sidecar` does not
depend on Amazon's libraries; those that read frames include a whole client.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from prompt_sidecar.answers.answer_json import write
from prompt_sidecar.answers.rewriting import rewritten
from prompt_sidecar.answers.sse import BrokenStream, Event

FRAMES: Final = "application/vnd.amazon.eventstream"
"""The content type."""
_PRELUDE: Final = 12
_CHECKSUM: Final = 4
_STRING: Final = 7
_FIXED: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Length of a header's value by its type; values of the other types, byte arrays and strings, begin with their
length."""
_VARIABLE: Final = frozenset({6, _STRING})


class FrameSplitter:
    """Splits a stream's bytes into events.

    An event's name is its type, and its data the payload. A frame that reports an exception has no data.
    """

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: limit on one frame."""
        self._most = most_bytes
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes.

        Raises:
            BrokenStream: no event is complete before a frame that cannot be read.
        """
        self._rest += chunk
        events: list[Event] = []
        at = 0
        try:
            while (found := self._next(at)) is not None:
                events.append(found)
                at += len(found.raw)
        except BrokenStream:
            if not events:
                raise
        del self._rest[:at]
        return events

    def may_end(self, chunk: bytes) -> bool:  # noqa: ARG002 - see EventSplitter
        """Whether `chunk` may complete an event."""
        return True

    def _next(self, at: int) -> Event | None:
        """Return the frame that begins at `at`, or None if it is incomplete. Raises BrokenStream."""
        if len(self._rest) - at < _PRELUDE:
            return None
        total = int.from_bytes(self._rest[at : at + 4], "big")
        headers = int.from_bytes(self._rest[at + 4 : at + 8], "big")
        _check(self._rest[at : at + 8], self._rest[at + 8 : at + _PRELUDE])
        if not _PRELUDE + headers + _CHECKSUM <= total <= self._most:
            raise BrokenStream
        return None if len(self._rest) - at < total else _event(bytes(self._rest[at : at + total]), headers)

    def last(self) -> list[Event]:
        """Return nothing: a stream ends with a whole frame. Raises BrokenStream if it does not."""
        if self._rest:
            raise BrokenStream
        return []


def _check(covered: bytes | bytearray, checksum: bytes | bytearray) -> None:
    if zlib.crc32(covered) != int.from_bytes(checksum, "big"):
        raise BrokenStream


def _event(raw: bytes, headers: int) -> Event:
    _check(raw[:-_CHECKSUM], raw[-_CHECKSUM:])
    end = _PRELUDE + headers
    fields = dict(_headers(raw[_PRELUDE:end]))
    if fields.get(b":message-type") != b"event":
        return Event(raw)
    return Event(raw, fields.get(b":event-type", b"").decode("utf-8", "replace"), raw[end:-_CHECKSUM])


def _headers(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers that are strings. Raises BrokenStream."""
    at = 0
    while at < len(raw):
        kind_at = at + 1 + raw[at]
        if kind_at >= len(raw):
            raise BrokenStream
        name, kind, at = raw[at + 1 : kind_at], raw[kind_at], kind_at + 1
        if kind in _VARIABLE:
            length, at = int.from_bytes(raw[at : at + 2], "big"), at + 2
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise BrokenStream
        if at + length > len(raw):
            raise BrokenStream
        if kind == _STRING:
            yield name, raw[at : at + length]
        at += length


def reframed(event: Event, data: Any) -> bytes:
    """Write an event with other data, derived from the result of `Event.json`; its headers stay."""
    if event.data is None:
        return frame(data, event.name)
    headers = event.raw[_PRELUDE : _PRELUDE + int.from_bytes(event.raw[4:8], "big")]
    return _framed(headers, rewritten(event.data, data))


def frame(data: Any, name: str) -> bytes:
    """Write an event with JSON data."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return _framed(_encoded_headers(headers), write(data))


def exception(data: Any, name: str) -> bytes:
    """Write a frame that reports an exception."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return _framed(_encoded_headers(headers), write(data))


def _encoded_headers(headers: Mapping[str, str]) -> bytes:
    encoded = b""
    for name, value in headers.items():
        encoded += (
            bytes([len(name)]) + name.encode() + bytes([_STRING]) + len(value).to_bytes(2, "big") + value.encode()
        )
    return encoded


def _framed(headers: bytes, payload: bytes) -> bytes:
    total = _PRELUDE + len(headers) + len(payload) + _CHECKSUM
    prelude = total.to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    made = prelude + zlib.crc32(prelude).to_bytes(4, "big") + headers + payload
    return made + zlib.crc32(made).to_bytes(4, "big")
