"""What stands outside the strings of a JSON text, against a walk over its characters; and what is refused for it."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidJson, TooLarge
from prompt_sidecar.prompt import structure
from prompt_sidecar.prompt.body import MAX_NAME, split
from prompt_sidecar.prompt.jsontext import load
from prompt_sidecar.prompt.members import Members
from prompt_sidecar.prompt.structure import (
    FREE_BYTES,
    MAX_MEMBERS,
    MEMBER_LEAST,
    SLICE_LEAST,
    Shape,
    are_more,
    check_decoding,
    check_slices,
    members_of_object,
    shape,
)
from tests.steps import growth

MEGABYTE = 1_000_000


def walked(raw: bytes) -> Shape:
    """The slow twin: a byte at a time."""
    inside = escaped = False
    counts = dict.fromkeys(b',:[{"', 0)
    for byte in raw:
        if escaped:
            escaped = False
        elif byte == ord("\\") and inside:
            escaped = True
        elif byte == ord('"'):
            inside = not inside
            counts[byte] += 1
        elif not inside and byte in counts:
            counts[byte] += 1
    commas, colons, lists, dicts, quotes = counts.values()
    return Shape(commas, colons, lists, dicts, quotes // 2)


_keys = st.text(alphabet='ab":\\,', max_size=4)
_json = st.recursive(
    st.none() | st.integers(-9, 99) | st.text(alphabet='a":,[]{}\\ é\n', max_size=12),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@given(_json, st.integers(1, 40), st.sampled_from([0, 1, 256]))
def test_against_a_walk(value: object, window: int, few: int) -> None:
    """Windows of any size find what a walk does, escapes at their ends included, however their marks are found."""
    raw = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "WINDOW", window)
        patch.setattr(structure, "FEW_QUOTES", few)
        found = shape(raw)
        assert walked(raw) == found._replace(within=())
        assert found == shape(memoryview(raw))


@given(st.dictionaries(_keys, _json, max_size=6), st.integers(1, 40))
def test_members_are_those_of_the_outermost_object(value: dict[str, object], window: int) -> None:
    """Windows of any size count as many members as the decoded object has."""
    raw = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "WINDOW", window)
        assert len(value) == members_of_object(raw, "x")


LISTS = b"[" + b"[]," * MEGABYTE + b"[]]"
MANY: Mapping[str, bytes] = {
    "lists": LISTS,
    "objects": b"[" + b"{}," * MEGABYTE + b"{}]",
    "numbers": b"[" + b"1," * 2 * MEGABYTE + b"1]",
    "strings": b"[" + b'"",' * MEGABYTE + b'""]',
    "pairs": b"[" + b'{"a":1},' * (MEGABYTE // 4) + b"{}]",
}


@pytest.mark.parametrize("raw", MANY.values(), ids=MANY.keys())
def test_small_values_are_refused(raw: bytes) -> None:
    """A text that would take many times its bytes is refused before it is decoded; the error names bound and field."""
    with pytest.raises(TooLarge, match="small values") as refused:
        load(raw, "json.body.messages[3]")
    assert ("json.decoded_bytes", "json.body.messages[3]") == (refused.value.bound, refused.value.field)


@pytest.mark.parametrize("raw", MANY.values(), ids=MANY.keys())
def test_so_they_are_in_a_body(raw: bytes) -> None:
    """Neither as messages nor in another member are they taken apart."""
    with pytest.raises(TooLarge):
        split(raw * 2 if raw.count(b",") < MEGABYTE // 2 else raw)

    def of_tools() -> None:
        load(split(b'{"tools":' + raw + b',"messages":[{}]}').field("tools") or b"", "json.body.tools")

    with pytest.raises(TooLarge):
        of_tools()


ESTIMATED: Mapping[str, Callable[[], object]] = {
    "lists": lambda: [[] for _ in range(100_000)],
    "objects": lambda: [{"a": {"b": 1}} for _ in range(50_000)],
    "numbers": lambda: list(range(1_000, 200_000)),
    "strings": lambda: [f"{number:07}" for number in range(100_000)],
    "rows": lambda: [{"id": f"{number:07}", "values": [number + 0.5]} for number in range(50_000)],
}


@pytest.mark.parametrize("made", ESTIMATED.values(), ids=ESTIMATED.keys())
def test_the_estimate(made: Callable[[], object]) -> None:
    """What decoding takes is estimated: at least four fifths of it, and at most twice as much."""
    raw = orjson.dumps(made())
    tracemalloc.start()
    value = orjson.loads(raw)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value
    assert 0.8 * taken <= shape(raw).decoded_bytes + len(raw) // 2 <= 2 * taken


TEXTS: Mapping[str, Callable[[int], str]] = {
    "words": lambda size: "words, and more words: [some] {of} them\n" * (size // 40),
    "JSON in a string": lambda size: '{"id": 1, "values": [1, 2, 3]}, ' * (size // 32),
    "quotation marks": lambda size: '"' * size,
    "backslashes": lambda size: "\\" * size,
    "a quoted colon": lambda size: '\\":' + "a" * size,
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_not_refused(name: str) -> None:
    """However many commas and brackets a text holds, it is one string, and decodes to itself."""
    text = TEXTS[name](2 * MEGABYTE)
    raw = orjson.dumps({"role": "tool", "content": text})
    assert text == load(raw, "x")["content"]
    check_slices(raw, "x")


_LOADING: Final = """
import sys, orjson
from prompt_sidecar.prompt.jsontext import load
from tests.prompt.test_structure import TEXTS, resident
raw = orjson.dumps({"role": "tool", "content": TEXTS[sys.argv[1]](8_000_000)})
raw = raw.replace(b'"role":', b'"role" : ', 1) if sys.argv[2] == "True" else raw
before = resident("VmRSS")
value = load(raw, "x")
print((resident("VmHWM") - before) / len(raw))
"""


def resident(name: str) -> int:
    """Bytes of this process's memory, by the kernel's name for the figure."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith(name))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells a process's memory there")
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("spaced", [False, True])
def test_memory_beside_a_text(name: str, spaced: bool) -> None:
    """Decoding takes at most three times the bytes of a text in addition, however it is spelled."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADING, name, str(spaced)], capture_output=True, check=True, text=True
    )
    assert float(done.stdout) <= 3


def test_a_table_is_taken() -> None:
    """A megabyte of small objects is structure that agents send."""
    rows = [{"id": number, "name": "x", "value": 1.5} for number in range(30_000)]
    raw = orjson.dumps({"role": "tool", "content": rows})
    assert len(raw) > MEGABYTE
    assert shape(raw).decoded_bytes < FREE_BYTES
    assert rows == load(raw, "x")["content"]


def test_long_names() -> None:
    """A member's name of any length is refused by a bound; the longest that is accepted is read."""
    short = b'{"%s": 1, "messages": [{}]}' % (b"a" * (MAX_NAME - 5))
    assert {"a" * (MAX_NAME - 5)} == set(split(short).fields)
    for name in (b"a" * MAX_NAME, b"a" * MEGABYTE, b'\\"' * MEGABYTE, b"a\\u0062" * MEGABYTE):
        with pytest.raises(TooLarge) as refused:
            split(b'{"%s":1,"messages":[{}]}' % name)
        assert "json.member_name" == refused.value.bound


@pytest.mark.parametrize(
    "raw", [b'{"a" :":","a" :1}', b'{"a"\n:1,"a":2}', b'{"a\\\\":1,"a\\\\":2}', b'{"a": {"b":1 , "b" : "\\":"}}']
)
def test_keys_twice(raw: bytes) -> None:
    """A key twice is found wherever its colon stands and whatever strings hold."""
    with pytest.raises(InvalidJson, match="twice"):
        load(raw, "x")


@given(_json)
def test_no_key_twice(value: object) -> None:
    """No text that holds each key once is refused."""
    for option in (orjson.OPT_INDENT_2, 0):
        raw = orjson.dumps({"a": value}, option=option).replace(b'":', b'" :', 1)
        try:
            orjson.loads(raw)
        except orjson.JSONDecodeError:
            continue
        assert {"a": value} == load(raw, "x") or b'" :' in orjson.dumps(value)


def test_steps_grow_with_the_text() -> None:
    """Four times the text takes four times the steps."""
    assert growth(lambda size: load(b'{ "a" : "%s" }' % (b'\\"\\\\' * size), "x"), 200_000) <= 5
    check_decoding(b"", "x")


def test_members_are_bounded() -> None:
    """Each takes time before the deadline is looked at: a body of hundreds of thousands is refused."""

    def of(number: int) -> bytes:
        return b'{"messages":[1],' + b",".join(b'"m%d":1' % each for each in range(number - 1)) + b"}"

    assert MAX_MEMBERS - 1 == len(split(of(MAX_MEMBERS)).fields)
    with pytest.raises(TooLarge) as refused:
        split(of(MAX_MEMBERS + 1))
    assert ("json.members", "json.body") == (refused.value.bound, refused.value.field)


def many_members(number: int) -> bytes:
    """A body with so many members besides its messages."""
    return b'{"messages":[1],' + b",".join(b'"m%d":1' % each for each in range(number)) + b"}"


@pytest.mark.parametrize("read", [split, Members], ids=["prompt", "request of a door"])
def test_many_members_are_refused_before_they_are_decoded(read: Callable[[bytes], object]) -> None:
    """Nothing interrupts the decoder, which takes a fifth of a second for as many, and twenty times their bytes."""
    raw = many_members(300_000)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge) as refused:
            read(raw)
        assert tracemalloc.get_traced_memory()[1] < len(raw)
    finally:
        tracemalloc.stop()
    assert "json.members" == refused.value.bound


def test_a_long_name_is_refused_before_it_is_decoded() -> None:
    """The decoder would copy it."""
    raw = b'{"%s":1,"messages":[1]}' % (b"a" * 5 * MEGABYTE)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge) as refused:
            split(raw)
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()
    assert "json.member_name" == refused.value.bound


@pytest.mark.parametrize("unit", [(b"[:", b"]"), (b"[", b"]:"), (b"{:{", b"}:}")])
def test_brackets_that_are_nested_oddly_are_counted_in_linear_time(unit: tuple[bytes, bytes]) -> None:
    """Where they take long one by one, they are refused."""
    opening, closing = unit

    def count(size: int) -> None:
        with suppress(TooLarge):
            members_of_object((opening * 40 + closing * 40) * size, "x")

    assert growth(count, 1_000) <= 5
    with pytest.raises(TooLarge) as refused:
        members_of_object((b"[:" * 40 + b"]" * 40) * 10_000, "json.body")
    assert ("json.members", "json.body") == (refused.value.bound, refused.value.field)


@given(
    numbers=st.lists(st.integers(0, 99) | st.text(alphabet=",:", max_size=9), max_size=60),
    most=st.integers(0, 60),
    window=st.integers(1, 40),
)
def test_what_is_counted_is_what_could_be_too_much(numbers: list[Any], most: int, window: int) -> None:
    """No text with more elements or members passes uncounted, and none is looked at that has no more of the mark."""
    objects = {f"{number}": each for number, each in enumerate(numbers)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structure, "WINDOW", window)
        for value, mark, least in ((numbers, b",", SLICE_LEAST), (objects, b":", MEMBER_LEAST)):
            raw = orjson.dumps(value)
            counted = are_more(raw, mark, most, least)
            assert counted or len(numbers) <= most + 1
            assert not counted or raw.count(mark) > most
