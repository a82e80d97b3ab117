"""A provider's answer as it passes through a door that changes nothing in it but masks in calls of tools.

Of a stream, what may be a part of a mask waits for the next piece; a whole answer is searched at once. What cannot be
read goes on as it came: its masks stay, as they do where no door restores them.
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
    """With values in place of masks; None: it goes on as it came."""
    stay: MasksStay | None = None
    """Why masks that it may hold stay; None: all were looked at."""


def whole_restored(dialect: Dialect, answer: bytes, restore: Restore) -> RestoredWhole:
    """Return a whole answer with values in place of masks."""
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
    """A stream with values in place of masks. Not thread-safe.

    What is kept of it is bounded: from `most_bytes` on it goes on as it comes. `array`: it is one JSON array, whose
    elements are answers, and not of the dialect's own form.
    """

    def __init__(self, dialect: Dialect, restore: Restore, most_bytes: int, *, array: bool = False) -> None:
        self._failed = False
        """Whether values could not be put in place of some masks."""
        self._over = False
        restore = safe(restore, self._fail)
        self._events = _Elements(dialect, restore) if array else _filter(dialect, restore)
        splitter = ArraySplitter(most_bytes) if array else dialect.splitter(most_bytes)
        self._stream = AnswerStream(splitter, self._events, most_bytes)

    @property
    def stay(self) -> MasksStay | None:
        """Why masks stay in the rest of the stream; None: they do not."""
        if self._stream.why is not None:
            return _STAY[self._stream.why]
        return MasksStay.FAILED if self._failed else None

    @property
    def waits(self) -> bool:
        """Whether something that was taken has not gone on yet."""
        return not (self._over or self._stream.passes) and (self._stream.waits or self._events.waits())

    @property
    def unsplit_bytes(self) -> int:
        """Bytes that came and are no whole event yet."""
        return self._stream.unsplit_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes of the stream so far, unless it passes as it comes."""
        return self._stream.taken_bytes

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Take a piece, `last` of the stream; return what goes on now."""
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
        except Discontinued as ended:  # values stay where they are, and masks too
            made = ended.made
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error("masks were not restored in the rest of a stream: %s", frames(error))
            made = b""
            self._fail()
        with suppress(Exception):  # it may be what has failed
            made += self._events.rest()
        return made + self._stream.abandoned()

    def _fail(self) -> None:
        self._failed = True


def _filter(dialect: Dialect, restore: Restore) -> Filter:
    """Make a filter that leaves nothing out."""
    events = dialect.filter((), None)
    events.restore = restore
    events.last = True
    events.begin()
    return events


class _Elements:
    """Does as a filter for the elements of an array, whose calls are whole."""

    turns: Final = 1
    left_out: Final = False

    def __init__(self, dialect: Dialect, restore: Restore) -> None:
        self._dialect = dialect
        self._restore = restore

    def feed(self, event: Event) -> bytes:
        """Restore an element; the bytes before it go on unchanged."""
        found = event.json()
        done = [restored(*each, self._restore) for each in self._dialect.arguments(found)] if found is not None else ()
        if not any(done) or event.data is None:
            return event.raw
        return event.raw[: -len(event.data)] + rewritten(event.data, found)

    def keep(self) -> None:
        """Nothing waits."""

    def undo(self) -> None:
        """Nothing waits."""

    def rest(self) -> bytes:
        """Nothing waits."""
        return b""

    def waits(self) -> bool:
        """Never."""
        return False
