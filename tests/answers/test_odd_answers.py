"""Answers of other shapes than documented: what can be read is read, and all else goes on byte for byte."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_sidecar.answers.answer_stream import AnswerStream, Discontinued
from prompt_sidecar.answers.base import Dialect, EarlierTurns, Filter
from prompt_sidecar.answers.frames import frame
from prompt_sidecar.answers.reported_usage import UsageReader
from prompt_sidecar.answers.restored_answers import RestoredStream, whole_restored
from prompt_sidecar.answers.table import DIALECTS
from prompt_sidecar.prompt.members import Members
from tests.client.provider import SHAPES, Says
from tests.doors.http.path_models import WAYS, pieces
from tests.doors.http.streams import EVENTS
from tests.doors.http.upstream import FORMATS

OWN: Final = frozenset({"search_conversation_history", "recall_elided_content"})
MOST: Final = 1 << 20
MASK: Final = "⟦github_token:aaaaaaaaaa⟧"
THEIRS: Final = Says("Some text.", [("c1", "deploy", {"token": f"a {MASK} 😀"}), ("c2", "print", {})])
OURS: Final = Says("Wait.", [("o1", "search_conversation_history", {"query": "😀"}), ("c1", "deploy", {"a": [1]})])
THOUGHT: Final = {"type": "thinking", "thinking": "Well then.", "signature": "c2ln"}


@dataclass(frozen=True, slots=True)
class Streamed:
    """A stream's events, as names and JSON, and how one is written."""

    format: str
    events: Sequence[tuple[str, Any]]
    write: Callable[[str, bytes], bytes]
    """Takes an event's name and its data."""

    @property
    def dialect(self) -> Dialect:
        """The API's."""
        return DIALECTS[self.format]

    def raw(self, event: tuple[str, Any]) -> bytes:
        """Write an event; one that is bytes is written as it is."""
        name, data = event
        return self.write(name, data if isinstance(data, bytes) else json.dumps(data).encode())


def _sse(name: str, data: bytes) -> bytes:
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + data + b"\n\n"


def _framed(name: str, data: bytes) -> bytes:
    made = frame(0, name)
    try:
        return frame(json.loads(data), name)
    except ValueError:
        return made


def _read(raw: bytes, splitter: Any) -> Iterator[tuple[str, Any]]:
    for event in [*splitter.feed(raw), *splitter.last()]:
        if event.data is not None and b'"ping"' not in event.data:  # a ping does not wait behind thinking
            yield event.name, event.data if event.data == b"[DONE]" else json.loads(event.data)


def _streamed(name: str, says: Says) -> Streamed:
    if name in FORMATS:
        thought = [THOUGHT] if name == "messages" else []
        answer = Says(says.text, says.calls, blocks=thought)
        whole = b"".join(EVENTS[name](SHAPES[name](answer, 1), {"stream_options": {"include_usage": True}}))
        format = FORMATS[name]
    else:
        whole, format = b"".join(pieces(WAYS[name], says)), WAYS[name].format
    events = list(_read(whole, DIALECTS[format].splitter(MOST)))
    return Streamed(format, events, _framed if name == "bedrock-stream" else _sse)


NAMES: Final = (*FORMATS, "gemini-sse", "bedrock-stream")
STREAMS: Final = {name: (_streamed(name, THEIRS), _streamed(name, OURS)) for name in NAMES}
"""Without and with a call of the sidecar's tools."""
EACH: Final = pytest.mark.parametrize("name", NAMES)

ODD: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [
        *(None, True, False, 0, -1, 7, 2**63, 0.5, 1e300, "", "0", "x", "\ud83d", "\ude00y"),
        *([], [None], [[]], [{}], {}, {"x": 1}, {"index": None}, [0, {"index": "0", "id": []}], "deploy", "stop"),
    ]
)
RAW: Final = st.sampled_from(
    [b"[]", b"[1]", b"7", b"null", b'"x"', b"{", b"\xff\xfe", b'{"a":"\\ud83d"}', b"{}", b'{"type":"new.event"}', b""]
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*path, index))


def _replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    made = copy.copy(value)
    made[path[0]] = _replaced(value[path[0]], path[1:], odd)
    return made


@st.composite
def odd_events(draw: st.DrawFn, events: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Events of which some are changed, doubled, left out, swapped, or of no known kind."""
    made = list(events)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(made) - 1))
        name, data = made[at]
        match draw(st.sampled_from(["member", "member", "member", "double", "drop", "swap", "raw"])):
            case "member" if not isinstance(data, bytes):
                place = draw(st.sampled_from(list(_places(data))))
                made[at] = name, _replaced(data, place, copy.deepcopy(draw(ODD)))
            case "double":
                made.insert(at, made[at])
            case "drop" if len(made) > 1:
                del made[at]
            case "swap":
                other = draw(st.integers(0, len(made) - 1))
                made[at], made[other] = made[other], made[at]
            case _:
                made.insert(at, (name, draw(RAW)))
    return made


def _filter(streamed: Streamed, own: frozenset[str]) -> Filter:
    members = Members(b'{"store":false}')
    events = streamed.dialect.filter(own, members)
    events.begin()
    return events


def _fed(stream: AnswerStream, whole: bytes, size: int) -> bytes:
    out = b"".join([stream.feed(whole[at : at + size]) for at in range(0, len(whole), size)])
    return out + stream.end()


@EACH
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_stream_without_our_calls_stays_byte_for_byte(name: str, data: st.DataObject) -> None:
    """Whatever its members are, wherever it is cut, with the sidecar's tools offered and without them."""
    streamed = STREAMS[name][0]
    whole = b"".join(map(streamed.raw, data.draw(odd_events(streamed.events))))
    own = data.draw(st.sampled_from([OWN, frozenset()]))
    events = _filter(streamed, own)
    stream = AnswerStream(streamed.dialect.splitter(MOST), events, MOST)

    assert whole == _fed(stream, whole, data.draw(st.sampled_from([17, 1_000_000])))
    assert not stream.passes
    assert not events.hides()
    events.visible()


@EACH
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_stream_with_our_calls_never_fails(name: str, data: st.DataObject) -> None:
    """It goes on, or ends with an error; what was said is always known, in later turns too."""
    streamed = STREAMS[name][1]
    events = _filter(streamed, OWN)
    for _ in range(2):
        whole = b"".join(map(streamed.raw, data.draw(odd_events(streamed.events))))
        stream = AnswerStream(streamed.dialect.splitter(MOST), events, MOST)
        try:
            out = _fed(stream, whole, 1_000_000)
        except Discontinued as ended:
            out = ended.made
        assert not stream.passes
        assert len(out) < len(whole) + 1_000
        turn = events.turn()
        json.dumps([turn.entries, [call.arguments for call in turn.own], events.visible()])
        streamed.dialect.answers([(call, "found", False) for call in turn.own])
        [streamed.dialect.gist(each) for each in events.visible()]
        [call.arguments.encode() + call.id.encode() for call in turn.own]
        events.counted()
        events.begin()


def _restore(_: str, arguments: str) -> str:
    assert arguments.encode()
    return arguments.replace(MASK, "ghp_value")


@EACH
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_masks_in_odd_streams_never_fail(name: str, data: st.DataObject) -> None:
    """What is restored may be anything, but nothing breaks off."""
    streamed = STREAMS[name][0]
    whole = b"".join(map(streamed.raw, data.draw(odd_events(streamed.events))))
    stream = RestoredStream(streamed.dialect, _restore, MOST)
    out = stream.feed(whole) + stream.feed(b"", last=True)

    splitter = streamed.dialect.splitter(2 * MOST)
    kept = [event for event in [*splitter.feed(out), *splitter.last()] if event.data == b"[1]"]
    assert whole.count(b"data: [1]\n") in (0, len(kept))


def _whole(format: str, says: Says) -> Any:
    """A whole answer."""
    named = {FORMATS[name]: name for name in FORMATS}
    if format in named:
        return SHAPES[named[format]](says, 1)
    return json.loads(pieces(WAYS["gemini" if format == "gemini_contents" else "bedrock"], says)[0])


@pytest.mark.parametrize("format", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whole_answers_never_fail(format: str, data: st.DataObject) -> None:
    """They are read, shown, written and restored, whatever they hold."""
    dialect, answer = DIALECTS[format], _whole(format, data.draw(st.sampled_from([THEIRS, OURS])))
    for _ in range(data.draw(st.integers(1, 3))):
        answer = _replaced(
            answer, data.draw(st.sampled_from(list(_places(answer))[1:] or [()])), copy.deepcopy(data.draw(ODD))
        )
    if not isinstance(answer, dict):
        return
    turn = dialect.read(answer, OWN)
    dialect.show(shown := EarlierTurns(), turn)
    raw = json.dumps(answer).encode()
    made = whole_restored(dialect, raw, _restore).body
    assert made is None or json.loads(made) != answer
    visible = dialect.written(answer, shown, OWN)
    [dialect.gist(each) for each in visible]
    [call.arguments.encode() + call.id.encode() for call in turn.own]


@EACH
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_what_odd_answers_count_is_read_or_not(name: str, data: st.DataObject) -> None:
    """The figures are numbers of tokens, or there are none."""
    streamed = STREAMS[name][0]
    whole = b"".join(map(streamed.raw, data.draw(odd_events(streamed.events))))
    kind = streamed.dialect.streamed
    reader = UsageReader(streamed.format, 200, kind)
    reader.feed(whole)
    usage = reader.end()

    assert usage.input_tokens is None or usage.input_tokens >= 0
    assert usage.model.encode() is not None
