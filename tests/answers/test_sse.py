"""Server-sent events come out as they went in, however the stream is cut."""

from __future__ import annotations

import itertools

import pytest

from prompt_sidecar.answers.sse import MOST_LINES, BrokenStream, Event, Splitter

STREAM = (
    b'data: {"a":1}\n\nevent: x\r\ndata: one\r\ndata: two\r\n\r\n: comment\n\ndata: three\r\rdata: [DONE]\n\ndata: cut'
)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1_000])
def test_events_of_pieces(step: int) -> None:
    """The bytes together are the stream's, and data and names are what the format says."""
    splitter = Splitter(100)
    pieces = [STREAM[at : at + step] for at in range(0, len(STREAM), step)]
    events = [*itertools.chain.from_iterable(map(splitter.feed, pieces)), *splitter.last()]

    assert STREAM == b"".join(event.raw for event in events)
    assert [b'{"a":1}', b"one\ntwo", None, b"three", b"[DONE]", b"cut"] == [event.data for event in events]
    assert ["", "x", "", "", "", ""] == [event.name for event in events]
    assert {"a": 1} == events[0].json()


def test_a_long_event_in_small_pieces_is_searched_once() -> None:
    """Sixteen megabytes, a kilobyte at a time: searched again from its beginning it would never end."""
    splitter, piece = Splitter(1 << 25), b"x" * 1_024
    events = [event for _ in range(16_384) for event in splitter.feed(piece)]
    events += splitter.feed(b"\n\n")

    assert [(1 << 24) + 2] == [len(event.raw) for event in events]


def test_an_event_without_an_end_is_an_error() -> None:
    """It may take so many bytes, and no more."""
    splitter = Splitter(100)
    splitter.feed(b"x" * 100)
    with pytest.raises(BrokenStream):
        splitter.feed(b"x")


@pytest.mark.parametrize("line", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("empty", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("step", [1, 1_000])
def test_every_line_end_ends_an_event(line: bytes, empty: bytes, step: int) -> None:
    """A line's end and an empty line's may differ; together they may be one line's."""
    stream = (b"data: one" + line + empty) * 2 + b"data: cut"
    splitter = Splitter(100)
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    events = [*itertools.chain.from_iterable(map(splitter.feed, pieces)), *splitter.last()]

    expected = [b"one\none\ncut"] if line + empty == b"\r\n" else [b"one", b"one", b"cut"]
    assert expected == [event.data for event in events]
    assert stream == b"".join(event.raw for event in events)


def test_an_end_that_is_cut_in_two_is_of_one_event() -> None:
    """A carriage return behind a line feed waits for the byte that tells whether it is half a line end."""
    splitter = Splitter(100)

    assert [] == splitter.feed(b"data: one\r\n\r")
    assert [b"data: one\r\n\r\n"] == [event.raw for event in splitter.feed(b"\ndata: two")]


@pytest.mark.parametrize("step", [1, 2, 3, 4, 1_000])
def test_a_byte_order_mark_is_no_part_of_the_first_line(step: int) -> None:
    """It goes on by itself; later in a stream it is text as any other."""
    mark = b"\xef\xbb\xbf"
    stream = mark + b"data: one\n\n" + mark + b"data: two\n\ndata: three"
    splitter = Splitter(100)
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    events = [*itertools.chain.from_iterable(map(splitter.feed, pieces)), *splitter.last()]

    assert stream == b"".join(event.raw for event in events)
    assert [None, b"one", None, b"three"] == [event.data for event in events]
    assert [mark, b"data: cut"] == [event.raw for event in _last(mark + b"data: cut")]


def _last(stream: bytes) -> list[Event]:
    splitter = Splitter(100)
    return [*splitter.feed(stream), *splitter.last()]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_of_many_lines(end: bytes) -> None:
    """One with more lines than any provider's goes on as it came, and takes no more than its bytes."""
    most = MOST_LINES - 1
    [event] = Splitter(1 << 26).feed((b"data: x" + end) * most + end + b":")
    assert event.data is not None
    assert 2 * most - 1 == len(event.data)

    more = (b"data: x" + end) * (most + 1) + end
    [event] = Splitter(1 << 26).feed(more + b":")
    assert Event(more) == event
