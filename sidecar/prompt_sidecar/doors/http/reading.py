"""What comes from a provider in one turn: its stream through the filter, and what it counts.

An agent may close its connection as soon as it has what it wants: at `[DONE]`, at the reason to finish, or in the
middle. What the provider has counted is reported all the same, so reading goes on for a moment: the figures are in the
last bytes of a stream, which are on their way then. The request is ended after that, so that no tokens are produced
that nobody reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import aiohttp

from prompt_sidecar.answers.answer_stream import PIECE_BYTES, READ_AT_ONCE, AnswerStream, Discontinued
from prompt_sidecar.answers.base import Filter
from prompt_sidecar.answers.reported_usage import UsageReader
from prompt_sidecar.doors.http.bodies import USUAL
from prompt_sidecar.doors.http.encodings import Unpacker
from prompt_sidecar.errors import TooLarge
from prompt_sidecar.prompt.structure import never
from prompt_sidecar.providers.usage import ProviderUsage

READ_ON_SECONDS: Final = 1.0
"""How long reading goes on for the figures after the agent has gone. Behind the end of a message they come at once;
in the middle of one, longer would cost tokens."""
READ_ON_BYTES: Final = 65_536
"""And how far: the last event of a response holds all of it, but has come by then in most cases."""


Run = Callable[[Callable[[], bytes], int], Awaitable[bytes]]
"""Runs a function in a worker thread; it works on so many bytes."""


class UpstreamFailed(Exception):
    """A provider's answer was cut off."""


class Source:
    """The bytes of an answer; unpacked if `encoding` is named."""

    def __init__(self, answer: aiohttp.ClientResponse, encoding: str = "") -> None:
        self._answer = answer
        self._unpacker = Unpacker(encoding) if encoding else None
        self._packed = b""
        """What has come and is not with the unpacker yet."""

    async def next(self) -> bytes:
        """Return the next bytes; empty: it is over. Raises UpstreamFailed."""
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
    """Read on after the agent has gone, within the bounds of this module, until there is enough."""

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
    """One turn's stream."""

    source: Source
    """Its bytes."""
    stream: AnswerStream
    """Takes them."""
    events: Filter
    """The filter that `stream` has."""
    reader: UsageReader
    """Reads what is counted in what passes unread."""
    run: Run
    """Runs what takes long."""
    hold: Callable[[int], None]
    """Is told of the bytes of large events, and of those of a long stream; raises TooLarge where there is no room for
    them: then the rest passes as it comes, if it can."""
    settle: Callable[[], None] = never
    """Is called when nothing more is made of those."""

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the provider's bytes, and an empty piece when it is over. Raises UpstreamFailed.

        They come in pieces between which other requests have their turn, as a provider may send thousands of events at
        once, but all at once where nothing of them is read on the event loop.
        """
        chunk = b"."
        while chunk:
            chunk = await self.source.next()
            at = 0
            while at < len(chunk) - PIECE_BYTES and not self._passes_by:
                yield chunk[at : at + PIECE_BYTES]
                at += PIECE_BYTES
                await asyncio.sleep(0)
            yield chunk[at:]

    @property
    def _passes_by(self) -> bool:
        """Whether what comes next is not read on the event loop."""
        return self.stream.passes or self._is_large

    @property
    def _is_large(self) -> bool:
        """Whether reading what comes next may take long, as it may end a large event, or a long turn."""
        return max(self.stream.unsplit_bytes, self.reader.kept_bytes) > READ_AT_ONCE or self.stream.taken_bytes > USUAL

    async def feed(self, chunk: bytes) -> bytes:
        """Take bytes, the last ones if there are none; return what goes on to the agent now. Raises Discontinued."""
        before = b""
        if self._is_large and (not self.stream.passes or self.reader.reads):
            try:
                self.hold(len(chunk))
            except TooLarge:
                before = self.stream.give_up()
                self.reader.stop()
        if self.stream.passes and not self.reader.reads:
            self.settle()
            return before + chunk
        if self._is_large:
            size = max(self.stream.unsplit_bytes, self.reader.kept_bytes) + len(chunk)
            return before + await self.run(partial(self._fed, chunk), size)
        return before + self._fed(chunk)

    def _fed(self, chunk: bytes) -> bytes:
        made = self.stream.feed(chunk) if chunk else self.stream.end()
        if self.stream.passes:
            self.reader.feed(chunk)
        elif self.events.ended:
            self.events.hides()  # it is decided here, as that takes long where the turn is
        return made

    @property
    def taken_bytes(self) -> int:
        """Bytes of the stream so far, unless it passes as it comes."""
        return self.stream.taken_bytes

    @property
    def ended(self) -> bool:
        """Whether the agent's turn has ended, so that it may be remembered."""
        return self.events.ended and not self.hides

    @property
    def hides(self) -> bool:
        """Whether the turn is answered here."""
        return not self.stream.passes and self.events.hides()

    async def read_on(self) -> None:
        """Read what the provider counts after the agent has gone."""

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
        """Return what the provider has counted so far; None: it did not say."""
        passed = self.reader.end()
        return passed if passed.reported else self.events.counted()
