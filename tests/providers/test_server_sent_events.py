"""Bytes of a stream are split as if all of it were at hand, however it is cut, and long events are not copied about."""

from __future__ import annotations

import re
import tracemalloc
from codecs import BOM_UTF8
from itertools import pairwise
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from prompt_sidecar.answers.answer_stream import AnswerStream
from prompt_sidecar.answers.sse import Event, Splitter
from prompt_sidecar.providers.byte_queue import ByteQueue
from prompt_sidecar.providers.server_sent_events import EventBytes

STREAMS: Final = st.lists(
    st.sampled_from([b"\n", b"\n", b"\r", b"\r\n", b"data: one", b"data:", b"event: x", b": no", b" ", BOM_UTF8]),
    max_size=24,
).map(b"".join)
_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|(?<=\r)\r|\r(?=.))", re.DOTALL)


class SlowEventBytes:
    """Does what `EventBytes` does, with one buffer and one expression."""

    def __init__(self) -> None:
        self.rest = bytearray()
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that are complete."""
        searched = max(0, len(self.rest) - 3)
        self.rest += chunk
        events, at = list[bytes](), 0
        for found in _END.finditer(bytes(self.rest[searched:])):
            end = searched + found.end()
            events += self._marked(bytes(self.rest[at:end]))
            at = end
        del self.rest[:at]
        return events

    def last(self) -> list[bytes]:
        """Return the rest."""
        rest, self.rest = bytes(self.rest), bytearray()
        return self._marked(rest) if rest else []

    def _marked(self, event: bytes) -> list[bytes]:
        first, self._begun = not self._begun, True
        if first and event.startswith(BOM_UTF8):
            return [each for each in (BOM_UTF8, event[len(BOM_UTF8) :]) if each]
        return [event]


@given(STREAMS, st.lists(st.integers(0, 120), max_size=8))
def test_events_are_those_of_the_slow_twin(stream: bytes, cuts: list[int]) -> None:
    """After each piece, for pieces of any sizes."""
    fast, slow = EventBytes(), SlowEventBytes()
    for begin, end in pairwise(sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})):
        may_end = fast.may_end(stream[begin:end])
        events = slow.feed(stream[begin:end])

        assert events == fast.feed(stream[begin:end])
        assert len(slow.rest) == fast.waiting
        assert slow.rest.endswith(b"\n\r") == fast.ends_at_carriage_return
        assert may_end or not events
    assert slow.last() == fast.last()


@given(STREAMS)
def test_every_cut_at_every_byte_makes_the_same_events(stream: bytes) -> None:
    """Of two pieces, and byte by byte."""
    pieces = [[stream[:cut], stream[cut:]] for cut in range(len(stream) + 1)]
    for each in [*pieces, [bytes([byte]) for byte in stream]]:
        fast, slow = EventBytes(), SlowEventBytes()
        for piece in each:
            assert slow.feed(piece) == fast.feed(piece)
        assert slow.last() == fast.last()


@given(st.lists(st.tuples(st.sampled_from([0, 1, 5, 1_024, 1_025, 5_000]), st.integers(0, 9_000), st.booleans())))
def test_a_queue_of_bytes_is_a_buffer(steps: list[tuple[int, int, bool]]) -> None:
    """Bytes leave in the order in which they were added."""
    queue, buffer = ByteQueue(), bytearray()
    for number, (added, removed, taken) in enumerate(steps):
        piece = bytes((number + at) % 251 for at in range(added))
        queue.append(piece)
        buffer += piece
        if taken:
            assert bytes(buffer[:removed]) == queue.take(removed)
        else:
            queue.drop(removed)
        del buffer[:removed]
        assert len(buffer) == len(queue)
    assert bytes(buffer) == queue.take(len(buffer) + 1)
    assert not len(queue)


class _Unchanged:
    """A filter that forwards every event after reading its data."""

    turns = 1
    left_out = False

    def feed(self, event: Event) -> bytes:
        """Return the event."""
        assert event.data is not None
        return event.raw

    def keep(self) -> None:
        """Do nothing."""

    def undo(self) -> None:
        """Do nothing."""

    def rest(self) -> bytes:
        """Return nothing."""
        return b""


def test_a_long_event_is_copied_twice() -> None:
    """It is in memory as pieces, as an event and as the event's data, not in a copy for each step."""
    size, piece = 8_000_000, 64_000
    stream = AnswerStream(Splitter(2 * size), _Unchanged(), 2 * size)
    tracemalloc.start()
    try:
        stream.feed(b"data: ")
        for _ in range(size // piece):
            assert stream.only_collects(b"x" * piece)
            stream.feed(b"x" * piece)
        assert not stream.only_collects(b"\n\n")
        made = stream.feed(b"\n\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size + 8 == len(made)
    assert peak < 3.5 * size


def test_a_piece_beyond_the_limit_is_not_only_collected() -> None:
    """The limit of one event and that of a stream are noticed before the piece is taken."""
    for event, stream in ((10, 100), (100, 10)):
        passing = AnswerStream(Splitter(event), _Unchanged(), stream)
        assert passing.only_collects(b"data: xx")
        assert not passing.only_collects(b"data: xxxxx")
