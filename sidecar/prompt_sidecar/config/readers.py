"""Readers of setting values: text or TOML value in, checked value out; each can say what it accepts.

Sizes and times take a unit, so that a file reads as a person would write it: `64MiB`, `60m`. A bare number is in bytes
or seconds. A list is a TOML array, or in the environment, which knows text alone, a JSON array.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from prompt_sidecar.server.options import split_address

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_BYTES = {"": 1, "b": 1, "kb": 1_000, "mb": 10**6, "gb": 10**9, "kib": KIB, "mib": MIB, "gib": GIB}
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_QUANTITY = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*")
_ARRAY = re.compile(r'\s*\[\s*(\Z|["\'\]])')
"""How an array of texts begins, whether or not it goes on as one."""
_KEY_CHARACTERS = 16
"""The least length of the key: what is shorter can be guessed from one id. 32 random bytes in hex are 64 characters."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a setting's value. `read` raises ValueError for what `accepted` does not describe."""

    accepted: str
    read: Callable[[object], object]
    show: Callable[[object], str] = str
    secret: bool = False


def whole(low: int, high: int) -> Reader:
    """A whole number, both bounds included."""

    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,18}\s*", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return Reader(f"a whole number from {low:,} to {high:,}", read)


def number(low: float, high: float) -> Reader:
    """A number, both bounds included."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError(value)  # noqa: TRY004  # `read` raises one kind of error
        result = float(value)
        if not low <= result <= high:
            raise ValueError
        return result

    return Reader(f"a number from {low:g} to {high:g}", read)


def byte_count(low: int, high: int) -> Reader:
    """Bytes, with or without a unit."""

    def read(value: object) -> int:
        amount = _quantity(value, _BYTES)
        if amount != int(amount) or not low <= amount <= high:
            raise ValueError
        return int(amount)

    def show(value: object) -> str:
        assert isinstance(value, int)
        for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if value and value % size == 0:
                return f'"{value // size}{unit}"'
        return str(value)

    return Reader(f"bytes from {low:,} to {high:,}, with or without a unit, such as 65536, 64KiB or 1MB", read, show)


def seconds(low: float, high: float) -> Reader:
    """A time in seconds, with or without a unit."""

    def read(value: object) -> float:
        amount = _quantity(value, _SECONDS)
        if not low <= amount <= high:
            raise ValueError
        return amount

    def show(value: object) -> str:
        assert isinstance(value, (int, float))
        if value and value % 60 == 0:
            return f'"{int(value // 60)}m"'
        short = f"{value:g}"
        return f'"{short}s"' if "e" not in short and float(short) == value else repr(value)

    return Reader(
        f"a time from {low:,.10g} to {high:,.10g} seconds, with or without a unit: 500ms, 10s, 60m, 2h", read, show
    )


def _quantity(value: object, units: dict[str, int] | dict[str, float]) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError
        return value or 0  # minus zero would be shown with its sign, which no source can say
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[2].lower() not in units:
        raise ValueError
    amount = float(found[1]) if "." in found[1] else int(found[1])
    return amount * units[found[2].lower()]


def text(most_bytes: int) -> Reader:
    """Text on one line."""

    def read(value: object) -> str:
        if not isinstance(value, str) or len(value.encode(errors="replace")) > most_bytes or not _is_line(value):
            raise ValueError
        return value

    return Reader(f"text of at most {most_bytes:,} bytes on one line", read, _quoted)


def choice(*names: str) -> Reader:
    """One of some names."""

    def read(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return Reader("one of " + ", ".join(names), read, _quoted)


def switch() -> Reader:
    """Yes or no. Only the words of TOML: `1`, `yes` and `on` mean other things in other places."""

    def read(value: object) -> bool:
        named = {"true": True, "false": False}
        if isinstance(value, str):
            value = named.get(value.strip().lower())
        if not isinstance(value, bool):
            raise ValueError(value)  # noqa: TRY004  # as above
        return value

    return Reader("true or false", read, lambda value: str(bool(value)).lower())


def texts(most: int, most_characters: int) -> Reader:
    """A list of texts, none empty.

    Text is read as a JSON array if it is one, else as a list of itself; but what begins as an array of texts does must
    be one, so that a missing quote is not taken for a text that begins with a bracket.
    """

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = _listed(value)
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise ValueError
        for each in value:
            if not isinstance(each, str) or not 1 <= len(each) <= most_characters:
                raise ValueError(each)
            each.encode()  # half of a surrogate pair is no text; UnicodeEncodeError is a ValueError
        return tuple(value)

    def show(value: object) -> str:
        assert isinstance(value, (list, tuple))
        return "[" + ", ".join(_escaped(each) for each in value) + "]"

    accepted = (
        f'at most {most} texts of 1 to {most_characters} characters, as an array such as ["One:", "Two:"], or one text '
        "alone; [] for none"
    )
    return Reader(accepted, read, show)


def _listed(value: str) -> list[str]:
    try:
        return msgspec.json.decode(value, type=list[str])
    except msgspec.ValidationError:
        if value.lstrip().startswith("["):
            raise ValueError from None  # an array, but not of texts
    except (msgspec.DecodeError, UnicodeEncodeError):
        if _ARRAY.match(value):
            raise ValueError from None
    return [value]


def address() -> Reader:
    """`host:port`, or nothing."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(value)  # noqa: TRY004  # as above
        if value:
            split_address(value)
        return value

    return Reader("host:port such as 127.0.0.1:7717 or [::1]:0, or empty", read, _quoted)


def url() -> Reader:
    """The URL of a server, or nothing. Shown without what may be a password."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not _is_line(value):
            raise ValueError(value)
        if value:
            parts = urlsplit(value)
            if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
                raise ValueError
            parts.port  # noqa: B018  # reading it checks it
        return value

    return Reader("a URL such as http://127.0.0.1:4317, without user and password, or empty", read, _quoted)


def secret() -> Reader:
    """A key; never shown."""

    def read(value: object) -> str:
        if not isinstance(value, str) or len(value.strip()) < _KEY_CHARACTERS:
            raise ValueError
        return value.strip()

    accepted = f"text of at least {_KEY_CHARACTERS} characters, best 32 random bytes in hex or base64"
    return Reader(accepted, read, lambda value: '"…"' if value else '""', secret=True)


def _is_line(value: str) -> bool:
    return all(character.isprintable() for character in value)


def _quoted(value: object) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(value: str) -> str:
    """As a TOML string, which is a JSON string but for the character DEL."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
