"""Decodes compressed bodies of requests and answers.

Requests are decoded so that their prompt can be trimmed; answers, because some servers compress them although they are
asked not to. A changed body is forwarded uncompressed.

A few kilobytes may become gigabytes. So a body is decompressed in steps. Before each step a callback gets the size that
the result may reach; it raises if there is no memory for that, and decompression ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Final, Protocol

import zstandard
from multidict import MultiMapping

WINDOW: Final = 8_388_608
"""Largest zstd window, in bytes: what each decoder should support (RFC 8878, 3.1.1.1.2). A body that needs more is not
decompressed."""
STEP: Final = 1_048_576
"""Bytes that are decompressed in one step: a few milliseconds."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_MAGIC: Final = b"\x1f\x8b"
"""The first bytes of each gzip member."""
_DEFLATE: Final = (zlib.MAX_WBITS, -zlib.MAX_WBITS)
"""With zlib's header as RFC 9110 requires, and without it, as some servers and clients send it."""
_MOST_MEMBERS: Final = 10_000
"""Most members or frames of one body. Tools that compress in blocks write one for each 64 KB or more."""
_PIECE: Final = 65_536
"""Compressed bytes that are read at a time."""
_SKIPPABLE: Final = b"\x50\x2a\x4d\x18"
_MOST_GROWTH: Final = 32_768
"""Largest ratio of decompressed to compressed size of a zstd block: 4 bytes may be 128 KB (RFC 8878, 3.1.1.2)."""
_DEFLATE_GROWTH: Final = 1_032
"""The same ratio for deflate and gzip: zlib.net, "Maximum Compression Factor"."""
_ZSTD_PIECE: Final = 64
"""Bytes of zstd that are decompressed at a time. The library does not limit its output; these give 2 MB at most."""
_ZSTD_STEP: Final = _ZSTD_PIECE * _MOST_GROWTH


def _gzip(body: bytes, *, padded: bool) -> Iterator[bytes]:
    """Decompress gzip members that follow each other (RFC 1952, 2.2)."""
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
    """Decompress zstd frames that follow each other; skippable ones hold nothing (RFC 8878, 3.1)."""
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
    """Whether a zstd frame follows; a skippable one begins with one of sixteen magic numbers (RFC 8878, 3.1.2)."""
    return rest == zstandard.FRAME_HEADER or (rest[1:] == _SKIPPABLE[1:] and rest[0] & 0xF0 == _SKIPPABLE[0])


class _Unpacker(Protocol):
    def __call__(self, body: bytes, *, padded: bool) -> Iterator[bytes]: ...


_READERS: Final[Mapping[str, _Unpacker]] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd}


def _ignored(_: int) -> None:
    """Do nothing: the default, where decompressed bytes are not counted."""


class PackedBody:
    """A compressed body, and the part of it that is decompressed so far.

    Args:
        body: the bytes received.
        encoding: its content encoding, by its headers.
        most: limit on its decompressed bytes; decompression ends with the step that exceeds it.
        padded: whether bytes behind the end of the compressed data are ignored, as other readers of answers do.
        hold: called before each step with the total size that may be reached; an exception from it ends decompression.
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
        """Largest possible result, in bytes: the limit and one more, and no more than any body of this size can
        become."""
        self._hold = hold
        self._found: BytesIO | None = None if read is None else BytesIO()
        self.size = 0
        """Bytes decompressed so far."""
        self.over = read is None
        """Whether decompression has ended."""

    def go_on(self, most: int, check: Callable[[], object] = lambda: None) -> None:
        """Decompress until there are so many bytes, or all; `check` is called between two steps, and may raise."""
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
        """Return the decompressed body, up to the limit and one byte more, once decompression has ended.

        None if it is not compressed, has an unknown encoding, or is damaged.
        """
        found, self._found = self._found, None
        return None if found is None else found.getvalue()


def decoded(
    body: bytes, encoding: str, most: int, *, padded: bool = False, hold: Callable[[int], object] = _ignored
) -> bytes | None:
    """Return a decompressed body; None if it is not compressed, has an unknown encoding, or is damaged.

    Decompression ends after `most` bytes and one more, so a small body that expands enormously takes no more memory.
    The other arguments are those of `PackedBody`.
    """
    packed = PackedBody(body, encoding, most, padded=padded, hold=hold)
    packed.go_on(most + 1)
    return packed.plain()


def encoding_of(headers: MultiMapping[str]) -> str:
    """Return the encodings that a body's headers name, in one line in lower case, or an empty string."""
    named = ", ".join(headers.getall("content-encoding", ())).strip().lower()
    return "" if named == "identity" else named


class Unpacker:
    """Decompresses a stream, a bounded piece at a time. Raises ValueError if it is damaged."""

    def __init__(self, encoding: str) -> None:
        """`encoding` is one of `UNPACKED`."""
        self._forms = _STREAMED[encoding]
        self._decoder = zlib.decompressobj(self._forms[0])
        self._packed = b""
        self._begun = False
        self._padded = False
        """Whether only padding follows."""

    def take(self, packed: bytes) -> None:
        """Accept the next compressed bytes."""
        if not self._padded:
            self._packed += packed

    def more(self) -> bytes:
        """Return the next decompressed piece; empty if more compressed bytes are needed."""
        while len(self._packed) > (not self._begun):  # two bytes distinguish the forms of an encoding
            if self._decoder.eof:  # several compressed streams may follow each other (RFC 1952, 2.2)
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
        """Whether the stream is complete."""
        return self._decoder.eof or not self._begun


def _begins(rest: bytes, form: int) -> bool:
    """Whether another compressed stream follows, not padding; least reliable for a form without a header."""
    if form == _GZIP:
        return rest.startswith(_MAGIC)
    if form < 0:
        return rest[0] != 0
    return rest[0] & 15 == zlib.DEFLATED and int.from_bytes(rest[:2], "big") % 31 == 0  # RFC 1950, 2.2


_STREAMED: Final[Mapping[str, tuple[int, ...]]] = {"gzip": (_GZIP,), "x-gzip": (_GZIP,), "deflate": _DEFLATE}
UNPACKED: Final = frozenset(_STREAMED)
"""Encodings of streams that can be decompressed."""
