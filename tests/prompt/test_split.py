"""Splitting a whole body: its slices are what the standard library decodes, its rest is left as it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from prompt_sidecar.prompt.body import Split, join_slices, split
from tests.prompt.bodies import Body, bodies, decoded, few, values


def check(raw: bytes, found: Split) -> None:
    """Compare a split with what the standard library decodes."""
    messages, fields = decoded(raw)
    assert messages == [json.loads(found.message(index)) for index in range(len(found))]
    assert fields == {name: json.loads(found.field(name) or b"") for name in found.fields}
    assert found.is_object == isinstance(json.loads(raw), dict)


@few
@given(bodies())
def test_slices_are_what_json_loads_finds(body: Body) -> None:
    """White space, order of members and escapes anywhere: the slow twin is the standard library."""
    found = split(body.raw)
    check(body.raw, found)
    assert list(body.messages) == [found.message(index) for index in range(len(found))]


@few
@given(bodies(elements=values))
def test_elements_of_any_kind(body: Body) -> None:
    """What a message must look like is the format's business; a split takes any JSON."""
    check(body.raw, split(body.raw))


@few
@given(bodies())
def test_head_slices_and_tail_are_the_body(body: Body) -> None:
    """A split loses no byte: head, slices, what stands between them and tail are the body again."""
    found = split(body.raw)
    between = [found.raw[end:start] for end, start in zip(found.ends, found.starts[1:], strict=False)]
    pieces = [found.message(0)]
    for index, gap in enumerate(between, 1):
        pieces += [gap, found.message(index)]
    assert body.raw == found.head + b"".join(pieces) + found.tail
    assert all(gap.strip(b" \t\r\n") == b"," for gap in between)


def test_a_member_that_is_absent() -> None:
    """Asking for a member that is not there gives None, and null is a value."""
    found = split(b'{"messages":[{}],"stop":null}')
    assert None is found.field("model")
    assert b"null" == found.field("stop")


def test_a_member_with_an_escaped_name() -> None:
    """Names are compared decoded: an escaped `messages` is the messages."""
    found = split(b'{"m\\u0065ssages":[1],"mod\\u0065l":"x"}')
    assert b"1" == found.message(0)
    assert b'"x"' == found.field("model")


@pytest.mark.parametrize("slices", [[b"a"], [b"ab", b"", b"c"]])
def test_joined_slices(slices: list[bytes]) -> None:
    """Slices that came apart are the messages of their join."""
    found = join_slices(slices)
    assert slices == [found.message(index) for index in range(len(found))]


def test_joined_slices_know_what_is_the_same() -> None:
    """Slices at the start that are those of the call before are counted, and a longer or shorter one is another."""
    before = join_slices([b"a", b"bb", b"c"])
    cases: list[tuple[list[bytes], Any]] = [
        ([b"a", b"bb", b"c"], 3),
        ([b"a", b"bb", b"c", b"d"], 3),
        ([b"a", b"bb"], 2),
        ([b"a", b"b", b"bc"], 1),
        ([b"ab", b"b"], 0),
        ([b"x", b"bb", b"c"], 0),
    ]
    for slices, expected in cases:
        assert expected == join_slices(slices, before).same


def test_another_member() -> None:
    """The messages may be another member's; one of the usual name is then a member like any other."""
    found = split(b'{"messages":[1],"input":[2,3]}', None, "input")
    assert [b"2", b"3"] == [found.message(index) for index in range(2)]
    assert b"[1]" == found.field("messages")
    again = split(b'{"messages":[1],"input":[2,3,4]}', found, "input")
    assert (2, b"4") == (again.same, again.message(2))


def test_a_string_in_place_of_messages() -> None:
    """Where a format allows it, a plain string is the one message, quotes included."""
    found = split(b'{"a":1,"input": "hi" ,"b":2}', None, "input", text=True)
    assert (b'"hi"', b'{"a":1,"input": ', b' ,"b":2}', True) == (
        found.message(0),
        found.head,
        found.tail,
        found.is_text,
    )
    array = split(b'{"a":1,"input":["hi"],"b":2}', found, "input", text=True)
    assert (0, False) == (array.same, array.is_text)
    assert split(b'{"a":1,"input": "hi","b":2}', array, "input", text=True).is_text


def test_a_member_of_a_member() -> None:
    """A dotted name looks inside; what is not there is None, whatever stands there instead."""
    found = split(b'{"messages":[1],"a":{"b":{"c": 7 },"n":null},"s":"x"}')
    assert (b"7", b"null", b'{"c": 7 }') == (found.field("a.b.c"), found.field("a.n"), found.field("a.b"))
    assert [None] * 5 == [found.field(name) for name in ("a.x", "x.a", "s.a", "a.n.x", "a.b.c.d")]
