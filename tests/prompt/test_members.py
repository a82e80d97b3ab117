"""A body's members as they came."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.prompt.body import Split, members_after, split
from prompt_sidecar.prompt.members import Members, NotJson, elements, loads
from tests.prompt.bodies import bodies, few, messages, values
from tests.prompt.test_split_again import PIECES, TAILS, changed, fields

HALF = b'"half of \\ud83d"'
WHOLE = b'"all of \\ud83d\\ude42"'


def test_half_a_character_stays() -> None:
    """Members and elements are the bytes that came, whatever else is changed."""
    raw = b'{ "a" :' + HALF + b', "b": [' + HALF + b" ,1, " + WHOLE + b', {"c":' + HALF + b'}],"d":{}}'
    members = Members(raw)
    assert HALF == members.raw("a")
    assert [HALF, b"1", WHOLE, b'{"c":' + HALF + b"}"] == elements(members.raw("b"))
    assert raw == members.bytes()
    members.set("d", b"2")
    assert b'{"a":' + HALF + b',"b":' + members.raw("b") + b',"d":2}' == members.bytes()


def test_it_is_read_as_the_replacement_character() -> None:
    """What is looked at has text."""
    assert "half of \ufffd" == loads(HALF)
    assert {"c": "half of \ufffd"} == loads(b'{"c":' + HALF + b"}")


@pytest.mark.parametrize("rest", [b"", b",", b":1", b"]", b'}"'])
def test_what_is_no_object_with_half_a_character(rest: bytes) -> None:
    """It is told from one, and an array has no elements."""
    with pytest.raises(NotJson):
        Members(b'{"a":' + HALF + rest)
    assert [] == elements(b"[" + HALF + rest.replace(b"]", b"}"))
    assert loads(b"{" + HALF) is None


def _read(raw: bytes, before: Split | None = None) -> bytes | None:
    """All members as they would be sent on with one changed; None: it is no object."""
    try:
        members = Members(raw, before, "messages")
    except NotJson:
        return None
    members.set("model", b"0")
    return members.bytes()


@few
@given(st.data())
def test_after_another_body_they_are_the_same(data: st.DataObject) -> None:
    """However the next body differs from the one before, and with a head of its own: as if there were none before."""
    body = replace(data.draw(bodies(elements=messages | values)), is_object=True)
    for _ in range(3):
        head = replace(body, fields_before=data.draw(fields()), fields_after=())
        before = split(data.draw(st.sampled_from((body, head))).raw)
        body = replace(data.draw(changed(body)), is_object=True)
        assert _read(body.raw) == _read(body.raw, before)
        raw = bytearray(body.raw)
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(PIECES))
        assert _read(bytes(raw)) == _read(bytes(raw), before)


@pytest.mark.parametrize("tail", TAILS, ids=[str(number) for number in range(len(TAILS))])
def test_what_follows_the_messages_before_is_read_strictly(tail: bytes) -> None:
    """As strictly as the whole body."""
    before = split(b'{"tools":[1],"messages":[{"role":"user","content":"a"}]}')
    raw = b'{"model":"x","messages":[ {"role":"user","content":"a"}' + tail
    assert _read(raw) == _read(raw, before)


def test_messages_of_the_body_before_are_not_read_again() -> None:
    """Where only the head and the end are new; not where the same text is elsewhere."""
    before = split(b'{"tools":[1,2],"messages":[{"role":"user"},2],"stream":true}')
    raw = b'{"model":"x","messages": [ {"role":"user"},2 , {"b":3} ] ,"stream":false}'
    found = members_after(raw, before, "messages")
    assert found is not None
    assert {
        "model": b'"x"',
        "messages": b'[ {"role":"user"},2 , {"b":3} ]',
        "stream": b"false",
    } == {name: bytes(value) for name, value in found.items()}
    for other in (b'{"x":[{"role":"user"},2],"messages":[1]}', b'{"x":"[{","messages":[{"role":"user"}2]}'):
        assert members_after(other, before, "messages") is None
