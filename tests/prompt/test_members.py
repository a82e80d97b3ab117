"""A body's members as they came."""

from __future__ import annotations

import pytest

from prompt_sidecar.prompt.members import Members, NotJson, elements, loads

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
