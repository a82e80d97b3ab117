"""A provider's token counts, read from the answer while it is forwarded.

Answers are JSON, server-sent events, or Amazon's event stream. Nothing is delayed and nothing is changed. Only what may
have the counts is parsed: server-sent events that name them, and whole JSON answers up to `MOST_BYTES`; a larger answer
is not read. The answer is untrusted: anything of an unknown shape counts as unreported.

An answer that refuses the prompt as too long is read too: its message names the limit, and
`prompt_sidecar.tokens.refusals` reads it.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from prompt_sidecar.providers.api import ProviderApi
from prompt_sidecar.providers.refusals import MOST_CHARACTERS, TOO_LONG_STATUS, says_too_long
from prompt_sidecar.providers.surrogates import sound
from prompt_sidecar.providers.untyped import read_json
from prompt_sidecar.providers.usage import ProviderUsage

MOST_BYTES: Final = 8_388_608
"""Bytes of one JSON answer, or of one event, that are buffered until it is complete: a long answer with images has some
megabytes."""

_MOST_ERROR: Final = 65_536
"""Bytes of an error that are buffered."""

_PRELUDE: Final = 12
"""Bytes before an event's headers in Amazon's event stream: lengths of the event and of its headers, and their CRC."""
_EPILOGUE: Final = 4
"""Bytes after an event's payload: its CRC."""


class _Kind(Enum):
    JSON = auto()
    EVENTS = auto()
    AMAZON = auto()
    ERROR = auto()
    UNREAD = auto()


class UsageReader:
    """Reads one answer. Not thread-safe.

    Args:
        api: the request's API; None: unknown, so nothing is read.
        status: the HTTP status.
        content_type: the answer's; its parameters do not matter.
        encoded: whether the answer is compressed: then nothing is read.
        read: returns the value of a JSON text, or None if it is not JSON.
    """

    def __init__(
        self,
        api: ProviderApi | None,
        status: int,
        content_type: str,
        *,
        encoded: bool = False,
        read: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._api = api
        self._read = read or read_json
        self._kind = _kind(status, content_type, encoded=encoded)
        self._kept = bytearray()
        self._usage = ProviderUsage()

    @property
    def kept_bytes(self) -> int:
        """Buffered bytes that wait for more, and are then read at once."""
        return len(self._kept)

    @property
    def reads(self) -> bool:
        """Whether the rest of the answer may still have counts."""
        return self._kind is not _Kind.UNREAD

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the answer's body."""
        if self._kind is _Kind.UNREAD:
            return
        if self._kind is _Kind.EVENTS:
            self._lines(piece)
        else:
            self._kept += piece
        if self._kind is _Kind.AMAZON:
            self._frames()
        if len(self._kept) > (_MOST_ERROR if self._kind is _Kind.ERROR else MOST_BYTES):
            self._kind = _Kind.UNREAD
            self._kept.clear()

    def stop(self) -> None:
        """Read nothing more, as there is no memory for it."""
        self._kind = _Kind.UNREAD
        self._kept.clear()

    def end(self) -> ProviderUsage:
        """Return what the answer reported; its body has ended."""
        if self._kind is _Kind.JSON:
            self._json(bytes(self._kept))
        elif self._kind is _Kind.EVENTS:
            self._lines(b"\n")
        elif self._kind is _Kind.ERROR:
            self._error(bytes(self._kept))
        self._kept.clear()
        self._kind = _Kind.UNREAD
        return self._usage

    def _lines(self, piece: bytes) -> None:
        """Read the lines that `piece` completes; only it is searched, as an event may arrive in many pieces."""
        cut = piece.rfind(b"\n") + 1
        if not cut:
            self._kept += piece
            return
        whole = bytes(self._kept) + piece[:cut]
        self._kept = bytearray(piece[cut:])
        # Few events have counts, and most pieces have none of these events.
        if b"usage" in whole:
            for line in whole.removeprefix(BOM_UTF8).splitlines():
                if line.startswith(b"data:") and b"usage" in line:
                    self._json(bytes(line[5:]))

    def _frames(self) -> None:
        while len(self._kept) >= _PRELUDE:
            total = int.from_bytes(self._kept[:4], "big")
            headers = int.from_bytes(self._kept[4:8], "big")
            if total > MOST_BYTES or total < _PRELUDE + headers + _EPILOGUE:
                self._kind = _Kind.UNREAD
                self._kept.clear()
                return
            if len(self._kept) < total:
                return
            payload = bytes(self._kept[_PRELUDE + headers : total - _EPILOGUE])
            del self._kept[:total]
            if b'"usage"' in payload:
                self._json(payload)

    def _json(self, text: bytes) -> None:
        answer = self._read(text)
        for each in (
            answer if isinstance(answer, list) else (answer,)
        ):  # Google streams an array unless events are requested
            self._object(each)

    def _object(self, answer: Any) -> None:
        if self._api is None or not isinstance(answer, dict):
            return
        new = self._api.usage.read(answer)
        old = self._usage
        self._usage = replace(
            old,
            input_tokens=_newer(new.input_tokens, old.input_tokens),
            cached_tokens=_newer(new.cached_tokens, old.cached_tokens),
            cache_write_tokens=_newer(new.cache_write_tokens, old.cache_write_tokens),
            output_tokens=_newer(new.output_tokens, old.output_tokens),
            cache_write_hour_tokens=_newer(new.cache_write_hour_tokens, old.cache_write_hour_tokens),
            service_tier=new.service_tier or old.service_tier,
            model=sound(new.model) or old.model,
        )

    def _error(self, body: bytes) -> None:
        if _names_length(body):
            self._usage = ProviderUsage(refusal=_refusal(body))


def _kind(status: int, content_type: str, *, encoded: bool) -> _Kind:
    kind = content_type.partition(";")[0].strip().lower()
    if encoded:
        return _Kind.UNREAD
    if status in TOO_LONG_STATUS:
        return _Kind.ERROR
    if not 200 <= status < 300:
        return _Kind.UNREAD
    if kind == "text/event-stream":
        return _Kind.EVENTS
    if kind == "application/vnd.amazon.eventstream":
        return _Kind.AMAZON
    return _Kind.JSON if kind == "application/json" else _Kind.UNREAD


def too_long(status: int, body: bytes) -> str:
    """Return the text with which a provider refused a prompt as too long; empty if it did not."""
    return _refusal(body) if status in TOO_LONG_STATUS and _names_length(body) else ""


def _names_length(body: bytes) -> bool:
    return says_too_long(body[:_MOST_ERROR].decode("utf-8", "replace"))


def _refusal(body: bytes) -> str:
    return body[: 4 * MOST_CHARACTERS].decode("utf-8", "replace")[:MOST_CHARACTERS]


def _newer(new: int | None, old: int | None) -> int | None:
    return old if new is None else new
