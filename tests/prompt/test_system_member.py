"""Our own text in a system prompt that is a string or an array: added, counted, and taken out again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.system_member import add_block, block_texts, block_without, string_member

MEMBER = string_member("instructions")
OURS = ("Rules of ours.\nIn two lines.", "[3 earlier iterations dropped]", "Registry:\nid=x")
texts = st.text(st.sampled_from('ab\n \t\u2028é\U0001f642"\\'), max_size=30)


def dumps(text: str) -> bytes:
    """JSON as Python clients write it."""
    return json.dumps(text).encode()


@given(texts, st.lists(st.sampled_from(OURS), max_size=3))
def test_what_was_added_is_taken_out(text: str, ours: list[str]) -> None:
    """What is left decodes to what was there before."""
    value = dumps(text)
    for piece in ours:
        value = MEMBER.add(value, piece)
    assert text == json.loads(MEMBER.without(value, set(OURS).__contains__))


@given(texts)
def test_without_ours_the_bytes_stay(text: str) -> None:
    """A string that holds nothing of ours is not written again."""
    value = dumps(text)
    assert value is MEMBER.without(value, set(OURS).__contains__)


@given(texts, texts)
def test_what_is_added_leaves_the_rest(text: str, piece: str) -> None:
    """The agent's own text keeps its spelling, and ours follows after a blank line."""
    value = dumps(text)
    added = MEMBER.add(value, piece)
    assert (f"{text}\n\n{piece}" if text else piece) == json.loads(added)
    assert added.startswith(value[:-1])


def test_ours_between_the_agents() -> None:
    """A piece is found wherever a client has put it, between blank lines."""
    value = dumps(f"one\n\n{OURS[0]}\n\ntwo")
    assert "one\n\ntwo" == json.loads(MEMBER.without(value, set(OURS).__contains__))


def test_part_of_a_stretch_is_not_ours() -> None:
    """A text that only begins like ours, or quotes it, stays."""
    value = dumps(f"Quote: {OURS[0]}\n\n{OURS[0]} and more")
    assert value == MEMBER.without(value, set(OURS).__contains__)


@pytest.mark.parametrize("value", [None, b"null", b'""'])
def test_where_there_is_nothing(value: bytes | None) -> None:
    """Ours is then all there is."""
    assert b'"ours"' == MEMBER.add(value, "ours")
    assert [] == ([] if value is None else MEMBER.texts(value))


@pytest.mark.parametrize("value", [b"7", b"{}", b'["a"]'])
def test_a_broken_system_member_is_refused_by_its_field(value: bytes) -> None:
    """What is no string is refused by its field."""
    for work in (lambda: MEMBER.add(value, "ours"), lambda: MEMBER.texts(value)):
        with pytest.raises(InvalidJson) as caught:
            work()
        assert "json.body.instructions" == caught.value.field


def test_each_piece_of_own_text_is_a_block() -> None:
    """In an array each piece is a block; others keep their bytes, and what is no text counts as JSON."""
    value = b'[{"text": "a", "x": 1},{"cachePoint":{"type":"default"}}]'
    added = add_block(value, b'{"text":"ours"}')
    assert value[:-1] + b',{"text":"ours"}]' == added
    assert b'[{"text": "a", "x": 1},{"cachePoint":{"type":"default"}}]' == block_without(added, "ours".__eq__, "f")
    assert value is block_without(value, "ours".__eq__, "f")
    assert ["a", '{"cachePoint":{"type":"default"}}'] == block_texts(value, "f")
    assert b'[{"text":"ours"}]' == add_block(b"[ ]", b'{"text":"ours"}')
    assert (["whole"], []) == (block_texts(b'"whole"', "f"), block_texts(b"null", "f"))
