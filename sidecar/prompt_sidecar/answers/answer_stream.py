"""A provider's stream on its way to the agent, through a filter: unreadable parts are forwarded unchanged.

A provider, or a proxy in front of it, may send anything: events that are not JSON, truncated frames, more bytes than
any answer has. As long as the agent was sent exactly the bytes received, the rest of such a stream is forwarded
unchanged. If it was not, since a call of the sidecar's tools was left out, the agent could not use the rest: the stream
has to end, with an error.
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
from prompt_sidecar.providers.byte_queue import ByteQueue

PIECE_BYTES: Final = 4_096
"""Bytes of a stream that are read, or decompressed, at a time on an event loop: events of three bytes take some ten
milliseconds, and the usage or the words of one event fit in."""
PIECE_LINES: Final = 192
"""Lines that are read at once: a piece of an answer's events has fifty to a hundred, one of comments five hundred,
which would take the event loop two milliseconds."""
_LEAST_PIECE: Final = 256
"""Bytes that are read at once however many lines they have."""
READ_AT_ONCE: Final = 65_536
"""Bytes of an answer, or of one event, that are read on an event loop: most take a millisecond or so. Larger ones are
read in a worker thread; a change of threads takes a tenth of a millisecond."""
_log = logging.getLogger(__name__)


def piece_end(chunk: bytes, at: int) -> int:
    """Return the end of the piece of a chunk that begins at a byte and is read at once on an event loop."""
    end = min(at + PIECE_BYTES, len(chunk))
    while end - at > _LEAST_PIECE and max(chunk.count(b"\n", at, end), chunk.count(b"\r", at, end)) > PIECE_LINES:
        end -= (end - at) // 2
    return end


class Why(Enum):
    """Why the rest of a stream is forwarded unread. The value is logged."""

    TOO_LONG = "the rest of a stream passes as it comes: it has more than %d bytes"
    UNREADABLE = "the rest of a stream passes as it comes: it cannot be split into events"
    FAILED = "the rest of a stream passes as it comes: %s"
    NO_ROOM = "the rest of a stream passes as it comes: there is no room for more of it"


class Discontinued(Exception):
    """A stream cannot continue, as the agent was not sent all of the previous events."""

    def __init__(self, made: bytes = b"") -> None:
        """`made` is sent before the stream ends."""
        super().__init__()
        self.made = made


class EventFilter(Protocol):
    """A filter for a stream's events, such as `Filter`."""

    @property
    def turns(self) -> int:
        """Number of the turn."""

    @property
    def left_out(self) -> bool:
        """Whether an event for the sidecar alone was left out."""

    def feed(self, event: Event) -> bytes:
        """Process an event; return the bytes to send to the agent now."""

    def keep(self) -> None:
        """Note that an event was processed successfully."""

    def undo(self) -> None:
        """Undo an event that failed and is forwarded unchanged: the waiting bytes are those from before it."""

    def rest(self) -> bytes:
        """Return the bytes that wait."""


class AnswerStream:
    """The stream of one turn. Not thread-safe.

    Args:
        splitter: splits bytes into events.
        events: the filter in which the turn has begun, or an object with the same methods.
        most_bytes: limit on the stream's bytes, as a filter keeps the turn until its end. From the event that
            exceeds it on, the stream is forwarded unread, however it is cut into pieces.
    """

    def __init__(self, splitter: EventSplitter, events: EventFilter, most_bytes: int) -> None:
        self._splitter = splitter
        self._filter = events
        self._most = most_bytes
        self._filtered_bytes = 0
        self._unsplit = ByteQueue()
        """Bytes received that are not a whole event yet."""
        self._waiting = bytearray()
        """Bytes that the filter has processed but not returned, as long as it returns them unchanged."""
        self._same = events.turns == 1
        """Whether the agent was sent exactly the bytes received, except those that wait."""
        self.passes = False
        """Whether the rest is forwarded unread."""
        self.why: Why | None = None
        """Why it is, or why the stream was discontinued; None if neither, or after `abandoned`."""

    @property
    def unsplit_bytes(self) -> int:
        """Number of bytes received that are not a whole event yet."""
        return len(self._unsplit)

    @property
    def taken_bytes(self) -> int:
        """Bytes of the stream so far, without those that were forwarded unread."""
        return self._filtered_bytes + len(self._unsplit)

    @property
    def waits(self) -> bool:
        """Whether received bytes have not reached the filter yet, or the filter has not returned them."""
        return not self.passes and (bool(self._unsplit) or bool(self._waiting))

    def only_collects(self, piece: bytes) -> bool:
        """Whether `feed` only keeps a piece, as it ends no event and exceeds no limit. Fast, however much is kept."""
        return (
            not self.passes
            and not self._is_beyond(len(self._unsplit) + len(piece))
            and not self._splitter.may_end(piece)
        )

    def feed(self, piece: bytes) -> bytes:
        """Process a piece; return the bytes to send now. Raises Discontinued."""
        if self.passes:
            return piece
        self._unsplit.append(piece)
        try:
            events = self._splitter.feed(piece)
        except BrokenStream:
            return self._too_long() if self._is_beyond(len(self._unsplit)) else self._given_up(Why.UNREADABLE)
        made = self._filtered(events)
        if self._is_beyond(len(self._unsplit)) and not self.passes:
            return self._too_long(made)
        return made

    def end(self) -> bytes:
        """Return the bytes that wait, as the stream has ended. Raises Discontinued."""
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
        """Forward the rest unread, as there is no memory for it; return the bytes to send now. Raises Discontinued."""
        return b"" if self.passes else self._given_up(Why.NO_ROOM)

    def _rest(self, made: bytes) -> bytes:
        try:
            return b"" if self.passes else self._filter.rest()
        except Exception as error:
            _log.error("a stream ends: %s", frames(error))
            self.why = Why.FAILED
            raise Discontinued(made) from error

    def abandoned(self) -> bytes:
        """Return the bytes withheld when the stream was discontinued; from now on every piece is returned unchanged."""
        self.passes = True
        rest = bytes(self._waiting) + self._unsplit.take(len(self._unsplit))
        self._waiting.clear()
        return rest

    def _filtered(self, events: Iterable[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if self._is_beyond(len(event.raw)):
                return self._too_long(b"".join(out))
            if event.raw == BOM_UTF8 and self._filter.turns > 1:  # in the middle of an event that the agent is sent
                self._unsplit.drop(len(event.raw))
                continue
            try:
                made = self._filter.feed(event)
            except Exception as error:  # whatever a provider sends, the agent must get its answer
                self._filter.undo()
                if not self._same:
                    _log.error("a stream ends: %s", frames(error))
                    self.why = Why.FAILED
                    raise Discontinued(b"".join(out)) from error
                return self._given_up(Why.FAILED, frames(error), made=b"".join(out))
            self._filter.keep()
            self._filtered_bytes += len(event.raw)
            self._unsplit.drop(len(event.raw))
            out.append(made)
            if self._same and (self._waiting or self._filter.left_out or made is not event.raw):
                self._waiting += event.raw
                self._same = not self._filter.left_out and self._waiting.startswith(made)
                del self._waiting[: len(made) if self._same else None]
        return b"".join(out)

    def _is_beyond(self, more: int) -> bool:
        """Whether `more` bytes make the stream exceed its limit."""
        return self._filtered_bytes + more > self._most

    def _too_long(self, made: bytes = b"") -> bytes:
        return self._given_up(Why.TOO_LONG, self._most, made=made)

    def _given_up(self, why: Why, *more: object, made: bytes = b"") -> bytes:
        """Return all bytes not sent yet, behind those just made; from now on every piece is returned unchanged."""
        self.why = why
        if self._filter.left_out or self._filter.turns > 1:
            _log.warning("a stream ends: it cannot be read, and something of it was left out")
            raise Discontinued(made)
        _log.warning(why.value, *more)
        # If values replaced masks, the filter has the waiting bytes.
        made += b"" if self._same else self._rest(made)
        return made + self.abandoned()
