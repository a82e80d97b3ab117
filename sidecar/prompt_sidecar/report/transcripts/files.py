"""A file's content: decompressed within bounds, and split into lines or decoded as one JSON value.

Errors name the file and the line, and never quote it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from prompt_sidecar.prompt.surrogates import without_lone_surrogates
from prompt_sidecar.report.transcripts.model import TranscriptError

FILE_BYTES: Final = 1 << 30
"""Most bytes of a file, decompressed. The longest sessions that people report have some hundred megabytes."""
LINE_BYTES: Final = 1 << 28
"""Most bytes of a line: a request of the largest window in use, with images, has a tenth of that."""
_GZIP: Final = b"\x1f\x8b"
_AT_ONCE: Final = 1 << 20

Members = dict[str, msgspec.Raw]
"""An object's members, each as JSON."""

_Decoded = TypeVar("_Decoded")
_members: Final = msgspec.json.Decoder(Members)
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A line of a JSONL file."""

    number: int
    members: Members

    def text(self, name: str) -> str:
        """Return a member that is a string, else the empty string."""
        return text_in(self.members, name)

    def object(self, name: str) -> Members:
        """Return a member that is an object, else an empty one."""
        return object_in(self.members, name)

    def true(self, name: str) -> bool:
        """Whether a member is true."""
        return bytes(self.members.get(name, msgspec.Raw(b""))).strip() == b"true"


def content(path: Path) -> bytes:
    """Return a file's bytes, decompressed if it is gzipped.

    Raises:
        TranscriptError: it cannot be read, is damaged, or is larger than `FILE_BYTES`.
    """
    try:
        with path.open("rb") as opened:
            packed = opened.peek(len(_GZIP))[: len(_GZIP)] == _GZIP  # a pipe can be read only once
            if not packed:
                raw = opened.read(FILE_BYTES + 1)
            else:
                with gzip.open(opened) as unpacked:
                    raw = b"".join(_bounded(unpacked))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise TranscriptError(f"{path} is a damaged gzip file") from None
    except OSError as error:
        raise TranscriptError(f"{path} cannot be read: {error.strerror or 'it is damaged'}") from None
    if len(raw) > FILE_BYTES:
        raise TranscriptError(f"{path} has more than {FILE_BYTES:,} bytes, which is the most that is read")
    return raw


def _bounded(unpacked: gzip.GzipFile) -> Iterator[bytes]:
    taken = 0
    while taken <= FILE_BYTES and (piece := unpacked.read(_AT_ONCE)):
        taken += len(piece)
        yield piece


def lines(path: Path, raw: bytes) -> tuple[list[TranscriptLine], str]:
    """Return a JSONL file's objects, and a sentence if its last line is cut off, as after a killed session.

    Raises:
        TranscriptError: a line is not a JSON object, or too long; the message has its number.
    """
    found: list[TranscriptLine] = []
    pieces = raw.split(b"\n")
    for number, piece in enumerate(pieces, start=1):
        if not piece.strip():
            continue
        if len(piece) > LINE_BYTES:
            raise TranscriptError(f"{path}, line {number}: it has more than {LINE_BYTES:,} bytes, the most of a line")
        try:
            found.append(TranscriptLine(number, _decoded(_members, piece)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if number == len(pieces) and found and piece.lstrip().startswith(b"{"):
                return found, f"line {number}, the last, is cut off and was left out"
            raise TranscriptError(f"{path}, line {number}: it is not a JSON object") from None
    return found, ""


def _decoded(decoder: msgspec.json.Decoder[_Decoded], raw: bytes) -> _Decoded:
    """Decode, with U+FFFD in place of lone surrogates: models write them, and no strict reader accepts them."""
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        readable = without_lone_surrogates(raw)
        if readable is raw:
            raise
        return decoder.decode(readable)


def members_of(raw: bytes) -> Members | None:
    """Return the members of a JSON object; None if it is not one."""
    try:
        return _decoded(_members, raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def array_of(raw: bytes) -> list[bytes] | None:
    """Return the elements of a JSON array, each as JSON; None if it is not one."""
    try:
        return [bytes(element) for element in _decoded(_array, raw)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def text_in(members: Mapping[str, msgspec.Raw], name: str) -> str:
    """Return a member that is a string, else the empty string."""
    value = value_in(members, name)
    return value if isinstance(value, str) else ""


def object_in(members: Mapping[str, msgspec.Raw], name: str) -> Members:
    """Return a member that is an object, else an empty one."""
    return members_of(bytes(members[name])) or {} if name in members else {}


def count_in(members: Mapping[str, msgspec.Raw], name: str) -> int:
    """Return a member that is a number of tokens, else 0."""
    value = value_in(members, name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def value_in(members: Mapping[str, msgspec.Raw], name: str) -> Any:
    """Return a member, decoded; None if it is absent or cannot be decoded."""
    raw = bytes(members.get(name, msgspec.Raw(b"")))
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
