"""Compressed bodies, of requests and of answers.

Requests are read so that the prompt in them can be trimmed; answers, as some servers compress them though they are
asked not to. What is changed is sent on uncompressed.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import zstandard

WINDOW: Final = 8_388_608
"""Bytes of a zstd window: what each decoder should have (RFC 8878, 3.1.1.1.2); a body that needs more stays packed."""
_GZIP: Final = 16 + zlib.MAX_WBITS


def _zlib(*forms: int) -> Callable[[bytes, int], bytes]:
    def read(body: bytes, most: int) -> bytes:
        for wbits in forms:
            decoder = zlib.decompressobj(wbits)
            try:
                found = decoder.decompress(body, most)
            except zlib.error:
                continue
            if len(found) >= most or (decoder.eof and not decoder.unused_data):
                return found
        raise ValueError

    return read


def _zstd(body: bytes, most: int) -> bytes:
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW)
    try:
        found = decoder.stream_reader(io.BytesIO(body)).read(most)
        if len(found) >= most:
            return found
        # A reader tells no end from a cut; this one does, and has no bound of its own.
        checked = decoder.decompressobj()
        checked.decompress(body)
    except zstandard.ZstdError as error:
        raise ValueError from error
    if not checked.eof or checked.unused_data:
        raise ValueError
    return found


_READERS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _zlib(_GZIP),
    "x-gzip": _zlib(_GZIP),
    "deflate": _zlib(zlib.MAX_WBITS, -zlib.MAX_WBITS),  # by RFC 9110 with zlib's header; some clients leave it out
    "zstd": _zstd,
}


def decoded(body: bytes, encoding: str, most: int) -> bytes | None:
    """Return a body without its encoding; None: it has none, it has another one, or it is damaged.

    Reading ends after `most` bytes and one more, so a small body that would become a huge one takes no more memory.
    """
    read = _READERS.get(encoding.strip().lower())
    if read is None:
        return None
    try:
        return read(body, most + 1)
    except ValueError:
        return None


class Unpacker:
    """Unpacks a stream, a bounded piece at a time. Raises ValueError where it is damaged."""

    def __init__(self, encoding: str) -> None:
        """`encoding` is one of `UNPACKED`."""
        self._forms = _STREAMED[encoding]
        self._decoder = zlib.decompressobj(self._forms[0])
        self._packed = b""
        self._begun = False

    def take(self, packed: bytes) -> None:
        """Take the next bytes."""
        self._packed += packed

    def more(self) -> bytes:
        """Return the next piece; empty: further bytes are needed."""
        while len(self._packed) > (not self._begun):  # two bytes tell the forms of an encoding apart
            if self._decoder.eof:  # several packed streams may follow each other (RFC 1952, 2.2)
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


_PIECE: Final = 65_536
"""Bytes that are unpacked at a time."""
_STREAMED: Final[Mapping[str, tuple[int, ...]]] = {
    "gzip": (_GZIP,),
    "x-gzip": (_GZIP,),
    "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS),
}
UNPACKED: Final = frozenset(_STREAMED)
"""Encodings of streams that are unpacked."""
