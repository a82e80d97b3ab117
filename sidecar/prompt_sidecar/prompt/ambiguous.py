r"""JSON that two parsers may read differently: with a lone surrogate, the same key twice, or a number too large.

JavaScript writes `\ud83d` where it has cut an emoji in two, and RFC 8259 leaves the behaviour of readers undefined
(section 8.2), as it does for duplicate keys (section 4) and for numbers that no double holds (section 6). Providers
accept them. If the sidecar rejected such a message, it would reject every later prompt of the run. So it is read as
well as possible, with U+FFFD for a lone surrogate, null for a number that is too large and the last of two members, to
count its tokens and find its calls and results. It is returned unchanged: never edited, never dropped, and recognised
by its raw bytes.

The escape of a lone surrogate has six bytes and so has its replacement, and null is filled up with spaces, so offsets
are the same in both texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec
import orjson

from prompt_sidecar.errors import AmbiguousJson
from prompt_sidecar.prompt.format import Format, Reader, SystemMember
from prompt_sidecar.prompt.items import ItemKind, Message
from prompt_sidecar.prompt.jsontext import digest, load, too_deep
from prompt_sidecar.prompt.readable import readable
from prompt_sidecar.prompt.surrogates import STAND_IN, lone_surrogates, without_lone_surrogates

_NONE: Final = 0xFFFD
"""Replaces a lone surrogate in a text that already contains every character of `_STAND_INS`; it is lost there."""
_SALT: Final = b"raw:"
"""Prefix of the raw bytes that are digested, so that no unambiguous message has the same identity."""
_KEPT: Final = frozenset({ItemKind.OPAQUE, ItemKind.REASONING})
"""Items that stay editable: reasoning that its provider would reject must be removed even here."""
_STAND_INS: Final = range(0xE000, 0xF900)
"""Private-use characters that replace lone surrogates while a text is edited; there are more of them than
surrogates."""

Argument = TypeVar("Argument")


def load_any(raw: bytes, field: str) -> Any:
    """Decode JSON, ambiguous or not. Raises InvalidJson, which names `field`."""
    try:
        return load(raw, field)
    except AmbiguousJson:
        return orjson.loads(readable(raw))


def _tolerant_reader(read: Reader) -> Reader:
    """A reader that accepts ambiguous messages too; see the module."""

    def read_any(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
        try:
            return read(raw, field, identify)
        except (AmbiguousJson, orjson.JSONDecodeError):
            pass
        plain = _without_doubles(readable(raw), field)
        message = read(plain, field, identify)
        # The original of an item is its text, as its raw JSON cannot always be decoded.
        items = tuple(
            item if item.kind in _KEPT else item._replace(raw_json=False, fixed=True, free_text=True)
            for item in message.items
        )
        return message._replace(items=items, identity=digest(_SALT + raw) if identify else b"", untouchable=True)

    return read_any


def _restoring_surrogates(call: Callable[[bytes, Argument], bytes]) -> Callable[[bytes, Argument], bytes]:
    """A function from a message's bytes to bytes that keeps lone surrogates, which msgspec rejects."""

    def call_any(raw: bytes, argument: Argument) -> bytes:
        try:
            return call(raw, argument)
        except msgspec.DecodeError:
            clean, restored = _shielded(raw)
            return restored(call(clean, argument))

    return call_any


def tolerant(format_: Format) -> Format:
    """The format with a reader, a writer and a system member that accept ambiguous messages too; see the module."""
    return replace(
        format_,
        read=_tolerant_reader(format_.read),
        write=_restoring_surrogates(format_.write),
        original=_restoring_surrogates(format_.original),
        system=None if format_.system is None else _tolerant_member(format_.system),
    )


def _tolerant_member(member: SystemMember) -> SystemMember:
    """A system member that keeps lone surrogates when our own text is added or removed."""

    def add(value: bytes | None, text: str) -> bytes:
        if value is None:
            return member.add(value, text)
        clean, restored = _shielded(value)
        return restored(member.add(clean, text))

    def without(value: bytes, is_own: Callable[[str], bool]) -> bytes:
        clean, restored = _shielded(value)
        return restored(member.without(clean, is_own))

    def texts(value: bytes) -> list[str]:
        return member.texts(without_lone_surrogates(value))

    return replace(member, add=add, without=without, texts=texts)


def _without_doubles(raw: bytes, field: str) -> bytes:
    """A text without duplicate keys: the last value is kept, as most languages' parsers do."""
    try:
        load(raw, field)
    except AmbiguousJson:
        try:
            return orjson.dumps(orjson.loads(raw))
        except TypeError:
            raise too_deep(field) from None
    return raw


def _shielded(value: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """A text with other characters for lone surrogates, and the function that restores them in an edited text."""
    places = list(lone_surrogates(value))
    if not places:
        return value, lambda made: made
    lower = value.lower()
    free = (one for one in _STAND_INS if _escape(one) not in lower and chr(one).encode() not in value)
    stand_ins: dict[bytes, int] = {}
    written = bytearray(value)
    for at in places:
        half = value[at : at + len(STAND_IN)]
        if half not in stand_ins:
            stand_ins[half] = next(free, _NONE)
        written[at : at + len(STAND_IN)] = _escape(stand_ins[half])
    halves = {chr(one).encode(): half for half, one in stand_ins.items() if one != _NONE}
    halves |= {_escape(one): half for half, one in stand_ins.items() if one != _NONE}
    if not halves:
        return bytes(written), lambda made: made
    either = re.compile(b"|".join(map(re.escape, halves)))
    return bytes(written), lambda made: either.sub(lambda found: halves[found.group()], made)


def _escape(character: int) -> bytes:
    return b"\\u%04x" % character
