"""A provider's stream on its way to the agent, through a filter: what can be read is read, all else goes on as it came.

A provider, or a server between it and here, may send anything: events that are no JSON, frames that are cut, more bytes
than an answer has. As long as the agent was sent just what came, the rest of such a stream goes on as it comes. Where
it was not, since a call of the sidecar's tools was left out, nobody could go on from what follows: the stream has to
end, with an error.
"""

from __future__ import annotations

import logging
from codecs import BOM_UTF8
from collections.abc import Iterable
from enum import Enum
from typing import Final, Protocol

from prompt_sidecar.answers.base import EventSplitter
from prompt_sidecar.answers.sse import BrokenStream, Event
from prompt_sidecar.process.logs import frames

PIECE_BYTES: Final = 4_096
"""Bytes of a stream that are read, or unpacked, at a time on an event loop: events of three bytes take some ten
milliseconds, and the figures or the words of one event fit in."""
READ_AT_ONCE: Final = 65_536
"""Bytes of an answer, or of one event, that are read on an event loop: most take a millisecond or so. Larger ones are
read in a worker thread, to which it takes a tenth of a millisecond to get."""
_log = logging.getLogger(__name__)


class Why(Enum):
    """Why the rest of a stream passes as it comes. A value is what is logged."""

    TOO_LONG = "the rest of a stream passes as it comes: it has more than %d bytes"
    UNREADABLE = "the rest of a stream passes as it comes: it cannot be split into events"
    FAILED = "the rest of a stream passes as it comes: %s"
    NO_ROOM = "the rest of a stream passes as it comes: there is no room for more of it"


class Discontinued(Exception):
    """A stream cannot go on, as the agent was not sent what came before."""

    def __init__(self, made: bytes = b"") -> None:
        """`made` is what goes on before the stream ends."""
        super().__init__()
        self.made = made


class EventFilter(Protocol):
    """What a stream's events go through, such as `Filter`."""

    @property
    def turns(self) -> int:
        """Which turn this is."""

    @property
    def left_out(self) -> bool:
        """Whether something was kept from the agent that is not its business."""

    def feed(self, event: Event) -> bytes:
        """Take an event; return what goes on to the agent now."""

    def keep(self) -> None:
        """Note that an event was taken as it should be."""

    def undo(self) -> None:
        """Take back an event that failed, and goes on as it came: what waits is what has waited before it."""

    def rest(self) -> bytes:
        """Return what has waited."""


class AnswerStream:
    """One turn's stream. Not thread-safe.

    Args:
        splitter: makes events of bytes.
        events: the filter in which the turn has begun, or what does as one.
        most_bytes: of the stream: a filter keeps the turn until its end. From the event that goes beyond on, it passes
            as it comes, however it is cut into pieces.
    """

    def __init__(self, splitter: EventSplitter, events: EventFilter, most_bytes: int) -> None:
        self._splitter = splitter
        self._filter = events
        self._most = most_bytes
        self._filtered_bytes = 0
        self._unsplit = bytearray()
        """What came and is no whole event yet."""
        self._waiting = bytearray()
        """What the filter has taken and not given, as long as it gave what it took."""
        self._same = events.turns == 1
        """Whether the agent was sent just what came, but for what waits."""
        self.passes = False
        """Whether the rest goes on as it comes."""
        self.why: Why | None = None
        """Why it does, or why the stream was discontinued; None: it does not, or is abandoned."""

    @property
    def unsplit_bytes(self) -> int:
        """Bytes of what came and is no whole event yet."""
        return len(self._unsplit)

    @property
    def taken_bytes(self) -> int:
        """Bytes of the stream so far, unless it passes as it comes."""
        return self._filtered_bytes + len(self._unsplit)

    @property
    def waits(self) -> bool:
        """Whether something that came has not gone to the filter yet, or has gone into it and nothing has come out."""
        return not self.passes and (bool(self._unsplit) or bool(self._waiting))

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what goes on now. Raises Discontinued."""
        if self.passes:
            return piece
        self._unsplit += piece
        try:
            events = self._splitter.feed(piece)
        except BrokenStream:
            return self._too_long() if self._is_beyond(len(self._unsplit)) else self._given_up(Why.UNREADABLE)
        made = self._filtered(events)
        if self._is_beyond(len(self._unsplit)) and not self.passes:
            return self._too_long(made)
        return made

    def end(self) -> bytes:
        """Return what has waited, as the stream has ended. Raises Discontinued."""
        if self.passes:
            return b""
        try:
            events = [*self._splitter.feed(b""), *self._splitter.last()]
        except BrokenStream:
            return self._given_up(Why.UNREADABLE)
        made = self._filtered(events)
        made += self._rest(made)
        self._waiting.clear()
        return made

    def give_up(self) -> bytes:
        """Have the rest pass as it comes, as there is no room for it; return what goes on now. Raises Discontinued."""
        return b"" if self.passes else self._given_up(Why.NO_ROOM)

    def _rest(self, made: bytes) -> bytes:
        try:
            return b"" if self.passes else self._filter.rest()
        except Exception as error:
            _log.error("a stream ends: %s", frames(error))
            self.why = Why.FAILED
            raise Discontinued(made) from error

    def abandoned(self) -> bytes:
        """Return what was not given when the stream could not go on; from now on everything goes on as it comes."""
        self.passes = True
        rest, self._waiting, self._unsplit = bytes(self._waiting + self._unsplit), bytearray(), bytearray()
        return rest

    def _filtered(self, events: Iterable[Event]) -> bytes:
        out = bytearray()
        for event in events:
            if self._is_beyond(len(event.raw)):
                return self._too_long(bytes(out))
            if event.raw == BOM_UTF8 and self._filter.turns > 1:  # in the middle of what the agent is sent
                del self._unsplit[: len(event.raw)]
                continue
            try:
                made = self._filter.feed(event)
            except Exception as error:  # whatever a provider sends, the agent gets its answer
                self._filter.undo()
                if not self._same:
                    _log.error("a stream ends: %s", frames(error))
                    self.why = Why.FAILED
                    raise Discontinued(bytes(out)) from error
                return self._given_up(Why.FAILED, frames(error), made=bytes(out))
            self._filter.keep()
            self._filtered_bytes += len(event.raw)
            del self._unsplit[: len(event.raw)]
            out += made
            if self._same:
                self._waiting += event.raw
                self._same = not self._filter.left_out and self._waiting.startswith(made)
                del self._waiting[: len(made) if self._same else None]
        return bytes(out)

    def _is_beyond(self, more: int) -> bool:
        """Whether the stream has too many bytes with so many more."""
        return self._filtered_bytes + more > self._most

    def _too_long(self, made: bytes = b"") -> bytes:
        return self._given_up(Why.TOO_LONG, self._most, made=made)

    def _given_up(self, why: Why, *more: object, made: bytes = b"") -> bytes:
        """Return all that has not gone on, behind what was just made; from now on everything does as it comes."""
        self.why = why
        if self._filter.left_out or self._filter.turns > 1:
            _log.warning("a stream ends: it cannot be read, and something of it was left out")
            raise Discontinued(made)
        _log.warning(why.value, *more)
        # Where values took the place of masks, the filter has what waits.
        made += b"" if self._same else self._rest(made)
        return made + self.abandoned()
