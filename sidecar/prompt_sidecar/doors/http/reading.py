"""Reads a provider's answer in one turn: its stream through the filter, and its reported usage.

An agent may close its connection as soon as it has what it wants: at `[DONE]`, at the finish reason, or earlier. The
provider's usage is reported anyway, so reading continues for a moment: the usage is in the last bytes of a stream,
which arrive soon. Then the request is aborted, so that no tokens are generated that nobody reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import aiohttp

from prompt_sidecar.answers.answer_stream import PIECE_BYTES, READ_AT_ONCE, AnswerStream, Discontinued, piece_end
from prompt_sidecar.answers.base import Filter
from prompt_sidecar.answers.reported_usage import UsageReader
from prompt_sidecar.doors.http.bodies import USUAL
from prompt_sidecar.doors.http.encodings import Unpacker
from prompt_sidecar.doors.http.turns import StreamPace, paced_bytes
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.prompt.structure import never
from prompt_sidecar.providers.usage import ProviderUsage

READ_ON_SECONDS: Final = 1.0
"""How long reading continues for the usage after the agent has disconnected. After the end of a message it arrives at
once; in the middle of one, waiting longer would cost tokens."""
READ_ON_BYTES: Final = 65_536
"""Bytes that are read for it: the last event of a response repeats all of it, but in most cases has arrived by then."""


Run = Callable[[Callable[[], bytes], int], Awaitable[bytes]]
"""Runs a function in a worker thread; the number is the bytes that the function works on."""


class UpstreamFailed(Exception):
    """A provider's answer was cut off."""


class Source:
    """The bytes of an answer, decompressed if `encoding` is given."""

    def __init__(self, answer: aiohttp.ClientResponse, encoding: str = "") -> None:
        self._answer = answer
        self._unpacker = Unpacker(encoding) if encoding else None
        self._packed = b""
        """Received bytes that the decompressor has not got yet."""

    async def next(self) -> bytes:
        """Return the next bytes; empty at the end. Raises UpstreamFailed."""
        unpacker = self._unpacker
        try:
            if unpacker is None:
                return await self._answer.content.readany()
            while not (made := unpacker.more()):
                if self._packed:
                    await asyncio.sleep(0)
                else:
                    self._packed = await self._answer.content.readany()
                if not self._packed and not unpacker.whole:
                    raise UpstreamFailed
                if not self._packed:
                    return b""
                unpacker.take(self._packed[:PIECE_BYTES])
                self._packed = self._packed[PIECE_BYTES:]
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise UpstreamFailed from error
        return made


async def read_on(
    source: Source, take: Callable[[bytes], Awaitable[object]], enough: Callable[[], bool] = lambda: False
) -> None:
    """Read on after the agent has disconnected, within the limits of this module, until `enough` returns true."""

    async def read() -> None:
        taken = 0
        while not enough() and taken < READ_ON_BYTES and (chunk := await source.next()):
            taken += len(chunk)
            await take(chunk)

    reading = asyncio.ensure_future(read())
    try:
        await asyncio.wait({reading}, timeout=READ_ON_SECONDS)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@dataclass(slots=True)
class TurnStream:
    """The stream of one turn."""

    source: Source
    """The stream's bytes."""
    stream: AnswerStream
    """Processes the bytes."""
    events: Filter
    """The filter of `stream`."""
    reader: UsageReader
    """Reads the usage in bytes that pass unread."""
    run: Run
    """Runs long work in a worker thread."""
    hold: Callable[[int], None]
    """Called with the bytes of large events, and of a long stream; raises TooLarge if there is no memory for them: then
    the rest is forwarded unread, if possible."""
    settle: Callable[[], None] = never
    """Called when these bytes are no longer processed."""
    pace: StreamPace | None = None
    """Says how long to wait after so many bytes; None: never."""

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the provider's bytes, and an empty piece at the end. Raises UpstreamFailed.

        Other requests are served between the pieces, as a provider may send thousands of events at once. Bytes that are
        not read on the event loop are not divided.
        """
        chunk = b"."
        while chunk:
            chunk = await self.source.next()
            if self.pace is not None:
                size = len(chunk) if self.stream.passes else paced_bytes(chunk)
                if wait := self.pace.wait_after(size):
                    await asyncio.sleep(wait)
            at = 0
            while not self._passes_by and (end := piece_end(chunk, at)) < len(chunk):
                yield chunk[at:end]
                at = end
                await asyncio.sleep(0)
            yield chunk[at:]

    @property
    def _passes_by(self) -> bool:
        """Whether the next bytes are not read on the event loop."""
        return self.stream.passes or self._is_large

    @property
    def _is_large(self) -> bool:
        """Whether reading the next bytes may take long, as they may end a large event or a long turn."""
        return max(self.stream.unsplit_bytes, self.reader.kept_bytes) > READ_AT_ONCE or self.stream.taken_bytes > USUAL

    async def feed(self, chunk: bytes) -> bytes:
        """Process bytes, or the end if empty; return what to send to the agent now. Raises Discontinued."""
        before, large = b"", self._is_large
        if large and (not self.stream.passes or self.reader.reads):
            try:
                self.hold(len(chunk))
            except TooLarge:
                before = self.stream.give_up()
                self.reader.stop()
        if self.stream.passes and not self.reader.reads:
            self.settle()
            return before + chunk
        if large and self._is_large and not (chunk and self.stream.only_collects(chunk)):
            size = max(self.stream.unsplit_bytes, self.reader.kept_bytes) + len(chunk)
            return before + await self.run(partial(self._fed, chunk), size)
        return before + self._fed(chunk)

    def _fed(self, chunk: bytes) -> bytes:
        made = self.stream.feed(chunk) if chunk else self.stream.end()
        if self.stream.passes:
            self.reader.feed(chunk)
        elif self.events.ended:
            self.events.hides()  # decided in the worker thread, as it takes long for a long turn
        return made

    @property
    def taken_bytes(self) -> int:
        """Bytes of the stream so far, without those that were forwarded unread."""
        return self.stream.taken_bytes

    @property
    def ended(self) -> bool:
        """Whether the agent's turn has ended, so that it may be remembered."""
        return self.events.ended and not self.hides

    @property
    def hides(self) -> bool:
        """Whether this is a hidden turn."""
        return not self.stream.passes and self.events.hides()

    async def read_on(self) -> None:
        """Read the provider's usage after the agent has disconnected."""

        async def take(chunk: bytes) -> None:
            try:
                await self.feed(chunk)
            except Discontinued:
                self.stream.abandoned()

        def enough() -> bool:
            usage = self.events.counted()
            return self.events.ended and usage is not None and usage.reported

        await read_on(self.source, take, enough)
        if not self.events.ended:
            await take(b"")

    def counted(self) -> ProviderUsage | None:
        """Return the usage that the provider has reported so far, or None."""
        passed = self.reader.end()
        return passed if passed.reported else self.events.counted()
