"""HTTP/2 by hand, for peers that no library would be: headers without a message, half a message, answers not taken.

Frames are RFC 9113's, header fields RFC 7541's literals without indexing. What comes back is told frame by frame;
header blocks are not decoded, as it is enough to know that a stream has ended.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4
"""The setting SETTINGS_INITIAL_WINDOW_SIZE: bytes of an answer that may be sent before any is taken."""
FRAME_BYTES = 16_384
"""Of one frame, where nothing else is agreed."""
PATIENCE = 120.0
"""Seconds for each frame, and for all that is waited for at once: pings come for as long as a connection is open."""

TRIM = "/prompt_sidecar.v1.SidecarService/TrimPrompt"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def message(raw: bytes, size: int | None = None) -> bytes:
    """A gRPC message of `raw`, whose length is said to be `size`."""
    return b"\0" + struct.pack(">I", len(raw) if size is None else size) + raw


class Peer:
    """A client's end of a connection."""

    def __init__(self, connected: socket.socket, window: int = 65_535) -> None:
        """Begin HTTP/2; `window` is how much of each answer is taken before more is asked for."""
        self.socket = connected
        connected.settimeout(PATIENCE)
        connected.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, window)))
        self._next = 1
        self._received = b""
        self.over = set[int]()
        """Streams that the server was seen to end."""

    def call(
        self, method: str, sent: bytes = b"", *, end: bool = False, metadata: Sequence[tuple[str, str]] = ()
    ) -> int:
        """Begin a call and send so much of its message; the stream's number."""
        stream, self._next = self._next, self._next + 2
        fields = [
            (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc"), *metadata,
        ]  # fmt: skip
        block = b"".join(b"\x10" + _text(name) + _text(value) for name, value in fields)
        frames = frame(HEADERS, END_HEADERS, stream, block)
        if sent or end:
            frames += frame(DATA, END_STREAM if end else 0, stream, sent)
        self.socket.sendall(frames)
        return stream

    def take(self, stream: int, size: int) -> None:
        """Take so many more bytes of an answer."""
        self.socket.sendall(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size)))

    def frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of what comes, until the server ends the connection."""
        while True:
            while len(self._received) < 9 or len(self._received) < 9 + int.from_bytes(self._received[:3], "big"):
                more = self.socket.recv(65_536)
                if not more:
                    return
                self._received += more
            size = int.from_bytes(self._received[:3], "big")
            kind, flags, stream = self._received[3], self._received[4], int.from_bytes(self._received[5:9], "big")
            payload, self._received = self._received[9 : 9 + size], self._received[9 + size :]
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.socket.sendall(frame(PING, ACK, 0, payload))
            elif kind == RST_STREAM or (kind in {HEADERS, DATA} and flags & END_STREAM):
                self.over.add(stream)
            yield kind, flags, stream, payload

    def begun(self, stream: int) -> None:
        """Wait until the answer of this stream begins."""
        until = monotonic() + PATIENCE
        for kind, _, of, _ in self.frames():
            if of == stream and kind == HEADERS:
                return
            assert monotonic() < until, f"the answer of stream {stream} has not begun"
        raise AssertionError(f"the connection has ended before the answer of stream {stream}")

    def ended(self, *streams: int) -> bytes:
        """Wait until the server has ended all these streams; what their header blocks and messages were."""
        return self.ended_some(streams, len(streams))

    def ended_some(self, streams: Sequence[int], count: int) -> bytes:
        """As `ended`, for so many of the streams: gRPC does not hand calls over in the order in which they came."""
        left, got, until = set(streams) - self.over, b"", monotonic() + PATIENCE
        if len(left) + count <= len(streams):
            return got
        for _, _, stream, payload in self.frames():
            if stream in left:
                got += payload
                left -= self.over
            if len(left) + count <= len(streams):
                return got
            assert monotonic() < until, f"streams {sorted(left)} go on; {count} of {len(streams)} were to end"
        raise AssertionError(f"the connection has ended before streams {sorted(left)}")

    def closed(self) -> None:
        """Wait until the server has closed the connection."""
        until = monotonic() + PATIENCE
        for _ in self.frames():
            assert monotonic() < until, "the connection stays open"


@contextmanager
def peer(address: str, window: int = 65_535) -> Iterator[Peer]:
    """A connection to a server; `address` in gRPC's spelling."""
    with socket.socket(socket.AF_UNIX if address.startswith("unix:") else socket.AF_INET) as connected:
        connected.settimeout(PATIENCE)
        host, _, port = address.rpartition(":")
        connected.connect(address.removeprefix("unix:") if address.startswith("unix:") else (host, int(port)))
        yield Peer(connected, window)


def _text(value: str) -> bytes:
    raw = value.encode()
    assert len(raw) < 127, "longer ones need another byte"
    return bytes((len(raw),)) + raw
