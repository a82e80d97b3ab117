"""Answers in which something was changed keep all other bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.answers.answer_json import read, write
from prompt_sidecar.answers.frames import FrameSplitter, _encoded_headers, _framed, frame
from prompt_sidecar.answers.restored_answers import RestoredStream, whole_restored
from prompt_sidecar.answers.rewriting import rewritten
from prompt_sidecar.answers.table import DIALECTS
from tests.answers.test_restored_answers import MASK, MOST, VALUE, _restore

ODD: Final = (
    r'{"big": 12345678901234567890123, "digits":0.12345678901234567890123 , "huge":1E400,"zero":-0,"exp":1.50e+02,'
    r'"id":9007199254740993,"id":18446744073709551616,"text":"\u00e9\/\ud83d","none": [ ] , "deep":[[{"a":[-0.0]}]]}'
)
"""What no writer writes."""


def _object(value: str) -> str:
    return json.dumps({"token": value})


WHOLE: Final = {
    "openai_chat": '{"choices":[{"odd":ODD,"message":{"tool_calls":[{"odd":ODD,"function":CALL}]}}], "odd":ODD}',
    "openai_responses": '{"output":[{"type":"function_call", "odd":ODD,"call":1,"name":"deploy","arguments":TEXT}]}',
    "anthropic_messages": '{"content":[{"type":"tool_use","name":"deploy","input":{"odd":ODD, "token":VALUE}}]}',
    "gemini_contents": '{"candidates":[{"content":{"parts":[{"functionCall":FUNCTION}]},"odd":ODD}]}',
    "bedrock_converse": '{"output":{"message":{"content":[{"toolUse":{"name":"deploy","input":{"token":VALUE} }}]}}}',
}
"""A whole answer by format."""
STREAMED: Final = {
    "openai_chat": '{"id":"c", "odd":ODD,"choices":[{"delta":{"tool_calls":[{"index":0,"odd":ODD,"function":CALL}]}}]}',
    "openai_responses": '{"type":"response.output_item.done","odd":ODD,"output_index":0,"item":ITEM}',
    "gemini_contents": WHOLE["gemini_contents"],
}
"""An event with a mask in a call by format."""
PARTS: Final = {
    "ITEM": '{"type":"function_call","id":"f","odd":ODD,"name":"deploy","arguments":TEXT}',
    "CALL": '{"name":"deploy","odd" :ODD,"arguments":TEXT}',
    "FUNCTION": '{"name":"deploy","args":{"token":VALUE,"odd":ODD}}',
    "ODD": ODD,
}


def _filled(form: str, value: str) -> bytes:
    for name, part in PARTS.items():
        form = form.replace(name, part)
    text = json.dumps(_object(value), ensure_ascii=False)
    return form.replace("TEXT", text).replace("VALUE", json.dumps(value, ensure_ascii=False)).encode()


@pytest.mark.parametrize("format", WHOLE)
def test_a_whole_answer_with_a_restored_mask_keeps_all_other_bytes(format: str) -> None:
    """Numbers of any spelling and size, escapes, white space, members that stand twice."""
    found = whole_restored(DIALECTS[format], _filled(WHOLE[format], MASK), _restore)

    assert _filled(WHOLE[format], VALUE) == found.body


@pytest.mark.parametrize("format", STREAMED)
def test_an_event_with_a_restored_mask_keeps_all_other_bytes(format: str) -> None:
    """Its other lines included."""
    head, end = b": a comment\nid: 7\r\ndata: ", b"\nretry: 5\n\n"
    stream = RestoredStream(DIALECTS[format], _restore, MOST)

    made = stream.feed(head + _filled(STREAMED[format], MASK) + end, last=True)

    assert head + _filled(STREAMED[format], VALUE) + end == made


def test_data_in_several_lines_stays_in_several_lines() -> None:
    """A line end within JSON is a line of its own in an event."""
    form = _filled(STREAMED["gemini_contents"], MASK).replace(b',"odd"', b'\n,"odd"')
    stream = RestoredStream(DIALECTS["gemini_contents"], _restore, MOST)

    made = stream.feed(b"data: " + form.replace(b"\n", b"\ndata: ") + b"\n\n", last=True)

    assert b"data: " + form.replace(MASK.encode(), VALUE.encode()).replace(b"\n", b"\ndata: ") + b"\n\n" == made


def test_an_element_of_an_array_with_a_restored_mask_keeps_all_other_bytes() -> None:
    """Gemini's stream without events."""
    stream = RestoredStream(DIALECTS["gemini_contents"], _restore, MOST, array=True)

    made = stream.feed(b"[ " + _filled(WHOLE["gemini_contents"], MASK) + b" ]", last=True)

    assert b"[ " + _filled(WHOLE["gemini_contents"], VALUE) + b" ]" == made


def test_a_frame_that_is_numbered_anew_keeps_all_other_bytes() -> None:
    """Of its payload, and its headers."""
    payload = '{"delta":{"text":"Hi","odd":ODD},"contentBlockIndex":%d , "p":ODD}'.replace("ODD", ODD)
    events = DIALECTS["bedrock_converse"].filter({"recall"}, None)
    events.begin()
    own = {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "o", "name": "recall"}}}
    stream = frame(own, "contentBlockStart") + frame({"contentBlockIndex": 0}, "contentBlockStop")
    stream += _raw_frame(payload % 1)

    made = b"".join([events.feed(event) for event in FrameSplitter(MOST).feed(stream)])

    assert _raw_frame(payload % 0) == made


def _raw_frame(payload: str) -> bytes:
    return _framed(
        _encoded_headers({":other": "x", ":event-type": "contentBlockDelta", ":message-type": "event"}),
        payload.encode(),
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda value: value["a"].pop(0), b'{ "a":[ 2.50 ],"b":{"c":-0 } }'),
        (lambda value: value["a"].clear(), b'{ "a":[],"b":{"c":-0 } }'),
        (lambda value: value["a"].insert(0, 0), b'{ "a":[0, 1E2 , 2.50 ],"b":{"c":-0 } }'),
        (lambda value: value["a"].append("x"), b'{ "a":[ 1E2 , 2.50 ,"x"],"b":{"c":-0 } }'),
        (lambda value: value.pop("a"), b'{"b":{"c":-0 } }'),
        (lambda value: value.pop("b"), b'{ "a":[ 1E2 , 2.50 ]}'),
        (lambda value: value["b"].update(d=None), b'{ "a":[ 1E2 , 2.50 ],"b":{"c":-0 ,"d":null} }'),
        (lambda value: value.update(b=[]), b'{ "a":[ 1E2 , 2.50 ],"b":[] }'),
        (lambda value: value.clear(), b"{}"),
        (lambda _: None, b'{ "a":[ 1E2 , 2.50 ],"b":{"c":-0 } }'),
    ],
)
def test_only_what_was_changed_is_written_anew(change: Callable[[Any], object], expected: bytes) -> None:
    """Members and elements that go, come, and are others."""
    raw = b'{ "a":[ 1E2 , 2.50 ],"b":{"c":-0 } }'
    value = read(raw)

    change(value)

    assert expected == rewritten(raw, value)


_VALUES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES, _VALUES, st.data())
def test_what_is_written_reads_as_the_value(old: Any, more: Any, data: st.DataObject) -> None:
    """Whatever was changed, at any depth."""
    raw = json.dumps(old, indent=data.draw(st.none() | st.integers(0, 2))).encode()
    value = data.draw(_changed(read(raw), more))

    assert read(write(value)) == read(rewritten(raw, value))


@st.composite
def _changed(draw: st.DrawFn, value: Any, more: Any) -> Any:
    """Return a value in which something may be replaced, added or removed."""
    how = draw(st.sampled_from(["stay", "replace", "inside", "add", "remove"]))
    if how == "replace":
        return more
    if how == "stay" or not isinstance(value, (dict, list)) or not value:
        return value
    value = deepcopy(value)
    key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    if how == "inside":
        value[key] = draw(_changed(value[key], more))
    elif how == "remove":
        del value[key]
    elif isinstance(value, dict):
        value[draw(st.text(max_size=2))] = more
    else:
        value.insert(key, more)
    return value


def test_what_is_deep_and_wide_is_walked_once() -> None:
    """The steps grow with the text, not with its depth times it."""

    def steps(depth: int) -> int:
        raw = b'{"a":' * depth + b"[" + b"1," * 1_000 + b'"x"]' + b"}" * depth
        value = inner = read(raw)
        for _ in range(depth):
            inner = inner["a"]
        inner[-1] = "y"
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            made = rewritten(raw, value)
        finally:
            sys.setprofile(None)
        assert raw.replace(b"x", b"y") == made
        return count

    assert steps(200) < 2 * steps(20)
