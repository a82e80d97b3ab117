"""Edits of JSON: exactly the value at the path changes, every other value keeps its bytes."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.items import Path
from prompt_sidecar.prompt.jsontext import ValuesByPath, splice, value_at
from tests.prompt.bodies import chance, few, spelled, values


def paths(value: Any, here: Path = ()) -> list[Path]:
    """Every path of a value, the empty one included."""
    found = [here]
    if isinstance(value, dict):
        for key, member in value.items():
            found += paths(member, (*here, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            found += paths(element, (*here, index))
    return found


def put(value: Any, path: Path, new: Any) -> Any:
    """The slow twin: a decoded copy with one value changed."""
    if not path:
        return new
    changed = copy.copy(value)
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


def outside(raw: bytes, edits: list[Path], here: Path = ()) -> list[bytes]:
    """The raw bytes of every value that no edit touches, in order."""
    if here in edits:
        return []
    if not any(path[: len(here)] == here for path in edits):
        return [raw]
    if raw[:1] == b"{":
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return [found for key, member in members.items() for found in outside(bytes(member), edits, (*here, key))]
    elements = msgspec.json.decode(raw, type=list[msgspec.Raw])
    return [found for index, value in enumerate(elements) for found in outside(bytes(value), edits, (*here, index))]


@few
@given(value=values, random=chance, data=st.data())
def test_replaces_exactly_the_paths(value: Any, random: Random, data: st.DataObject) -> None:
    """Against the slow twin, and byte for byte where no edit goes."""
    raw = spelled(value, random)
    chosen: list[Path] = []
    for path in data.draw(st.lists(st.sampled_from(paths(value)), max_size=3, unique=True)):
        if not any(path[: len(other)] == other or other[: len(path)] == path for other in chosen):
            chosen.append(path)
    expected = value
    for number, path in enumerate(chosen):
        expected = put(expected, path, f"new {number}")
    edited = splice(raw, {path: b'"new %d"' % number for number, path in enumerate(chosen)})
    assert expected == json.loads(edited)
    assert outside(raw, chosen) == outside(edited, chosen)
    if isinstance(value, dict):
        assert [*json.loads(raw)] == [*json.loads(edited)] or () in chosen


def value_at_slowly(raw: bytes, path: Path) -> bytes:
    """The raw JSON at a path, found from the text's beginning for each path anew."""
    value: bytes | msgspec.Raw = raw
    for step in path:
        value = (
            msgspec.json.decode(value, type=list[msgspec.Raw])[step]
            if isinstance(step, int)
            else msgspec.json.decode(value, type=dict[str, msgspec.Raw])[step]
        )
    return bytes(value)


@few
@given(values, chance, st.data())
def test_value_at(value: Any, random: Random, data: st.DataObject) -> None:
    """The raw JSON at a path decodes to the value there, and stands so in the text."""
    raw = spelled(value, random)
    path = data.draw(st.sampled_from(paths(value)))
    expected = value
    for step in path:
        expected = expected[step]
    found = value_at(raw, path)
    assert expected == json.loads(found)
    assert found in raw


@few
@given(values, chance)
def test_all_values_of_a_text(value: Any, random: Random) -> None:
    """In whatever order they are asked for, they are what each path leads to by itself."""
    raw = spelled(value, random)
    wanted = paths(value)
    random.shuffle(wanted)
    found = ValuesByPath(raw)
    assert [value_at_slowly(raw, path) for path in wanted] == [found.at(path) for path in wanted]


def test_no_edit_no_change() -> None:
    """Without edits the bytes are the ones that came, white space included."""
    raw = b' { "a" : 1 } '
    assert raw is splice(raw, {})


@pytest.mark.parametrize("number", [b"1.50", b"1e3", b"-0.0", b"12345678901234567890123", b"1E+2"])
def test_numbers_keep_their_spelling(number: bytes) -> None:
    """What is not edited is not read, so no number is rounded."""
    raw = b'{"keep":' + number + b',"list":[' + number + b',"x"]}'
    assert raw.replace(b'"x"', b'"y"') == splice(raw, {("list", 1): b'"y"'})


def test_strings_keep_their_escapes() -> None:
    """What is not edited keeps its escapes."""
    raw = b'{"a":"\\u00e9\\/","b":"x","c":["\\u003c"]}'
    assert raw.replace(b'"x"', b'"y"') == splice(raw, {("b",): b'"y"'})
