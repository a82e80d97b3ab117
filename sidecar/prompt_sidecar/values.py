"""How a setting is declared: its default, accepted values, purpose, and the reason for its default.

A dataclass field declares a setting with `setting(...)`, in the folder that uses it. All code that shows or checks the
setting reads that declaration: the settings file, the environment and the command line, the example file, the
documents, the check of a request's policy, and the ranges that the client knows.

In a file sizes and times may have a unit, `64MiB` or `60m`; a bare number is in bytes or seconds. A list is an array,
or in the environment, which has only text, a JSON array.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

import msgspec

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HOUR, DAY = 3_600, 86_400

_BYTES = {"": 1, "b": 1, "kb": 1_000, "mb": 10**6, "gb": 10**9, "kib": KIB, "mib": MIB, "gib": GIB}
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_QUANTITY = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*")
_WHOLE = re.compile(r"\s*-?\d{1,18}\s*")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)
_HOST_CHARACTERS = 253
"""Characters of the longest name (RFC 1035)."""
_ARRAY = re.compile(r'\s*\[\s*(\Z|["\'\]])')
"""The beginning of an array of texts, whether or not the rest is one."""
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]/]+):(\d{1,5})")
_LAST_PORT = 65_535
_texts = msgspec.json.Decoder(list[str])


def _quoted(value: object) -> str:
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting accepts."""

    accepted: str
    """Description in words, to follow "it must be"."""
    check: Callable[[object], Any]
    """Returns a typed value in the setting's form; raises ValueError for values that `accepted` does not describe."""
    parse: Callable[[object], object] = lambda value: value
    """Converts a value from a file or the environment to a typed value; may raise ValueError."""
    show: Callable[[Any], str] = _quoted
    """Returns a value as TOML."""
    spelling: str = ""
    """Other ways to write a value in a file or the environment; follows `accepted` in a message."""
    bounds: tuple[float, float] | None = None
    """The smallest and the largest accepted number, for numbers."""
    secret: bool = False
    """Whether a value must never be shown."""

    def read(self, value: object) -> Any:
        """Return the value from a file or the environment. Raises ValueError as `check` does."""
        return self.check(self.parse(value))


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting."""

    default: object
    kind: Kind
    what: str
    """Its purpose; for a number, first what it counts."""
    why: str
    """The reason for the default; empty if there is nothing to choose, as for a path."""
    advanced: bool
    """Whether the default suits almost all users; documents list such settings separately."""
    required: bool = False
    """Whether it has no default, as for the main key of a table."""

    @property
    def shown_default(self) -> str:
        """Return the default as TOML."""
        return self.kind.show(self.default)


def setting(default: object, kind: Kind, what: str, why: str = "", *, advanced: bool = False) -> Any:
    """Return a dataclass field that declares a setting."""
    return field(default=default, metadata={"setting": Setting(default, kind, what, why, advanced)})


def required(kind: Kind, what: str) -> Any:
    """Return a dataclass field that declares a setting which each table of its kind must set."""
    return field(metadata={"setting": Setting(None, kind, what, "", advanced=False, required=True)})


@dataclass(frozen=True, slots=True)
class Tables:
    """The declaration of tables that a settings file may repeat, all with the same keys."""

    settings: Mapping[str, Setting]
    """The settings in each table, by key; a key with a dot is in an inner table."""
    what: str
    example: str
    """An example of one table in TOML, for documents."""
    named: bool
    """Whether each has a name, as `[prices."gpt-5"]`, or they are a list, as `[[guard.rules]]`."""
    most: int
    """Most tables in a file."""
    make: Callable[[Mapping[str, Any]], Any]
    """Converts one table's values to the setting's value; may raise ValueError, which says what is wrong with them."""
    made_of_others: bool = False
    """Whether its keys are names of settings that are declared elsewhere."""


def tables(struct: type[Any], what: str, example: str, *, named: bool, most: int) -> Any:
    """Return a dataclass field that declares tables, each of which is read into a dataclass.

    The field contains a mapping if the tables have names, otherwise a tuple.
    """
    made = Tables(declared(struct), what, example, named, most, lambda values: struct(**values))
    return field(default_factory=dict if named else tuple, metadata={"tables": made})


def declared_tables(struct: type[Any]) -> Mapping[str, Tables]:
    """Return the tables that a dataclass declares, by the names of their fields."""
    return {each.name: each.metadata["tables"] for each in fields(struct) if "tables" in each.metadata}


def declared(struct: type[Any]) -> Mapping[str, Setting]:
    """Return the settings that a dataclass declares, by the names of their fields."""
    return {each.name: each.metadata["setting"] for each in fields(struct) if "setting" in each.metadata}


def whole(low: int, high: int, unit: str = "") -> Kind:
    """Return the kind for a whole number; both bounds are accepted."""

    def parse(value: object) -> object:
        return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value

    accepted = f"a whole number{unit and ' of ' + unit} from {low:,} to {high:,}"
    return Kind(accepted, _within(low, high), parse, str, bounds=(low, high))


def whole_or(words: Mapping[str, int], low: int, high: int, unit: str) -> Kind:
    """Return the kind for a whole number, or one of some words, each of which means a number."""
    names = {number: word for word, number in words.items()}
    inside = _within(low, high)

    def parse(value: object) -> object:
        if not isinstance(value, str):
            return value
        return int(value) if _WHOLE.fullmatch(value) else words.get(value.strip().lower(), value)

    def check(value: object) -> Any:
        return value if type(value) is int and value in names else inside(value)

    def show(value: int) -> str:
        return _quoted(names[value]) if value in names else str(value)

    accepted = f"{', '.join(words)}, or a whole number of {unit} from {low:,} to {high:,}"
    return Kind(accepted, check, parse, show, bounds=(min(low, *names), high))


def byte_count(low: int, high: int) -> Kind:
    """Return the kind for a size."""

    def show(value: int) -> str:
        for unit, size in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
            if value and value % size == 0:
                return f'"{value // size}{unit}"'
        return str(value)

    def parse(value: object) -> object:
        amount = _quantity(value, _BYTES)
        return int(amount) if amount == int(amount) else amount

    accepted = f"a whole number of bytes from {low:,} to {high:,}"
    spelling = ", with or without a unit, such as 65536, 64KiB or 1MB"
    return Kind(accepted, _within(low, high), parse, show, spelling, (low, high))


def number(low: float, high: float) -> Kind:
    """Return the kind for a number; both bounds are accepted."""

    def parse(value: object) -> object:
        return float(value) if isinstance(value, str) else value

    check = _within(float(low), float(high))
    return Kind(f"a number from {low:g} to {high:g}", check, parse, str, bounds=(low, high))


def seconds(low: float, high: float) -> Kind:
    """Return the kind for a time."""

    def show(value: float) -> str:
        if value and value % 60 == 0:
            return f'"{int(value // 60)}m"'
        short = f"{value:g}"
        return f'"{short}s"' if "e" not in short and float(short) == value else repr(value)

    accepted = f"a time from {low:,.10g} to {high:,.10g} seconds"
    spelling = ", with or without a unit: 500ms, 10s, 60m, 2h"
    parse = lambda value: _quantity(value, _SECONDS)  # noqa: E731
    return Kind(accepted, _within(float(low), float(high)), parse, show, spelling, (low, high))


def _within(low: float, high: float) -> Callable[[object], Any]:
    """Return a check for a number in a range: a whole one if the range is given in whole numbers."""
    integer = isinstance(low, int)

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int if integer else (int, float)):
            raise ValueError(value)  # noqa: TRY004 - one kind of error, here and below
        if not low <= value <= high:
            raise ValueError
        return value if integer else float(value)

    return check


def _quantity(value: object, units: Mapping[str, float]) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError
        return value or 0  # minus zero would be shown with a sign that no source can write
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[2].lower() not in units:
        raise ValueError
    amount = float(found[1]) if "." in found[1] else int(found[1])
    return amount * units[found[2].lower()]


def choice(*names: str) -> Kind:
    """Return the kind for one of some names. If these are members of an enum, the setting's value is the member."""

    def check(value: object) -> str:
        for name in names:
            if name == value:
                return name
        raise ValueError

    return Kind("one of " + ", ".join(names), check)


def switch() -> Kind:
    """Return the kind for on or off. Only TOML's words are read: `1`, `yes` and `on` have other meanings elsewhere."""

    def parse(value: object) -> object:
        return {"true": True, "false": False}.get(value.strip().lower()) if isinstance(value, str) else value

    def check(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)  # noqa: TRY004
        return value

    return Kind("true or false", check, parse, lambda value: str(bool(value)).lower())


def text(most_bytes: int) -> Kind:
    """Return the kind for text on one line."""

    def check(value: object) -> str:
        if not isinstance(value, str) or len(value.encode(errors="replace")) > most_bytes or not value.isprintable():
            raise ValueError
        return value

    return Kind(f"text of at most {most_bytes:,} bytes on one line", check)


def texts(most: int, most_characters: int) -> Kind:
    """Return the kind for a list of texts, none of them empty.

    Text is read as a JSON array if it is one, otherwise as the only element. Text that begins like an array of texts
    must be one, so that an array with a missing quote is not accepted as one text.
    """

    def parse(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return _texts.decode(value)
        except msgspec.ValidationError:
            if value.lstrip().startswith("["):
                raise ValueError from None  # an array, but not of texts
        except (msgspec.DecodeError, UnicodeEncodeError):
            if _ARRAY.match(value):
                raise ValueError from None
        return [value]

    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise ValueError
        for each in value:
            if not isinstance(each, str) or not 1 <= len(each) <= most_characters:
                raise ValueError(each)
            each.encode()  # a lone surrogate is not text; UnicodeEncodeError is a ValueError
        return tuple(value)

    def show(value: tuple[str, ...]) -> str:
        # A JSON string is a TOML string except for the character DEL.
        return "[" + ", ".join(msgspec.json.encode(each).decode().replace("\x7f", "\\u007f") for each in value) + "]"

    accepted = f"at most {most} texts of 1 to {most_characters} characters"
    spelling = ', as an array such as ["One:", "Two:"], or one text alone; [] for none'
    return Kind(accepted, check, parse, show, spelling)


def hosts(most: int) -> Kind:
    """Return the kind for a list of hosts: names or addresses, without a scheme and without a port."""
    listed = texts(most, _HOST_CHARACTERS)

    def check(value: object) -> tuple[str, ...]:
        found: tuple[str, ...] = listed.check(value)
        for each in found:
            if _HOST.fullmatch(each) is None:
                raise ValueError(each)
        return found

    accepted = f"at most {most} names or addresses of hosts, without a scheme and a port"
    spelling = ', as an array such as ["agents.example.com"], or one alone; [] for none'
    return Kind(accepted, check, listed.parse, listed.show, spelling)


def address() -> Kind:
    """Return the kind for a TCP address, or nothing."""

    def check(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(value)  # noqa: TRY004
        if value:
            split_address(value)
        return value

    return Kind("host:port such as 127.0.0.1:7717 or [::1]:0, or empty", check)


def addresses(most: int) -> Kind:
    """Return the kind for a list of TCP addresses."""
    listed = texts(most, _HOST_CHARACTERS + len(":65535"))

    def check(value: object) -> tuple[str, ...]:
        found: tuple[str, ...] = listed.check(value)
        for each in found:
            split_address(each)
        return found

    accepted = f"at most {most} addresses such as host:26379"
    spelling = ', as an array such as ["a.example:26379", "b.example:26379"], or one alone; [] for none'
    return Kind(accepted, check, listed.parse, listed.show, spelling)


def url() -> Kind:
    """Return the kind for the URL of a server, or nothing. Settings are shown, so it must not contain a password."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError(value)
        if value:
            parts = urlsplit(value)
            if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
                raise ValueError
            parts.port  # noqa: B018 - reading it checks it
            parts.hostname.encode("idna")  # as in split_address
        return value

    return Kind("a URL such as http://127.0.0.1:4317, without user and password, or empty", check)


def secret(least_characters: int) -> Kind:
    """Return the kind for a key, which is never shown."""

    def check(value: object) -> str:
        if not isinstance(value, str) or len(value.strip()) < least_characters:
            raise ValueError
        value.encode()  # bytes of the environment that are not text; UnicodeEncodeError is a ValueError
        return value.strip()

    accepted = f"text of at least {least_characters} characters, best 32 random bytes in hex or base64"
    return Kind(accepted, check, show=lambda value: '"…"' if value else '""', secret=True)


def secrets(most: int, least_characters: int) -> Kind:
    """Return the kind for a list of keys, which is never shown. It is read as a list of texts."""
    one, several = secret(least_characters), texts(most, 1_000_000)

    def check(value: object) -> tuple[str, ...]:
        return tuple(one.check(each) for each in several.check(value))

    def parse(value: object) -> object:
        return several.parse(value) if value else ()

    accepted = f"at most {most} texts of at least {least_characters} characters each"
    spelling = ', as an array such as ["One", "Two"], or one text alone; [] for none'
    return Kind(accepted, check, parse, lambda value: '["…"]' if value else "[]", spelling, secret=True)


def split_address(value: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host is in brackets.

    Raises:
        ValueError: it does not have that form, the port is over 65,535, or the host is not a valid name.
    """
    found = _ADDRESS.fullmatch(value)
    if found is None or int(found[2]) > _LAST_PORT:
        raise ValueError(value)
    host = found[1].strip("[]")
    host.encode("idna")  # a UnicodeError is a ValueError; the resolver would raise it
    return host, int(found[2])


def is_loopback(value: str) -> bool:
    """Whether `host:port` can be reached only from this machine; false for any name other than localhost."""
    return is_loopback_host(split_address(value)[0])


def is_loopback_host(host: str) -> bool:
    """Whether a host is only this machine; see `is_loopback`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
