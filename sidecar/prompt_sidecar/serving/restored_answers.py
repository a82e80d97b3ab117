"""A provider's answer as it passes through a door that changes nothing in it but masks in calls of tools.

Of a stream, what may be a part of a mask waits for the next piece; a whole answer is searched at once. What cannot be
read goes on as it came: its masks stay, as they do where no door restores them.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import orjson

from prompt_sidecar.facts.envoy_calls import MasksStay
from prompt_sidecar.serving.dialects.base import Dialect
from prompt_sidecar.serving.json_array import ArraySplitter
from prompt_sidecar.serving.logs import frames
from prompt_sidecar.serving.members import loads
from prompt_sidecar.serving.restoring import Restore, restored
from prompt_sidecar.serving.sse import BrokenStream, Event

JSON: Final = "application/json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoredWhole:
    """What became of a whole answer."""

    body: bytes | None
    """With values in place of masks; None: it goes on as it came."""
    stay: MasksStay | None = None
    """Why masks that it may hold stay; None: all were looked at."""


def whole_restored(dialect: Dialect, answer: bytes, restore: Restore) -> RestoredWhole:
    """Return a whole answer with values in place of masks."""
    try:
        found = loads(answer)
        if not isinstance(found, dict):
            return RestoredWhole(None, MasksStay.UNREADABLE)
        done = [restored(*each, restore) for each in dialect.arguments(found)]
        return RestoredWhole(orjson.dumps(found) if any(done) else None)
    except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
        _log.error("masks were not restored in an answer: %s", frames(error))
        return RestoredWhole(None, MasksStay.FAILED)


class RestoredStream:
    """A stream with values in place of masks. Not thread-safe.

    What is kept of it is bounded: from `most_bytes` on it goes on as it comes. `array`: it is one JSON array, whose
    elements are answers, and not of the dialect's own form.
    """

    def __init__(self, dialect: Dialect, restore: Restore, most_bytes: int, *, array: bool = False) -> None:
        self.stay: MasksStay | None = None
        """Why masks stay in the rest of the stream; None: they do not."""
        self._splitter = ArraySplitter(most_bytes) if array else dialect.splitter(most_bytes)
        self._dialect = dialect
        self._restore = self._safe(restore)
        self._array = array
        self._filter = dialect.filter((), None)
        self._filter.restore = self._restore
        self._filter.last = True
        self._filter.begin()
        self._most = most_bytes
        self._taken = 0
        self._waiting = bytearray()
        """What was taken and is no whole event yet."""
        self._over = False

    @property
    def waits(self) -> bool:
        """Whether something that was taken has not gone on yet."""
        return not self._over and (bool(self._waiting) or self._filter.waits())

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Take a piece, `last` of the stream; return what goes on now."""
        if self._over:
            return piece
        self._taken += len(piece)
        self._waiting += piece
        out = bytearray()
        if self._taken > self._most:  # the filter keeps the turn until its end
            _log.warning("masks are not restored in the rest of a stream: it has more than %d bytes", self._most)
            return self._passed(MasksStay.TOO_LONG)
        try:
            events = self._splitter.feed(piece)
            for event in [*events, *self._splitter.last()] if last else events:
                out += self._element(event) if self._array else self._filter.feed(event)
                del self._waiting[: len(event.raw)]
            if last:
                out += self._passed(None)
        except BrokenStream:
            out += self._passed(MasksStay.UNREADABLE)
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error("masks were not restored in the rest of a stream: %s", frames(error))
            out += self._passed(MasksStay.FAILED)
        return bytes(out)

    def _element(self, event: Event) -> bytes:
        """Restore an array's element, whose calls are whole; what stands before it goes on as it came."""
        found = event.json()
        done = [restored(*each, self._restore) for each in self._dialect.arguments(found)] if found is not None else ()
        if not any(done):
            return event.raw
        return event.raw[: -len(event.data or b"")] + orjson.dumps(found)

    def _passed(self, stay: MasksStay | None) -> bytes:
        """Return all that waits; from now on everything goes on as it comes."""
        self._over, self.stay = True, stay or self.stay
        rest, self._waiting = bytes(self._waiting), bytearray()
        with suppress(Exception):  # it may be what has failed
            rest = self._filter.rest() + rest
        return rest

    def _safe(self, restore: Restore) -> Restore:
        """Return what leaves arguments as they are where `restore` fails: half a mask may wait for the rest of it."""

        def filled(tool: str, arguments: str) -> str:
            try:
                return restore(tool, arguments)
            except Exception as error:  # noqa: BLE001 - as above
                _log.error("masks were not restored in a stream: %s", frames(error))
                self.stay = MasksStay.FAILED
                return arguments

        return filled
