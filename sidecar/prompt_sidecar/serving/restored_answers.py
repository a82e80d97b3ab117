"""A provider's answer as it passes through a door that changes nothing in it but masks in calls of tools.

Of a stream, what may be a part of a mask waits for the next piece; a whole answer is searched at once. What cannot be
read goes on as it came: its masks stay, as they do where no door restores them.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

import orjson

from prompt_sidecar.serving.dialects.base import Dialect
from prompt_sidecar.serving.logs import frames
from prompt_sidecar.serving.members import loads
from prompt_sidecar.serving.provider_usage import MOST_BYTES
from prompt_sidecar.serving.restoring import Restore, restored

JSON: Final = "application/json"
_log = logging.getLogger(__name__)


def whole_restored(dialect: Dialect, answer: bytes, restore: Restore) -> bytes | None:
    """Return a whole answer with values in place of masks; None: there are none, or it cannot be read."""
    if len(answer) > MOST_BYTES:
        return None
    try:
        found = loads(answer)
        if not isinstance(found, dict):
            return None
        done = [restored(*each, restore) for each in dialect.arguments(found)]
        return orjson.dumps(found) if any(done) else None
    except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
        _log.error("masks were not restored in an answer: %s", frames(error))
        return None


def _safe(restore: Restore) -> Restore:
    """Return what leaves arguments as they are where `restore` fails: half a mask may wait for the rest of it."""

    def filled(tool: str, arguments: str) -> str:
        try:
            return restore(tool, arguments)
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("masks were not restored in a stream: %s", frames(error))
            return arguments

    return filled


class RestoredStream:
    """A stream with values in place of masks. Not thread-safe.

    What is kept of it is bounded: from `most_bytes` on it goes on as it comes.
    """

    def __init__(self, dialect: Dialect, restore: Restore, most_bytes: int = MOST_BYTES) -> None:
        self._splitter = dialect.splitter(most_bytes)
        self._filter = dialect.filter((), None)
        self._filter.restore = _safe(restore)
        self._filter.last = True
        self._filter.begin()
        self._most = most_bytes
        self._taken = 0
        self._waiting = bytearray()
        """What was taken and is no whole event yet."""
        self._over = False

    def feed(self, piece: bytes, *, last: bool = False) -> bytes:
        """Take a piece, `last` of the stream; return what goes on now."""
        if self._over:
            return piece
        self._taken += len(piece)
        self._waiting += piece
        out = bytearray()
        if self._taken > self._most:  # the filter keeps the turn until its end
            _log.warning("masks are not restored in the rest of a stream: it has more than %d bytes", self._most)
            return self._passed()
        try:
            events = self._splitter.feed(piece)
            for event in [*events, *self._splitter.last()] if last else events:
                out += self._filter.feed(event)
                del self._waiting[: len(event.raw)]
            if last:
                out += self._passed()
        except Exception as error:  # noqa: BLE001 - whatever a provider sends, the agent gets its answer
            _log.error("masks were not restored in the rest of a stream: %s", frames(error))
            out += self._passed()
        return bytes(out)

    def _passed(self) -> bytes:
        """Return all that waits; from now on everything goes on as it comes."""
        self._over = True
        rest, self._waiting = bytes(self._waiting), bytearray()
        with suppress(Exception):  # it may be what has failed
            rest = self._filter.rest() + rest
        return rest
