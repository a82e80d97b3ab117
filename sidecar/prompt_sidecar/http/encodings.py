"""Compressed request bodies, read so that the prompt in them can be trimmed. They are sent on uncompressed."""

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
