"""A stream in the form of one JSON array: Gemini's answer to `streamGenerateContent` without `alt=sse`.

Bytes in, elements out, each when it is complete and with its original bytes. Bytes between elements do not wait for the
next element.
"""

from __future__ import annotations

import re
from typing import Final

from prompt_sidecar.answers.sse import BrokenStream, Event

_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'["\\]')
_OPENING: Final = frozenset(b"{[")
_ARRAY: Final = ord("[")
_QUOTE: Final = ord('"')
_ESCAPE: Final = ord("\\")
_ELEMENT: Final = 2
"""Nesting depth inside an element; the array has depth 1."""


class ArraySplitter:
    """Splits a stream's bytes into the elements of its array, as events without a name."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: limit on one element."""
        self._most = most_bytes
        self._rest = bytearray()
        self._begins = -1
        """Index at which an element begins; -1 if none has begun."""
        self._depth = 0
        self._in_string = False
        self._skips = False
        """Whether the next byte is escaped."""
        self._broken = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the elements that `chunk` completes; only it is searched.

        Raises:
            BrokenStream: no element is complete before data that is not an array, or an element that is too long.
        """
        if self._broken:
            raise BrokenStream
        events: list[Event] = []
        try:
            self._split(chunk, events)
        except BrokenStream:
            self._broken = True
            if not events:
                raise
        return events

    def may_end(self, chunk: bytes) -> bool:  # noqa: ARG002 - see EventSplitter
        """Whether `chunk` may complete an element."""
        return True

    def _split(self, chunk: bytes, events: list[Event]) -> None:
        """Add the elements that `chunk` completes. Raises BrokenStream."""
        at = len(self._rest)
        self._rest += chunk
        text = self._rest
        cut = 0
        if self._skips and chunk:
            at, self._skips = at + 1, False
        while (found := (_INSIDE if self._in_string else _OUTSIDE).search(text, at)) is not None:
            sign, at = text[found.start()], found.end()
            if sign == _QUOTE:
                self._in_string = not self._in_string
            elif sign == _ESCAPE:
                self._skips = at == len(text)
                at += 1
            elif self._nests(sign, found.start()):
                events.append(Event(bytes(text[cut:at]), data=bytes(text[self._begins : at])))
                cut, self._begins = at, -1
        del self._rest[:cut]
        if self._begins >= 0:
            self._begins -= cut
        else:
            events += self.last()
        if len(self._rest) > self._most:
            raise BrokenStream

    def _nests(self, sign: int, at: int) -> bool:
        """Process a bracket; return whether it ends an element. Raises BrokenStream."""
        if sign in _OPENING:
            if not self._depth and sign != _ARRAY:
                raise BrokenStream
            self._depth += 1
            if self._depth == _ELEMENT:
                self._begins = at
            return False
        if not self._depth:
            raise BrokenStream
        self._depth -= 1
        return self._depth == _ELEMENT - 1 and self._begins >= 0

    def last(self) -> list[Event]:
        """Return the events at the stream's end."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [Event(rest)] if rest else []
