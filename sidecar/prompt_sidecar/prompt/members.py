"""A request body as its members, each with its bytes: members that are not changed are forwarded unchanged.

Agents cut texts anywhere, and a lone surrogate is an escape that the libraries reject: it is kept unchanged, and read
as U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import SidecarError, TooLarge
from prompt_sidecar.prompt.body import Split, elements_of, members_after, members_of
from prompt_sidecar.prompt.formats import FORMATS
from prompt_sidecar.prompt.readable import readable
from prompt_sidecar.prompt.structure import check_decoding, check_members, check_slices
from prompt_sidecar.prompt.surrogates import without_lone_surrogates

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_WRITE: Final = msgspec.json.Encoder()
_SPACE: Final = b" \t\r\n"
_FIELD: Final = "body"
"""The field that errors name."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of the decoder; the last one for arrays that are nested too deeply."""


class NotJson(Exception):
    """The body is not a JSON object."""


class Members:
    """The members of a JSON object."""

    def __init__(self, body: bytes, before: Split | None = None, messages: str = "") -> None:
        """Split the body.

        Args:
            body: the object.
            before: the split of an earlier body of the same run; messages that both begin with are not read again.
            messages: the member with the messages.

        Raises:
            NotJson: it is not a JSON object.
            TooLarge: it has so many small values that splitting would take long.
        """
        found = members_after(body, before, messages) if before is not None else None
        self._values = _members(body) if found is None else {name: msgspec.Raw(value) for name, value in found.items()}
        self._body: bytes | None = body

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def raw(self, name: str) -> bytes:
        """Return a member's bytes; empty if it is absent."""
        value = self._values.get(name)
        return b"" if value is None else bytes(value)

    def get(self, name: str) -> Any:
        """Return a member as JSON types; None if it is absent, or cannot be read."""
        value = self._values.get(name)
        return None if value is None else loads(bytes(value))

    def set(self, name: str, value: bytes) -> None:
        """Replace a member, or add it at the end."""
        self._values[name] = msgspec.Raw(value)
        self._body = None

    def drop(self, name: str) -> None:
        """Remove a member, if there is one."""
        if self._values.pop(name, None) is not None:
            self._body = None

    def bytes(self) -> bytes:
        """Return the object; with its original bytes, unless a member was set."""
        if self._body is None:
            pieces: list[bytes | msgspec.Raw] = []
            for name, value in self._values.items():
                pieces += (b"," if pieces else b"{", _WRITE.encode(name), b":", value)
            self._body = b"".join((*pieces, b"}")) if pieces else b"{}"
        return self._body


def prompt_format(format_name: str, body: bytes) -> str:
    """Return the format of a body that may be a prompt of this format; empty if it has no messages."""
    try:
        holds = FORMATS[format_name].messages_field in Members(body)
    except (NotJson, TooLarge):
        return ""
    return format_name if holds else ""


def _members(body: bytes) -> dict[str, msgspec.Raw]:
    check_slices(body, _FIELD)
    check_members(body, _FIELD)
    try:
        return _OBJECT.decode(body)
    except _UNREADABLE:
        if not _has_half(body):
            raise NotJson from None
    try:
        return {name: msgspec.Raw(value) for name, value in members_of(body).items()}
    except SidecarError:
        raise NotJson from None


def _has_half(raw: bytes) -> bool:
    """Whether a text has lone surrogates, which may be the only reason why the libraries reject it."""
    return without_lone_surrogates(raw) is not raw


def loads(raw: bytes) -> Any:
    """Return JSON text as JSON types; None if it cannot be read, or would take too much memory for its size."""
    try:
        check_decoding(raw, _FIELD)
        return orjson.loads(raw)
    except TooLarge:
        return None
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(readable(raw))
    except orjson.JSONDecodeError:
        return None


def elements(raw: bytes) -> list[bytes]:
    """Return the elements of an array; empty for anything else."""
    return list(each_element(raw))


def each_element(raw: bytes) -> Iterator[bytes]:
    """Yield the elements of an array; nothing for anything else. Elements that are not requested are not copied.

    Their number is checked when the body is split.
    """
    try:
        found: Iterable[msgspec.Raw | bytes] = _ARRAY.decode(raw)
    except _UNREADABLE:
        if not _has_half(raw):
            return
        try:
            found = elements_of(raw)
        except SidecarError:
            return
    for each in found:
        yield bytes(each)


def array(values: Iterable[bytes]) -> bytes:
    """Return an array of these elements."""
    return b"[" + b",".join(values) + b"]"


def appended(raw: bytes, values: Sequence[bytes]) -> bytes:
    """Return an array with more elements at its end, without reading the present ones."""
    head = raw.strip(_SPACE)[:-1].rstrip(_SPACE)
    return head + (b"" if head == b"[" else b",") + b",".join(values) + b"]" if values else raw
