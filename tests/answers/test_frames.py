"""Amazon's event stream is split into events, and what is no event stream is refused."""

from __future__ import annotations

import zlib

import pytest

from prompt_sidecar.answers.frames import FrameSplitter, exception, frame
from prompt_sidecar.answers.sse import BrokenStream
from tests.doors.http.path_models import unframed

STREAM = frame({"role": "assistant"}, "messageStart") + frame({"p": "x" * 300}, "metadata")


def test_events_come_when_they_are_whole() -> None:
    """With the bytes that they came as, at whichever byte the stream is cut."""
    for step in (1, 5, 12, len(STREAM)):
        splitter = FrameSplitter(1_000)
        found = [event for at in range(0, len(STREAM), step) for event in splitter.feed(STREAM[at : at + step])]
        assert [] == splitter.last()
        assert STREAM == b"".join(event.raw for event in found)
        assert [("messageStart", {"role": "assistant"}), ("metadata", {"p": "x" * 300})] == [
            (event.name, event.json()) for event in found
        ]


def test_an_exception_has_no_data() -> None:
    """So it goes on as it came."""
    raw = exception({"message": "overloaded"}, "throttlingException")
    (event,) = FrameSplitter(1_000).feed(raw)

    assert (raw, None) == (event.raw, event.json())
    assert [("throttlingException", {"message": "overloaded"})] == list(unframed(raw))


def test_other_headers_are_skipped() -> None:
    """Of every type that there is."""
    kinds = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
    headers = b"".join(b"\x01a" + bytes([kind]) + b"v" * size for kind, size in kinds.items())
    headers += b"\x01b\x06\x00\x03bin" + b"\x0d:message-type\x07\x00\x05event" + b"\x0b:event-type\x07\x00\x01k"
    prelude = (16 + len(headers) + 2).to_bytes(4, "big") + len(headers).to_bytes(4, "big")
    raw = prelude + zlib.crc32(prelude).to_bytes(4, "big") + headers + b"{}"
    raw += zlib.crc32(raw).to_bytes(4, "big")
    (event,) = FrameSplitter(1_000).feed(raw)

    assert ("k", {}) == (event.name, event.json())


@pytest.mark.parametrize("at", [0, 5, 9, 14, 30, len(STREAM) - 1])
def test_a_byte_that_is_not_as_it_was_breaks_the_stream(at: int) -> None:
    """Lengths, headers, payload and checksums are covered; frames before it are given first."""
    broken = STREAM[:at] + bytes([STREAM[at] ^ 1]) + STREAM[at + 1 :]
    splitter = FrameSplitter(1_000)

    def read() -> None:
        events = splitter.feed(broken)
        while events:
            assert STREAM.startswith(events[0].raw)
            events = splitter.feed(b"")

    with pytest.raises(BrokenStream):
        read()


def test_a_stream_that_ends_in_a_frame_is_broken() -> None:
    """The agent must not take a part for the whole."""
    splitter = FrameSplitter(1_000)
    splitter.feed(STREAM[:-1])
    with pytest.raises(BrokenStream):
        splitter.last()


def test_a_frame_that_is_too_long_is_refused_at_once() -> None:
    """By the length that it names."""
    splitter = FrameSplitter(100)
    with pytest.raises(BrokenStream):
        splitter.feed(frame({"p": "x" * 300}, "metadata")[:12])
