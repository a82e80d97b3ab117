"""Restores masks in the tool calls of a provider's answer that is otherwise forwarded unchanged.

In a stream, bytes that may be a part of a mask wait for the next piece; a whole answer is searched at once. Unreadable
parts are forwarded unchanged: their masks stay, as they do without a door that restores them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from prompt_sidecar.answers.answer_json import read
from prompt_sidecar.answers.answer_stream import AnswerStream, Discontinued, Why
from prompt_sidecar.answers.base import Dialect, Filter
from prompt_sidecar.answers.json_array import ArraySplitter
from prompt_sidecar.answers.restoring import Restore, restored, safe
from prompt_sidecar.answers.rewriting import rewritten
from prompt_sidecar.answers.sse import Event
from prompt_sidecar.facts.envoy_calls import MasksStay
from prompt_sidecar.process.logs import frames

JSON: Final = "application/json"
_STAY: Final = {
    Why.TOO_LONG: MasksStay.TOO_LONG,
    Why.UNREADABLE: MasksStay.UNREADABLE,
    Why.FAILED: MasksStay.FAILED,
    Why.NO_ROOM: MasksStay.TOO_LONG,
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoredWhole:
    """The outcome of restoring a whole answer."""

    body: bytes | None
    """The answer with values in place of masks; None: it is forwarded unchanged."""
    stay: MasksStay | None = None
    """Why masks may be left in it; None: all of it was searched."""


def whole_restored(dialect: Dialect, answer: bytes, restore: Restore) -> RestoredWhole:
    """Restore masks in a whole answer."""
    try:
        found = read(answer)
        if not isinstance(found, dict):
            return RestoredWhole(None, MasksStay.UNREADABLE)
        done = [restored(*each, restore) for each in dialect.arguments(found)]
        return RestoredWhole(rewritten(answer, found) if any(done) else None)
    except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
        _log.error("masks were not restored in an answer: %s", frames(error))
        return RestoredWhole(None, MasksStay.FAILED)


class RestoredStream:
    """A stream whose masks are replaced by values. Not thread-safe.

    Buffered bytes are limited: from `most_bytes` on the stream is forwarded unread. `array`: it is one JSON array,
    whose elements are answers, instead of the dialect's own form.
    """

    def __init__(self, dialect: Dialect, restore: Restore, most_bytes: int, *, array: bool = False) -> None:
        self._failed = False
        """Whether restoring some masks failed."""
        self._over = False
        restore = safe(restore, self._fail)
        self._events = _Elements(dialect, restore) if array else _filter(dialect, restore)
        splitter = ArraySplitter(most_bytes) if array else dialect.splitter(most_bytes)
        self._stream = AnswerStream(splitter, self._events, most_bytes)

    @property
    def stay(self) -> MasksStay | None:
        """Why masks are left in the rest of the stream; None if they are not."""
        if self._stream.why is not None:
            return _STAY[self._stream.why]
        return MasksStay.FAILED if self._failed else None

    @property
    def waits(self) -> bool:
        """Whether processed bytes have not been returned yet."""
        return not (self._over or self._stream.passes) and (self._stream.waits or self._events.waits())

    @property
    def unsplit_bytes(self) -> int:
        """Number of bytes received that are not a whole event yet."""
        return self._stream.unsplit_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes of the stream so far, without those that were forwarded unread."""
        return self._stream.taken_bytes

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Process a piece, `last` if it is the stream's last; return the bytes to send now."""
        if self._over:
            return piece
        made = self._safely(self._stream.feed, piece)
        if last:
            made += self._safely(self._stream.end)
            self._over = True
        return made

    def _safely(self, step: Callable[..., bytes], *taken: bytes) -> bytes:
        try:
            return step(*taken)
        except Discontinued as ended:  # values already sent stay, and later masks too
            made = ended.made
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error("masks were not restored in the rest of a stream: %s", frames(error))
            made = b""
            self._fail()
        with suppress(Exception):  # it may be the part that has failed
            made += self._events.rest()
        return made + self._stream.abandoned()

    def _fail(self) -> None:
        self._failed = True


def _filter(dialect: Dialect, restore: Restore) -> Filter:
    """Create a filter that leaves nothing out."""
    events = dialect.filter((), None)
    events.restore = restore
    events.last = True
    events.begin()
    return events


class _Elements:
    """A filter for array elements, each of which contains complete calls."""

    turns: Final = 1
    left_out: Final = False

    def __init__(self, dialect: Dialect, restore: Restore) -> None:
        self._dialect = dialect
        self._restore = restore

    def feed(self, event: Event) -> bytes:
        """Restore an element; the bytes before it are sent unchanged."""
        found = event.json()
        done = [restored(*each, self._restore) for each in self._dialect.arguments(found)] if found is not None else ()
        if not any(done) or event.data is None:
            return event.raw
        return event.raw[: -len(event.data)] + rewritten(event.data, found)

    def keep(self) -> None:
        """Do nothing: nothing waits."""

    def undo(self) -> None:
        """Do nothing: nothing waits."""

    def rest(self) -> bytes:
        """Return nothing: nothing waits."""
        return b""

    def waits(self) -> bool:
        """Always false."""
        return False
