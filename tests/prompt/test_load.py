"""Strict reading: refuses what two parsers could read differently, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt import jsontext
from prompt_sidecar.prompt.jsontext import WRITTEN_BYTES, decoded_once, load, raise_if_out_of_memory
from tests.prompt.bodies import chance, few, spelled, texts, values
from tests.prompt.reading import fault


class Twice(Exception):
    """A key is written twice."""


def _pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Twice
    return found


def slow(raw: bytes) -> Any:
    """The slow twin: the standard library, told of each pair."""
    return json.loads(raw, object_pairs_hook=_pairs)


@few
@given(values, chance)
def test_reads_what_the_standard_library_reads(value: Any, random: Random) -> None:
    """Valid JSON is never refused, however it is spelled."""
    raw = spelled(value, random)
    assert slow(raw) == load(raw, "f")


class Pairs(list[tuple[str, Any]]):
    """An object as pairs, so that a key may stand twice."""


trees: st.SearchStrategy[Any] = st.recursive(
    texts | st.integers(0, 9) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(
            st.tuples(st.sampled_from(["a", "b", "a\\", "\\", '"', 'a":', ":", "é", ""]), inner), max_size=4
        ).map(Pairs)
    ),
    max_leaves=10,
)


_SPACES = (b"", b"", b"", b" ", b"\n")


def written(value: Any, random: Random) -> bytes:
    """JSON of a tree; each string with a spelling of its own."""
    if isinstance(value, Pairs):
        return (
            b"{"
            + b",".join(written(k, random) + random.choice(_SPACES) + b":" + written(v, random) for k, v in value)
            + b"}"
        )
    if isinstance(value, list):
        return b"[" + b",".join(written(element, random) for element in value) + b"]"
    if isinstance(value, str) and random.random() < 0.3:
        units = value.encode("utf-16-be")
        return b'"' + b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2)) + b'"'
    return json.dumps(value, ensure_ascii=random.random() < 0.5).encode()


@given(trees, chance)
def test_a_key_twice_is_refused_and_nothing_else(value: Any, random: Random) -> None:
    """Escaped keys that decode alike, space before the colon, backslashes at the end: as the slow twin says."""
    raw = written(value, random)
    try:
        expected = slow(raw)
    except Twice:
        with pytest.raises(InvalidJson) as caught:
            load(raw, "json.body.messages[3]")
        assert "json.body.messages[3]" == caught.value.field
    else:
        assert expected == load(raw, "f")


@given(trees, chance, st.booleans())
def test_long_texts_are_read_alike(value: Any, random: Random, view: bool) -> None:
    """They are never written again: the structure of the text tells the keys."""
    raw = written(value, random)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "WRITTEN_BYTES", 0)
        try:
            expected = slow(raw)
        except Twice:
            with pytest.raises(InvalidJson, match="twice"):
                load(memoryview(raw) if view else raw, "f")
        else:
            assert expected == load(memoryview(raw) if view else raw, "f")


def test_a_long_text_is_decoded_once_while_that_is_asked_for() -> None:
    """The same text gives the same value, another one its own, and afterwards nothing is kept."""
    one, two = (b'["%s"]' % (letter * WRITTEN_BYTES) for letter in (b"a", b"b"))
    with decoded_once():
        first = load(one, "f")
        assert first is load(one, "f")
        assert first == load(bytes(bytearray(one)), "f")  # as long, and alike, but not the same
        assert load(two, "f") is load(two, "f")
        assert first is not load(one, "f")
    assert load(one, "f") is not load(one, "f")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":1}',
        b'{"a" :1,"a":1}',
        b'{"a"\t:1,"a"\n:1}',
        b'{"a\\\\":1,"a\\\\":2}',
        b'{"a\\"":1,"a\\u0022":2}',
        b'{"x\\\\":1,"b":2,"b":3}',
        b'{"b":2,"x\\\\":1,"b":3}',
        b'{"":1,"":2}',
        b'[[{"k":{"a":1,"a":2}}]]',
        b'{"a":{"b":1},"c":[{"d":":","d":1}]}',
        b'{"a":":","a":"\\":"}',
        '{"é":1,"\\u00e9":1}'.encode(),
        '{"🙂":1,"\\ud83d\\ude42":1}'.encode(),
    ],
)
def test_double_keys(raw: bytes) -> None:
    """A key twice, at any depth and in any spelling."""
    with pytest.raises(InvalidJson, match="twice"):
        load(raw, "f")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":":"}',
        b'{":":":","\\":":"\\":"}',
        b'{"a\\\\":1,"a":2}',
        b'{"a\\\\":"b\\\\","b\\\\\\"":3}',
        b'{"a":"{\\"a\\":1,\\"a\\":2}"}',
        b'{"a" : {"a" : {"a" : 1}}}',
        b'[":",":"]',
        b'"a:b"',
        b'{"A":1,"a":2}',
        '{"é":1,"e\\u0301":2}'.encode(),
    ],
)
def test_single_keys(raw: bytes) -> None:
    """Colons, quotes and backslashes in strings make no key."""
    assert json.loads(raw) == load(raw, "f")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"NaN",
        b'{"a":NaN}',
        b"[Infinity]",
        b"-Infinity",
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'{"\\ud800":1}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'"a\nb"',
        b'"\\x41"',
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"[1,]",
        b"{,}",
        b"'a'",
        b"1 2",
        b"tru",
        b"\xef\xbb\xbf1",
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_not_strict_json(raw: bytes) -> None:
    """NaN, lone surrogates, broken UTF-8 and the rest are refused by the field's name."""
    with pytest.raises(InvalidJson) as caught:
        load(raw, "json.body.tools")
    assert "json.body.tools" == caught.value.field


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [10, 200, 490, 600, 900, 1_000, 1_024, 1_025, 5_000])
def test_any_depth_is_read_or_refused(depth: int, opening: str) -> None:
    """However deep, the answer is the value or the tree's own error, never one of the interpreter."""
    raw = (opening * depth + "1" + {"[": "]", '{"a":': "}"}[opening] * depth).encode()
    found: list[Any] = []
    assert fault(lambda: found.append(load(raw, "f"))) in (None, "f")
    for value in found:
        inner = value
        for _ in range(depth):
            inner = inner[0] if opening == "[" else inner["a"]
        assert 1 == inner


@few
@given(st.binary(max_size=30) | st.text(max_size=30).map(str.encode))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """No bytes raise anything but InvalidJson."""
    assert fault(lambda: load(raw, "f")) in (None, "f")


def test_no_text_in_messages() -> None:
    """An error holds no text of what it read."""
    for raw in (b'{"secret":1,"secret":2}', b'"secret\xff"', b'{"secret" 1}', b"[secret]"):
        with pytest.raises(InvalidJson) as caught:
            load(raw, "f")
        assert "secret" not in caught.value.message


def test_a_lack_of_memory_is_no_fault_of_the_text() -> None:
    """The library tells it as an error of decoding; it must not become one, or the agent would never try again."""
    with pytest.raises(MemoryError):
        raise_if_out_of_memory(orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0))
    raise_if_out_of_memory(orjson.JSONDecodeError("unexpected character", "", 0))


@pytest.mark.parametrize(
    ("members", "accepted"),
    [('"a":1,"b":2', True), ('"a":1,"a":2', False), ('"b":{"c":1,"c":2}', False), ('"b":{"a":[{"b":1}]}', True),
     (f'"b":{"[" * 252}{"]" * 252}', True), (f'"b":{"[" * 254}{"]" * 254}', False)],
    ids=["single", "double", "inner", "nested", "deep", "too deep"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["plain", '\\":', 'say \\"x\\": y'])
def test_a_long_text_is_judged_as_a_short_one(members: str, text: str, accepted: bool) -> None:
    """Its keys are counted, where a short one is written again for comparison."""
    for times in (1, WRITTEN_BYTES // len(text) + 1):
        raw = f'{{"t":"{text * times}",{members}}}'.encode()
        try:
            assert orjson.loads(raw) == load(raw, "f")
            found = True
        except InvalidJson:
            found = False
        assert accepted == found
