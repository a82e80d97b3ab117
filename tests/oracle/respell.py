"""The same JSON in the spelling of other languages' serialisers, as agents send it that parse and re-write it.

A spelling may change escapes, white space, the order of keys and how a number is written; decoded, with numbers read as
IEEE 754 doubles, it is the same value. Sources: .NET System.Text.Json (JavaScriptEncoder.Default), Go encoding/json,
ECMA-262 (JSON.stringify, Number::toString, order of integer keys), Python json.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_INTEGER_KEY = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
_LARGEST_INDEX = 2**32 - 2


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Spelling:
    escape: Callable[[str], str]
    number: Callable[[_Number], str]
    keys: Callable[[Iterable[str]], list[str]]
    comma: str = ","
    colon: str = ":"


def csharp(body: bytes) -> bytes:
    """As System.Text.Json writes a JsonNode: ASCII only, quotes, `& + < >` and backticks as escapes, numbers kept."""
    return _respell(body, _Spelling(_escape_csharp, str, list))


def go(body: bytes) -> bytes:
    """As encoding/json writes a map[string]any: keys sorted, `< > &` and U+2028/9 escaped, numbers as float64."""
    return _respell(body, _Spelling(_escape_go, lambda number: _double(number, keep_minus_zero=True), _sorted_keys))


def javascript(body: bytes) -> bytes:
    """As JSON.stringify(JSON.parse(body)): numbers as doubles, integer keys first, nothing escaped that need not be."""
    return _respell(body, _Spelling(_escape_javascript, _double, _javascript_keys))


def python_default(body: bytes) -> bytes:
    """As json.dumps with no options: ASCII, a space after comma and colon."""
    return json.dumps(json.loads(body)).encode()


def python_unicode(body: bytes) -> bytes:
    """As json.dumps(ensure_ascii=False): a lone surrogate cannot be written so and stays escaped."""
    return _dumps_unicode(json.loads(body), None)


def python_indented(body: bytes) -> bytes:
    """As json.dumps(indent=2, ensure_ascii=False)."""
    return _dumps_unicode(json.loads(body), 2)


def shuffled(body: bytes, seed: int) -> bytes:
    """With the keys of every object in an order drawn by chance, as serialisers of unordered maps write them."""
    return json.dumps(_shuffled(json.loads(body), random.Random(seed))).encode()


def _shuffled(value: object, chance: random.Random) -> object:
    if isinstance(value, list):
        return [_shuffled(inner, chance) for inner in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    chance.shuffle(keys)
    return {key: _shuffled(value[key], chance) for key in keys}


SPELLINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "csharp": csharp,
    "go": go,
    "javascript": javascript,
    "python_default": python_default,
    "python_unicode": python_unicode,
    "python_indented": python_indented,
}
"""Every spelling by name."""


def _respell(body: bytes, spelling: _Spelling) -> bytes:
    tree = json.loads(body, parse_int=_Number, parse_float=_Number)
    return "".join(_write(tree, spelling)).encode("utf-8")


def _write(value: object, spelling: _Spelling) -> Iterable[str]:
    if value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, _Number):
        yield spelling.number(value)
    elif isinstance(value, str):
        yield f'"{spelling.escape(value)}"'
    elif isinstance(value, dict):
        yield "{"
        for place, key in enumerate(spelling.keys(value)):
            yield f'{spelling.comma if place else ""}"{spelling.escape(key)}"{spelling.colon}'
            yield from _write(value[key], spelling)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for place, inner in enumerate(value):
            if place:
                yield spelling.comma
            yield from _write(inner, spelling)
        yield "]"
    else:  # pragma: no cover - json.loads makes nothing else (NaN and the infinities are not JSON)
        raise ValueError(f"not JSON: {type(value).__name__}")


def _units(char: str, form: str) -> str:
    """Spell a character as its UTF-16 code units."""
    data = char.encode("utf-16-be", "surrogatepass")
    return "".join(form.format(data[place] << 8 | data[place + 1]) for place in range(0, len(data), 2))


def _escape_csharp(text: str) -> str:
    def one(char: str) -> str:
        if char != '"' and char in _SHORT:
            return _SHORT[char]
        if " " <= char <= "~" and char not in "\"&'+<>`":
            return char
        return _units(char, "\\u{:04X}")

    return "".join(map(one, text))


def _escape_go(text: str) -> str:
    def one(char: str) -> str:
        if char in _SHORT:
            return _SHORT[char]
        if char < " " or char in "<>&\u2028\u2029":
            return _units(char, "\\u{:04x}")
        # A lone surrogate becomes U+FFFD on the way through Go.
        return "\ufffd" if "\ud800" <= char <= "\udfff" else char

    return "".join(map(one, text))


def _escape_javascript(text: str) -> str:
    def one(char: str) -> str:
        if char in _SHORT:
            return _SHORT[char]
        return _units(char, "\\u{:04x}") if char < " " or "\ud800" <= char <= "\udfff" else char

    return "".join(map(one, text))


def _sorted_keys(keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: key.encode("utf-8", "surrogatepass"))


def _javascript_keys(keys: Iterable[str]) -> list[str]:
    written = list(keys)
    indices = [key for key in written if _INTEGER_KEY.match(key) and int(key) <= _LARGEST_INDEX]
    return sorted(indices, key=int) + [key for key in written if key not in set(indices)]


def _double(number: _Number, *, keep_minus_zero: bool = False) -> str:
    """Spell a number as ECMA-262's Number::toString does, from the shortest digits that read back the same."""
    value = float(number)
    if value == 0:
        return "-0" if keep_minus_zero and str(number).startswith("-") else "0"
    digits_and_exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, digits_and_exponent.digits))
    exponent = digits_and_exponent.exponent
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    sign = "-" if value < 0 else ""
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def _dumps_unicode(value: object, indent: int | None) -> bytes:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found.group()):04x}", text).encode()
