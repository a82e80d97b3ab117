r"""JSON that two parsers may read differently: with a lone surrogate, a repeated key, or a number too large.

JavaScript writes `\ud83d` where it has cut an emoji in two, and RFC 8259 leaves the behaviour of readers undefined
(section 8.2), as it does for duplicate keys (section 4) and for numbers that no double holds (section 6). Providers
accept them. If the sidecar rejected such a message, it would reject every later prompt of the run. So it is read as
well as possible, with U+FFFD for a lone surrogate, null for a number that is too large and the last of two members, to
count its tokens and find its calls and results. It is recognised by its raw bytes.

With lone surrogates alone all parsers find the same members in it. So its items are elided, clipped and dropped like
any others; the original of a text with one is its raw JSON, and its elided form has U+FFFD. With two members of a name
or a number too large it is never edited: it is returned unchanged, or dropped whole, with originals that have its own
spelling. Only where parsers may even find other calls and answers in it, so that a provider might see a call without
its answer, it is not dropped either.

The escape of a lone surrogate has six bytes and so has its replacement, and null is filled up with spaces, so offsets
are the same in both texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec
import orjson

from prompt_sidecar.errors import AmbiguousJson, InvalidJson
from prompt_sidecar.prompt.format import Format, MessageReader, SystemMember
from prompt_sidecar.prompt.items import WHOLE, Item, ItemKind, Message
from prompt_sidecar.prompt.jsontext import digest, load, too_deep
from prompt_sidecar.prompt.readable import readable, without_large_numbers
from prompt_sidecar.prompt.surrogates import STAND_IN, lone_surrogates, without_lone_surrogates

_NONE: Final = 0xFFFD
"""Replaces a lone surrogate in a text that already has every character of `_STAND_INS`; the surrogate is lost there."""
_SALT: Final = b"raw:"
"""Prefix of the raw bytes that are digested, so that no unambiguous message has the same identity."""
_REPLACED: Final = "\ufffd"
"""What replaces a lone surrogate in a text that was read; the sent text may have it, too."""
_STAND_INS: Final = range(0xE000, 0xF900)
"""Private-use characters that replace lone surrogates while a text is edited; there are more of them than
surrogates."""

_MOST_SPELLED: Final = 8
"""Items of a message whose originals may be raw JSON, as the whole message is searched for each. If there are more,
their originals are texts, and only the message's own original has its spelling."""
_HOLDS_ALL: Final = frozenset({ItemKind.OPAQUE, ItemKind.REASONING})
"""Items that may be a whole message, or a complete block."""

Argument = TypeVar("Argument")


def load_any(raw: bytes, field: str) -> Any:
    """Decode JSON, ambiguous or not. Raises InvalidJson, which names `field`."""
    try:
        return load(raw, field)
    except AmbiguousJson:
        return orjson.loads(readable(raw))


def _tolerant_reader(read: MessageReader) -> MessageReader:
    """Return a reader that accepts ambiguous messages too; see the module."""

    def read_any(raw: bytes | memoryview, field: str, identify: bool = True) -> Message:
        try:
            return read(raw, field, identify)
        except (AmbiguousJson, orjson.JSONDecodeError):
            pass
        paired = without_lone_surrogates(bytes(raw))
        clear = without_large_numbers(paired)
        single = _without_doubles(clear, field)
        message = read(single, field, identify)
        few = sum(map(_is_spelled, message.items)) <= _MOST_SPELLED
        if few and single is paired:  # it has nothing but lone surrogates
            items = tuple(item._replace(spelled=_is_spelled(item) and not item.raw_json) for item in message.items)
            droppable = not _has_unclear_ids(message)
        else:
            items = whole_too(tuple(_unedited(item, spelled=few and _is_spelled(item)) for item in message.items))
            droppable = identify and _is_droppable(read, message._replace(items=items), clear, single)
        return message._replace(
            items=items,
            identity=digest(_SALT + raw) if identify else b"",
            ambiguous=True,
            untouchable=identify and not droppable,
        )

    return read_any


def _is_spelled(item: Item) -> bool:
    """Whether an item's original has to be its raw JSON, as its text may lack part of it."""
    return item.kind not in _HOLDS_ALL and (item.raw_json or _REPLACED in item.text)


def _unedited(item: Item, *, spelled: bool) -> Item:
    """Return an item that can only be dropped; `spelled`: its original is its raw JSON, else its text.

    Reasoning that its provider would reject is removed nevertheless.
    """
    if item.kind is ItemKind.OPAQUE:
        return item
    if item.kind is ItemKind.REASONING:
        return item._replace(fixed=True)
    return item._replace(raw_json=False, spelled=spelled, fixed=True, free_text=not spelled)


def whole_too(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return an ambiguous message's items and the whole message, which alone has all that other parsers find.

    A message of reasoning only is excluded: it is removed in other ways than content.
    """
    kinds = {item.kind for item in items}
    return items if ItemKind.OPAQUE in kinds or kinds == {ItemKind.REASONING} else (*items, WHOLE)


def _is_droppable(read: MessageReader, message: Message, clear: bytes, single: bytes) -> bool:
    """Whether originals cover all of a message, and other parsers find the same calls and answers in it.

    `clear`: its text without what strict parsers refuse; `single`: without duplicate keys too.
    """
    if _has_unclear_ids(message):
        return False
    doubled = single is not clear
    if not any(item.raw_json and item.kind in _HOLDS_ALL and not (doubled and item.path) for item in message.items):
        return False
    return not doubled or _pairs_alike(read, clear, message)


def _has_unclear_ids(message: Message) -> bool:
    """Whether ids of calls had lone surrogates: different ids may then look equal here."""
    return any(_REPLACED in each for each in (*message.calls, *message.answers))


def _pairs_alike(read: MessageReader, clear: bytes, message: Message) -> bool:
    """Whether a parser that uses the first of two members finds the same calls and answers as with the last."""
    try:
        other = read(orjson.dumps(json.loads(clear, object_pairs_hook=_firsts, parse_int=float)), "history", False)
    except (InvalidJson, TypeError, RecursionError):
        return False
    return (other.role, *other.calls, None, *other.answers) == (message.role, *message.calls, None, *message.answers)


def _firsts(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with the first of each members with the same name."""
    return dict(reversed(members))


def _restoring_surrogates(call: Callable[[bytes, Argument], bytes]) -> Callable[[bytes, Argument], bytes]:
    """Wrap an edit of a message's bytes so that it keeps lone surrogates, which msgspec and orjson reject."""

    def call_any(raw: bytes, argument: Argument) -> bytes:
        try:
            return call(raw, argument)
        except (msgspec.DecodeError, orjson.JSONDecodeError):
            clean, restored = _shielded(raw)
            return restored(call(clean, argument))

    return call_any


def _restoring_originals(call: Callable[[bytes, Sequence[Item]], list[bytes]]) -> Callable[..., list[bytes]]:
    """As `_restoring_surrogates`, for the originals of items."""

    def call_any(raw: bytes, items: Sequence[Item]) -> list[bytes]:
        try:
            return call(raw, items)
        except (msgspec.DecodeError, orjson.JSONDecodeError):
            clean, restored = _shielded(raw)
            found = zip(items, call(clean, items), strict=True)
            return [restored(each) if item.raw_json or item.spelled else each for item, each in found]

    return call_any


def tolerant(format_: Format) -> Format:
    """Return the format with a reader, a writer and a system member that accept ambiguous messages; see the module."""
    return replace(
        format_,
        read=_tolerant_reader(format_.read),
        write=_restoring_surrogates(format_.write),
        originals=_restoring_originals(format_.originals),
        system=None if format_.system is None else _tolerant_member(format_.system),
    )


def _tolerant_member(member: SystemMember) -> SystemMember:
    """Return a system member that keeps lone surrogates when our own text is added or removed."""

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
    """Return a text without duplicate keys: the last value is kept, as in most languages' parsers."""
    try:
        load(raw, field)
    except AmbiguousJson:
        try:
            return orjson.dumps(orjson.loads(raw))
        except TypeError:
            raise too_deep(field) from None
    return raw


def _shielded(value: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return a text with other characters for lone surrogates, and a function that restores them after edits."""
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
