"""Compressed bodies, of requests and of answers.

Requests are read so that the prompt in them can be trimmed; answers, as some servers compress them though they are
asked not to. What is changed is sent on uncompressed.

A few kilobytes may become gigabytes. So a body is unpacked in steps, before each of which is said what it may come to
with the next one: who has no room for that raises, and reading ends there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Final, Protocol

import zstandard
from multidict import MultiMapping

WINDOW: Final = 8_388_608
"""Bytes of a zstd window: what each decoder should have (RFC 8878, 3.1.1.1.2); a body that needs more stays packed."""
STEP: Final = 1_048_576
"""Bytes that are unpacked at once: a few milliseconds."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"
"""What each of gzip's members begins with."""
_DEFLATE: Final = (zlib.MAX_WBITS, -zlib.MAX_WBITS)
"""By RFC 9110 with zlib's header; some servers and clients leave it out."""
_MOST_MEMBERS: Final = 10_000
"""Members or frames of one body. Tools that pack in blocks make one for each 64 KB or more."""
_PIECE: Final = 65_536
"""Bytes of what is packed that are read at a time."""
_SKIPPABLE: Final = b"\x50\x2a\x4d\x18"
_MOST_GROWTH: Final = 32_768
"""How many times as long as a zstd block what is unpacked of it can be: 4 bytes may be 128 KB (RFC 8878, 3.1.1.2)."""
_DEFLATE_GROWTH: Final = 1_032
"""The same of deflate and gzip: zlib.net, "Maximum Compression Factor"."""
_ZSTD_PIECE: Final = 64
"""Bytes of zstd that are unpacked at a time, as the library bounds nothing of what it makes of them: 2 MB at most."""
_ZSTD_STEP: Final = _ZSTD_PIECE * _MOST_GROWTH


def _gzip(body: bytes, *, padded: bool) -> Iterator[bytes]:
    """Read members that follow each other (RFC 1952, 2.2)."""
    rest = memoryview(body)
    for _ in range(_MOST_MEMBERS):
        decoder = zlib.decompressobj(_GZIP)
        at = 0
        while not decoder.eof:
            packed: bytes | memoryview = decoder.unconsumed_tail
            if not packed:
                packed, at = rest[at : at + _PIECE], min(at + _PIECE, len(rest))
            if not packed:
                raise ValueError
            yield decoder.decompress(packed, STEP)
        rest = rest[at - len(decoder.unused_data) :]
        if not rest or (padded and bytes(rest[:2]) != _MAGIC):
            return
    raise ValueError


def _deflate(body: bytes, *, padded: bool) -> Iterator[bytes]:
    begun = False
    for wbits in _DEFLATE:
        decoder = zlib.decompressobj(wbits)
        rest: bytes | memoryview = memoryview(body)
        try:
            while not decoder.eof:
                packed = decoder.unconsumed_tail
                if not packed:
                    packed, rest = bytes(rest[:_PIECE]), rest[_PIECE:]
                if not packed:
                    raise ValueError
                made = decoder.decompress(packed, STEP)
                begun = begun or bool(made)
                yield made
        except zlib.error:
            if begun:
                raise
            continue
        if not padded and (decoder.unused_data or rest):
            raise ValueError
        return
    raise ValueError


def _zstd(body: bytes, *, padded: bool) -> Iterator[bytes]:
    """Read frames that follow each other; skippable ones hold nothing (RFC 8878, 3.1)."""
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW)
    rest = memoryview(body)
    for _ in range(_MOST_MEMBERS):
        frame = decoder.decompressobj()
        at = 0
        while not frame.eof:
            if at == len(rest):
                raise ValueError
            yield frame.decompress(rest[at : at + _ZSTD_PIECE])
            at = min(at + _ZSTD_PIECE, len(rest))
        rest = rest[at - len(frame.unused_data) :]
        if not rest or (padded and not _begins_frame(bytes(rest[:4]))):
            return
    raise ValueError


def _begins_frame(rest: bytes) -> bool:
    """Whether a zstd frame follows; that of a skippable one has sixteen beginnings (RFC 8878, 3.1.2)."""
    return rest == zstandard.FRAME_HEADER or (rest[1:] == _SKIPPABLE[1:] and rest[0] & 0xF0 == _SKIPPABLE[0])


class _Unpacker(Protocol):
    def __call__(self, body: bytes, *, padded: bool) -> Iterator[bytes]: ...


_READERS: Final[Mapping[str, _Unpacker]] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd}


def _ignored(_: int) -> None:
    """Nobody counts what is unpacked."""


class PackedBody:
    """A body with an encoding, and what was unpacked of it so far.

    Args:
        body: as it came.
        encoding: the one that it is said to have.
        most: bytes that may be unpacked of it; reading ends with the step that goes beyond.
        padded: whatever follows the end of what is packed is left out, as other readers of answers do.
        hold: is told before each step how many bytes may be unpacked with it; what it raises ends the reading.
    """

    def __init__(
        self,
        body: bytes,
        encoding: str,
        most: int,
        *,
        padded: bool = False,
        hold: Callable[[int], object] = _ignored,
    ) -> None:
        read = _READERS.get(encoding.strip().lower())
        self._steps = iter(()) if read is None else read(body, padded=padded)
        self._step = _ZSTD_STEP if read is _zstd else STEP
        self._most = most
        self._may = min(most + 1, len(body) * (_MOST_GROWTH if read is _zstd else _DEFLATE_GROWTH))
        """Bytes that it may become: no more than are unpacked, and no more than any body of its size."""
        self._hold = hold
        self._found: BytesIO | None = None if read is None else BytesIO()
        self.size = 0
        """Bytes that were unpacked."""
        self.over = read is None
        """Whether nothing more is to be unpacked."""

    def go_on(self, most: int, check: Callable[[], object] = lambda: None) -> None:
        """Unpack until there are so many bytes, or all; `check` is called between two steps, and may raise."""
        try:
            while not self.over and self.size < most:
                check()
                self._hold(min(self.size + self._step, self._may))
                piece = next(self._steps, None)
                if piece is None:
                    self.over = True
                else:
                    self._keep(piece)
        except (ValueError, zlib.error, zstandard.ZstdError):
            self.over, self._found = True, None

    def _keep(self, piece: bytes) -> None:
        assert self._found is not None
        self._found.write(piece[: self._most + 1 - self.size])
        self.size = self._found.tell()
        self.over = self.size > self._most

    def plain(self) -> bytes | None:
        """Return the body without its encoding, up to the bound and one byte more, once nothing more is to be unpacked.

        None: it has no encoding, another one, or is damaged.
        """
        found, self._found = self._found, None
        return None if found is None else found.getvalue()


def decoded(
    body: bytes, encoding: str, most: int, *, padded: bool = False, hold: Callable[[int], object] = _ignored
) -> bytes | None:
    """Return a body without its encoding; None: it has none, it has another one, or it is damaged.

    Reading ends after `most` bytes and one more, so a small body that would become a huge one takes no more memory.
    The other arguments are those of `PackedBody`.
    """
    packed = PackedBody(body, encoding, most, padded=padded, hold=hold)
    packed.go_on(most + 1)
    return packed.plain()


def encoding_of(headers: MultiMapping[str]) -> str:
    """Return the encodings that a body's headers name, in one line in lower case; empty: none."""
    named = ", ".join(headers.getall("content-encoding", ())).strip().lower()
    return "" if named == "identity" else named


class Unpacker:
    """Unpacks a stream, a bounded piece at a time. Raises ValueError where it is damaged."""

    def __init__(self, encoding: str) -> None:
        """`encoding` is one of `UNPACKED`."""
        self._forms = _STREAMED[encoding]
        self._decoder = zlib.decompressobj(self._forms[0])
        self._packed = b""
        self._begun = False
        self._padded = False
        """Whether what follows is nothing that was packed."""

    def take(self, packed: bytes) -> None:
        """Take the next bytes."""
        if not self._padded:
            self._packed += packed

    def more(self) -> bytes:
        """Return the next piece; empty: further bytes are needed."""
        while len(self._packed) > (not self._begun):  # two bytes tell the forms of an encoding apart
            if self._decoder.eof:  # several packed streams may follow each other (RFC 1952, 2.2)
                if len(self._packed) < len(_MAGIC):
                    return b""
                if not _begins(self._packed, self._forms[0]):
                    self._padded, self._packed = True, b""
                    return b""
                self._decoder = zlib.decompressobj(self._forms[0])
            packed, self._packed = self._packed, b""
            made = self._unpacked(packed)
            self._packed = self._decoder.unconsumed_tail or self._decoder.unused_data
            if made:
                return made
        return b""

    def _unpacked(self, packed: bytes) -> bytes:
        begun, self._begun = self._begun, True
        try:
            return self._decoder.decompress(packed, _PIECE)
        except zlib.error:
            if begun or len(self._forms) == 1:
                raise ValueError from None
            self._forms = self._forms[1:]
            self._decoder = zlib.decompressobj(self._forms[0])
            return self._unpacked(packed)

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self._decoder.eof or not self._begun


def _begins(rest: bytes, form: int) -> bool:
    """Whether what follows a packed stream is another one, and no padding. A form without a header tells the least."""
    if form == _GZIP:
        return rest.startswith(_MAGIC)
    if form < 0:
        return rest[0] != 0
    return rest[0] & 15 == zlib.DEFLATED and int.from_bytes(rest[:2], "big") % 31 == 0  # RFC 1950, 2.2


_STREAMED: Final[Mapping[str, tuple[int, ...]]] = {"gzip": (_GZIP,), "x-gzip": (_GZIP,), "deflate": _DEFLATE}
UNPACKED: Final = frozenset(_STREAMED)
"""Encodings of streams that are unpacked."""
