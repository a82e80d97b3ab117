"""Splitting a body after another: the same split as without it, and a right count of what is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.errors import InvalidJson
from prompt_sidecar.prompt.body import Split, continued, equal_slice, split
from tests.prompt.bodies import Body, bodies, chance, few, messages, names, spelled, values

CHANGES = ["same", "append", "insert", "edit", "longer", "remove", "cut", "head", "tail", "gap", "kind"]


@st.composite
def changed(draw: st.DrawFn, body: Body) -> Body:
    """A body as an agent might send it next."""
    slices = list(body.messages)
    place = draw(st.integers(0, len(slices) - 1))
    new = spelled(draw(messages | values), draw(chance))
    match draw(st.sampled_from(CHANGES)):
        case "append":
            slices.append(new)
        case "insert":
            slices.insert(place, new)
        case "edit":
            slices[place] = new
        case "longer":
            slices[place] = b"12" if slices[place] == b"1" else b"1"
        case "remove":
            del slices[place]
        case "cut":
            del slices[place + 1 :]
        case "head":
            return replace(body, fields_before=draw(fields()), fields_after=())
        case "tail":
            return replace(body, fields_before=(), fields_after=draw(fields()))
        case "gap":
            return replace(body, gap=b"" if body.gap else b" ")
        case "kind":
            return replace(body, is_object=not body.is_object)
    return replace(body, messages=tuple(slices or [new]))


@st.composite
def fields(draw: st.DrawFn) -> tuple[tuple[bytes, bytes], ...]:
    """Other members of a body."""
    drawn = draw(st.dictionaries(names, values, max_size=2))
    random = draw(chance)
    return tuple((spelled(name, random), spelled(value, random)) for name, value in drawn.items())


def facts(found: Split) -> tuple[object, ...]:
    """What two splits of one body must agree on."""
    return (found.raw, found.starts, found.ends, found.fields, found.is_object)


def right_same(found: Split, before: Split) -> None:
    """`same` claims no message wrongly, and misses none where the head is the same."""
    bound = min(len(found), len(before))
    truth = 0
    while truth < bound and found.message(truth) == before.message(truth):
        truth += 1
    assert found.same <= truth
    if found.head == before.head and found.is_object == before.is_object:
        assert truth == found.same or not equal_gaps(found, before, truth)


def equal_gaps(found: Split, before: Split, count: int) -> bool:
    """Whether the first messages stand at the same places."""
    return found.starts[:count] == before.starts[:count]


@few
@given(st.data())
def test_after_another_is_as_alone(data: st.DataObject) -> None:
    """However the next body differs, the incremental split is the whole split."""
    body = data.draw(bodies(elements=messages | values))
    before = split(body.raw)
    for _ in range(3):
        body = data.draw(changed(body))
        found = split(body.raw, before)
        assert facts(split(body.raw)) == facts(found)
        right_same(found, before)
        before = found


@few
@given(bodies(), bodies())
def test_after_a_stranger(one: Body, other: Body) -> None:
    """A body that has nothing to do with the one before is split all the same."""
    before = split(one.raw)
    found = split(other.raw, before)
    assert facts(split(other.raw)) == facts(found)
    right_same(found, before)


PIECES = [b"", b"]", b"}", b",", b"[", b"{", b'"', b":", b"0", b"\\", b"\xff", b" ", b"x"]


@few
@given(st.data())
def test_refuses_what_the_whole_split_refuses(data: st.DataObject) -> None:
    """Bytes changed, taken out or put in anywhere: with and without the body before, the verdict is the same."""
    body = data.draw(bodies())
    before = split(body.raw)
    raw = bytearray(body.raw)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1)) if raw else 0
        piece = data.draw(st.sampled_from(PIECES))
        raw[place : place + data.draw(st.integers(0, 2))] = piece
    assert verdict(bytes(raw), None) == verdict(bytes(raw), before)


TAILS = [
    b"",
    b"]",
    b"]}",
    b"]}}",
    b"]} ",
    b"]}x",
    b"]]",
    b",]}",
    b"],}",
    b'],"messages":[{}]}',
    b'],"model":"y"}',
    b'],"n":12,"n":1}',
    b'],"n":1,"n":1}',
    b'],"n":NaN}',
    b'],"n":"\xff"}',
    b'],"n":"\\ud800"}',
    b'],"n":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b',{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    b',{"role":"user",}]}',
    b',{"role":"user"} {"role":"user"}]}',
    b',"unfinished]}',
    b"12]}",
]


@pytest.mark.parametrize("tail", TAILS, ids=[str(number) for number in range(len(TAILS))])
def test_what_follows_equal_messages_is_read_strictly(tail: bytes) -> None:
    """What follows the messages that are the same is read as strictly as the whole body is."""
    start = b'{"model":"x","messages":[{"role":"user","content":"a"}'
    before = split(start + b"]}")
    assert verdict(start + tail, None) == verdict(start + tail, before)


def test_what_stands_between_messages_is_compared() -> None:
    """A bracket in place of a comma between known messages is not overlooked."""
    before = split(b"[0,1,2,3]")
    for raw in (b"[0]1,2,3]", b"[0,1]2,3]", b"[0,1,2]3]", b"[0:1,2,3]"):
        assert verdict(raw, None) == verdict(raw, before)


def test_a_number_that_goes_on() -> None:
    """`1` is no prefix of `12`, though its bytes are."""
    before = split(b"[0,1]")
    assert 1 == split(b"[0,12]", before).same
    assert 2 == split(b"[0,1,2]", before).same


def test_known_messages_are_not_read_again() -> None:
    """A split after another holds the same offsets and counts every message as the same."""
    raw = b'{"messages":[{"a":1} , {"b":2}],"model":"m"}'
    before = split(raw)
    assert 2 == split(raw, before).same
    assert b'"m"' == split(raw, before).field("model")


def test_equal_slices() -> None:
    """Two messages at one index are equal if their bytes are, wherever they stand."""
    one, other = split(b'[{"a":1},{"b":2}]'), split(b' [ {"a":1} ,{"b":3},{"c":4}]')
    assert [True, False, False] == [equal_slice(other, one, index) for index in range(3)]


@few
@given(st.data())
def test_a_delta_is_the_whole_body(data: st.DataObject) -> None:
    """A delta after some messages of the body before is the whole body that it stands for."""
    one = data.draw(bodies())
    other = data.draw(bodies())
    count = data.draw(st.integers(0, len(one.messages)))
    whole = continued(split(one.raw), count, split(other.raw), is_json=True)
    again = split(whole.raw)
    assert [*one.messages[:count], *other.messages] == [again.message(index) for index in range(len(again))]
    assert facts(again) == facts(whole)
    assert count == whole.same


def verdict(raw: bytes, before: Split | None) -> object:
    """What a split says: its facts, or the field that it names."""
    try:
        return facts(split(raw, before))
    except InvalidJson as error:
        return ("refused", error.field)
