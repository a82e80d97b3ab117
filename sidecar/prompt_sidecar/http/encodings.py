"""Compressed bodies, of requests and of answers.

Requests are read so that the prompt in them can be trimmed; answers, as some servers compress them though they are
asked not to. What is changed is sent on uncompressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final, Protocol

import zstandard

WINDOW: Final = 8_388_608
"""Bytes of a zstd window: what each decoder should have (RFC 8878, 3.1.1.1.2); a body that needs more stays packed."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"
"""What each of gzip's members begins with."""
_DEFLATE: Final = (zlib.MAX_WBITS, -zlib.MAX_WBITS)
"""By RFC 9110 with zlib's header; some servers and clients leave it out."""
_MOST_MEMBERS: Final = 10_000
"""Members or frames of one body. Tools that pack in blocks make one for each 64 KB or more."""
_PIECE: Final = 65_536
"""Bytes that are unpacked at a time."""
_SKIPPABLE: Final = b"\x50\x2a\x4d\x18"
_MOST_GROWTH: Final = 32_768
"""How many times as long as a zstd block what is unpacked of it can be: 4 bytes may be 128 KB (RFC 8878, 3.1.1.2)."""
_LEAST_PIECE: Final = 64
"""Bytes of zstd that are unpacked at a time, near the bound."""


def _gzip(body: bytes, most: int, *, padded: bool) -> bytes:
    """Read members that follow each other (RFC 1952, 2.2)."""
    found, rest = bytearray(), memoryview(body)
    for _ in range(_MOST_MEMBERS):
        decoder = zlib.decompressobj(_GZIP)
        at = 0
        while not decoder.eof and len(found) < most:
            packed: bytes | memoryview = decoder.unconsumed_tail
            if not packed:
                packed, at = rest[at : at + _PIECE], min(at + _PIECE, len(rest))
            if not packed:
                raise ValueError
            found += decoder.decompress(packed, most - len(found))
        if len(found) >= most:
            return bytes(found)
        rest = rest[at - len(decoder.unused_data) :]
        if not rest or (padded and bytes(rest[:2]) != _MAGIC):
            return bytes(found)
    raise ValueError


def _deflate(body: bytes, most: int, *, padded: bool) -> bytes:
    for wbits in _DEFLATE:
        decoder = zlib.decompressobj(wbits)
        try:
            found = decoder.decompress(body, most)
        except zlib.error:
            continue
        if len(found) >= most or (decoder.eof and (padded or not decoder.unused_data)):
            return found
    raise ValueError


def _zstd(body: bytes, most: int, *, padded: bool) -> bytes:
    """Read frames that follow each other; skippable ones hold nothing (RFC 8878, 3.1)."""
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW)
    found, rest = bytearray(), memoryview(body)
    for _ in range(_MOST_MEMBERS):
        frame = decoder.decompressobj()
        at = 0
        while not frame.eof:
            if at == len(rest):
                raise ValueError
            # The library bounds nothing of what it makes of one piece.
            size = max(_LEAST_PIECE, (most - len(found)) // _MOST_GROWTH)
            found += frame.decompress(rest[at : at + size])
            at = min(at + size, len(rest))
            if len(found) >= most:
                return bytes(found[:most])
        rest = rest[at - len(frame.unused_data) :]
        if not rest or (padded and not _begins_frame(bytes(rest[:4]))):
            return bytes(found)
    raise ValueError


def _begins_frame(rest: bytes) -> bool:
    """Whether a zstd frame follows; that of a skippable one has sixteen beginnings (RFC 8878, 3.1.2)."""
    return rest == zstandard.FRAME_HEADER or (rest[1:] == _SKIPPABLE[1:] and rest[0] & 0xF0 == _SKIPPABLE[0])


class _Reader(Protocol):
    def __call__(self, body: bytes, most: int, *, padded: bool) -> bytes: ...


_READERS: Final[Mapping[str, _Reader]] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd}


def decoded(body: bytes, encoding: str, most: int, *, padded: bool = False) -> bytes | None:
    """Return a body without its encoding; None: it has none, it has another one, or it is damaged.

    Reading ends after `most` bytes and one more, so a small body that would become a huge one takes no more memory.
    `padded`: whatever follows the end of what is packed is left out, as other readers of answers do.
    """
    read = _READERS.get(encoding.strip().lower())
    if read is None:
        return None
    try:
        return read(body, most + 1, padded=padded)
    except (ValueError, zlib.error, zstandard.ZstdError):
        return None


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
