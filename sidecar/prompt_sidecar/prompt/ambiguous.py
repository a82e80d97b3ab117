r"""JSON that two parsers may read differently: a lone surrogate, or a key twice.

JavaScript writes `\ud83d` where it has cut an emoji in two, and RFC 8259 (section 8.2) leaves open what a reader makes
of it; of a key that stands twice in an object it says the same (section 4). Providers take both. Refused, such a
message would refuse its prompt, and with it every later prompt of the run. So it is read as well as it can be, with
U+FFFD for half a character and the last of two members, to count its tokens and to know its calls and results; and it
goes back as it came: never edited, never dropped, and known again by its raw bytes.

Each half escape takes six bytes and so does its stand-in, so whatever is found in a mended text stands at the same
place in the text that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import orjson

from prompt_sidecar.errors import AmbiguousJson
from prompt_sidecar.prompt.format import Reader, Replacement, SystemMember
from prompt_sidecar.prompt.items import Item, ItemKind, Message
from prompt_sidecar.prompt.jsontext import digest, load, too_deep
from prompt_sidecar.prompt.surrogates import STAND_IN, lone_surrogates, mended

_NONE: Final = 0xFFFD
"""Stands for a half character of a text that holds every stand-in there is: there it is lost."""
_SALT: Final = b"raw:"
"""Stands before the raw bytes that are digested, so that no other message has the identity of such a one."""
_KEPT: Final = frozenset({ItemKind.OPAQUE, ItemKind.REASONING})
"""Items that are as in any message: reasoning that its provider would refuse must go, wherever it stands."""
_STAND_INS: Final = range(0xE000, 0xF900)
"""Characters for private use, which stand in a text for its half ones while it is written anew; more than there are of
these."""


Writer = Callable[[bytes, Mapping[Item, Replacement]], bytes]
Original = Callable[[bytes, Item], bytes]


def load_any(raw: bytes, field: str) -> Any:
    """Decode, ambiguous or not. Raises InvalidJson for what is no JSON; names `field`."""
    try:
        return load(raw, field)
    except AmbiguousJson:
        return orjson.loads(mended(raw))


def tolerant(read: Reader) -> Reader:
    """A reader that takes ambiguous messages too; see the module."""

    def read_any(raw: bytes, field: str, identify: bool = True) -> Message:
        try:
            return read(raw, field, identify)
        except (AmbiguousJson, orjson.JSONDecodeError):
            pass
        plain = _without_doubles(mended(raw), field)
        message = read(plain, field, identify)
        # An original is its text: what stands in the message that was sent cannot always be decoded.
        items = tuple(
            item if item.kind in _KEPT else item._replace(raw_json=False, fixed=True, free_text=True)
            for item in message.items
        )
        return message._replace(items=items, identity=digest(_SALT + raw) if identify else b"", untouchable=True)

    return read_any


def tolerant_write(write: Writer) -> Writer:
    """A writer that leaves half characters as they are."""

    def write_any(raw: bytes, replacements: Mapping[Item, Replacement]) -> bytes:
        try:
            return write(raw, replacements)
        except msgspec.DecodeError:
            clean, restored = _shielded(raw)
            return restored(write(clean, replacements))

    return write_any


def tolerant_original(original: Original) -> Original:
    """Tells the original of an item of an ambiguous message too."""

    def original_of_any(raw: bytes, item: Item) -> bytes:
        try:
            return original(raw, item)
        except msgspec.DecodeError:
            clean, restored = _shielded(raw)
            return restored(original(clean, item))

    return original_of_any


def tolerant_member(member: SystemMember) -> SystemMember:
    """A system prompt that may hold half a character: what is added or taken out leaves it as it is."""

    def add(value: bytes | None, text: str) -> bytes:
        if value is None:
            return member.add(value, text)
        clean, restored = _shielded(value)
        return restored(member.add(clean, text))

    def without(value: bytes, is_own: Callable[[str], bool]) -> bytes:
        clean, restored = _shielded(value)
        return restored(member.without(clean, is_own))

    def texts(value: bytes) -> list[str]:
        return member.texts(mended(value))

    return SystemMember(member.names, add, without, texts)


def _without_doubles(raw: bytes, field: str) -> bytes:
    """A text in which each key stands once: the last value, as the parsers of most languages read it."""
    try:
        load(raw, field)
    except AmbiguousJson:
        try:
            return orjson.dumps(orjson.loads(raw))
        except TypeError:
            raise too_deep(field) from None
    return raw


def _shielded(value: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """A text with another character for each half one, and what puts them back in what was made of it."""
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
