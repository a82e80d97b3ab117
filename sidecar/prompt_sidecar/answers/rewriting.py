"""Writes a changed value into the JSON of a provider's answer: all other bytes stay the same.

Changes are found by comparing the value with the one that was read. So spellings of numbers and escapes, white space,
and earlier occurrences of duplicate members stay; only changed values are written again. Text and value are walked
together once.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from prompt_sidecar.answers.answer_json import read, write
from prompt_sidecar.prompt.structure import never

_SPACE: Final = re.compile(rb"[ \t\r\n]*+")
_INSIDE: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""The content of a string, as far as it is searched at once: the string's end, or more of it, follows."""
_MARK: Final = re.compile(rb'["{}\[\]]')
_AT_ONCE: Final = 1_048_576
"""Bytes that are searched at once, in some milliseconds, during which no other thread runs."""
_OTHER: Final = re.compile(rb"[^ \t\r\n,\]}]++")
_COLON: Final = re.compile(rb"[ \t\r\n]*+:[ \t\r\n]*+")
_COMPARED_WHOLE: Final = 8
"""Levels at which containers are compared as a whole before they are walked. Deeper ones are only walked, so that the
work does not grow with the depth."""
_LOOKED_AHEAD: Final = 64
"""Elements that are searched for the one that another element was made from."""


def rewritten(raw: bytes, value: Any, check: Callable[[], None] = never) -> bytes:
    """Return JSON text with another value.

    Args:
        raw: JSON text that `answer_json.read` can read.
        value: the result of `read` for it, changed.
        check: called between two steps of a long text; an exception from it ends the work.
    """
    try:
        return _Text(raw, check).made(read(raw, check), value)
    except (_Unlike, RecursionError):
        return write(value)


class _Unlike(Exception):
    """The text is not the one that the value was read from."""


class _Text:
    def __init__(self, raw: bytes, check: Callable[[], None]) -> None:
        self._raw = raw
        self._check = check

    def made(self, old: Any, new: Any) -> bytes:
        """Return the text, which was read as `old`, with the value `new`."""
        begins = self._space(len(BOM_UTF8) if self._raw.startswith(BOM_UTF8) else 0)
        made, end = self._value(begins, old, new, 0)
        return self._raw[:begins] + made + self._raw[end:]

    def _value(self, at: int, old: Any, new: Any, depth: int) -> tuple[bytes, int]:
        """Return the bytes for a changed value at an offset, and where the old value ends."""
        sign = self._raw[at : at + 1]
        is_object = isinstance(old, dict) and isinstance(new, dict) and sign == b"{"
        is_array = isinstance(old, list) and isinstance(new, list) and sign == b"["
        if (is_object or is_array) and (depth >= _COMPARED_WHOLE or old != new):
            return (self._object if is_object else self._array)(at, old, new, depth + 1)
        end = self._end(at)
        return (self._raw[at:end] if _same(old, new) else write(new)), end

    def _object(self, begins: int, old: Any, new: Any, depth: int) -> tuple[bytes, int]:
        kept: list[bytes] = []
        places: dict[str, tuple[int, bytes]] = {}
        """For the last member with a name: its index in `kept`, and its original bytes."""
        at = begins + 1
        while self._raw[(first := self._space(at)) : first + 1] != b"}":
            if self._raw[first : first + 1] != b'"':
                raise _Unlike
            key_end = self._string_end(first + 1)
            colon = _COLON.match(self._raw, key_end)
            if colon is None:
                raise _Unlike
            name = read(self._raw[first:key_end])
            if name in old and name in new:
                made, end = self._value(colon.end(), old[name], new[name], depth)
            else:
                made, end = b"", self._end(colon.end())
            comma = self._space(end)
            if name in new:
                before = places.get(name)
                if before is not None:  # readers use the last one
                    kept[before[0]] = before[1]
                places[name] = len(kept), self._raw[at:comma]
                kept.append(self._raw[at : colon.end()] + made + self._raw[end:comma])
            at = comma
            if self._raw[at : at + 1] != b",":
                break
            at += 1
        added = [write(name) + b":" + write(value) for name, value in new.items() if name not in places]
        return self._closed(begins, kept + added, at, b"}")

    def _array(self, begins: int, old: Any, new: Any, depth: int) -> tuple[bytes, int]:
        if len(old) == len(new):
            kept, at = self._each(begins, old, new, depth)
        else:
            places, at = self._places(begins)
            if len(places) != len(old):
                raise _Unlike
            kept = [
                write(value) if index is None else self._element(places[index], old[index], value, depth)
                for value, index in zip(new, _origins(old, new), strict=True)
            ]
        return self._closed(begins, kept, at, b"]")

    def _each(self, begins: int, old: Sequence[Any], new: Sequence[Any], depth: int) -> tuple[list[bytes], int]:
        """Return the elements of an array of unchanged length, and where they end."""
        kept: list[bytes] = []
        at = begins + 1
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            first = self._space(at)
            made, end = self._value(first, one, other, depth)
            comma = self._space(end)
            kept.append(self._raw[at:first] + made + self._raw[end:comma])
            at = comma
            if index + 1 < len(old):
                if self._raw[at : at + 1] != b",":
                    raise _Unlike
                at += 1
        return kept, at

    def _element(self, place: tuple[int, int], old: Any, new: Any, depth: int) -> bytes:
        first = self._space(place[0])
        made, end = self._value(first, old, new, depth)
        return self._raw[place[0] : first] + made + self._raw[end : place[1]]

    def _places(self, begins: int) -> tuple[list[tuple[int, int]], int]:
        """Return where the elements of an array are, white space included, and where they end."""
        places: list[tuple[int, int]] = []
        at = begins + 1
        while self._raw[(first := self._space(at)) : first + 1] != b"]":
            comma = self._space(self._end(first))
            places.append((at, comma))
            at = comma
            if self._raw[at : at + 1] != b",":
                break
            at += 1
        return places, at

    def _closed(self, begins: int, kept: Sequence[bytes], at: int, bracket: bytes) -> tuple[bytes, int]:
        """Return a container of the kept elements, and where it ended."""
        end = self._space(at)
        if self._raw[end : end + 1] != bracket:
            raise _Unlike
        empty = self._raw[at:end] if not kept else b""
        return self._raw[begins : begins + 1] + b",".join(kept) + empty + bracket, end + 1

    def _space(self, at: int) -> int:
        found = _SPACE.match(self._raw, at)
        assert found is not None  # it matches anywhere
        return found.end()

    def _end(self, at: int) -> int:
        """Return where the value at an offset ends."""
        sign = self._raw[at : at + 1]
        if sign == b'"':
            return self._string_end(at + 1)
        if sign in (b"{", b"["):
            return self._container_end(at)
        other = _OTHER.match(self._raw, at)
        if other is None:
            raise _Unlike
        return other.end()

    def _container_end(self, at: int) -> int:
        """Return where an object or an array that begins at an offset ends."""
        depth, checked = 0, at
        while at < len(self._raw):
            found = _MARK.search(self._raw, at, at + _AT_ONCE)
            if found is None:
                at += _AT_ONCE
                continue
            sign, at = found[0], found.end()
            if sign == b'"':
                at = self._string_end(at)
            else:
                depth += 1 if sign in (b"{", b"[") else -1
            if not depth:
                return at
            if at - checked >= _AT_ONCE:
                checked = at
                self._check()
        raise _Unlike

    def _string_end(self, at: int) -> int:
        """Return where a string ends, behind its quotation mark; `at` is inside it, but not inside an escape."""
        while True:
            found = _INSIDE.match(self._raw, at, at + _AT_ONCE)
            end = at if found is None else found.end()
            if self._raw[end : end + 1] == b'"':
                return end + 1
            if end == at or end >= len(self._raw):
                raise _Unlike
            at = end
            self._check()


def _same(old: Any, new: Any) -> bool:
    """Whether two values are the same in JSON, in which `true` is not a number."""
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _origins(old: Sequence[Any], new: Sequence[Any]) -> Iterator[int | None]:
    """Map each new element, in order, to the index of the old element that it was made from, or None."""
    at = 0
    for value in new:
        ahead = range(at, min(at + _LOOKED_AHEAD, len(old)))
        found = next((index for index in ahead if old[index] == value), None)
        if found is None:
            found = next((index for index in ahead if _resembles(old[index], value)), None)
        yield found
        at = at if found is None else found + 1


def _resembles(old: Any, new: Any) -> bool:
    """Whether one object may be a changed version of the other: they have the same id, name or index."""
    if not isinstance(old, dict) or not isinstance(new, dict) or old.keys().isdisjoint(new):
        return False
    marks = [name for name in ("id", "call_id", "toolUseId", "index", "name") if name in old and name in new]
    if marks:
        return bool(old[marks[0]] == new[marks[0]])
    return any(_resembles(value, new[name]) for name, value in old.items() if isinstance(value, dict) and name in new)
